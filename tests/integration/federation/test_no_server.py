"""An admin whose server is not there."""

from pathlib import Path

import pytest
from fleet import Fleet, experiment_file

pytestmark = pytest.mark.federation


@pytest.mark.parametrize("what", ["status", "run", "stop", "resume", "logs", "fetch"])
def test_without_a_server_there_is_one_sentence(fleet: Fleet, what: str, tmp_path: Path) -> None:
    words: list[object] = {"status": [], "run": [experiment_file(tmp_path / "short.toml")]}.get(what, ["some-run"])
    refused = fleet.call(what, *words)
    assert refused.code == 2
    assert "does not answer" in refused.err
    assert len(refused.err.strip().splitlines()) == 1, refused.err
