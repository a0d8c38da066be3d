"""Admin commands without a server."""

from pathlib import Path

import pytest
from fleet import Fleet, experiment_file

pytestmark = pytest.mark.federation


@pytest.mark.parametrize("what", ["status", "run", "stop", "resume", "logs", "fetch"])
def test_an_unreachable_server_gives_one_sentence(fleet: Fleet, what: str, tmp_path: Path) -> None:
    words: list[object] = {"status": [], "run": [experiment_file(tmp_path / "short.toml")]}.get(what, ["some-run"])
    answer = fleet.call(what, *words)
    assert answer.code == 2
    assert "does not answer" in answer.err
    assert len(answer.err.strip().splitlines()) == 1, answer.err
