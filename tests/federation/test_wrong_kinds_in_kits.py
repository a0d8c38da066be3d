"""A folder or a broken link in place of a file of a federated run ends in one sentence; nothing is lost."""

from collections.abc import Callable
from pathlib import Path

import pytest
from sites_here import InProcessChannel, make_experiment, make_federated, write_kits
from test_restored_backups import run_until
from test_server import metrics, run_all

from fedcm.errors import UserError
from fedcm.federation.secure.revealed_sums import RevealedSums
from fedcm.federation.terms import read_record


def put_folder(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.mkdir()
    (path / "inside.txt").write_text("mine")


def put_broken_link(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to(path.with_name("nowhere"))


WRONG = {"folder": put_folder, "broken link": put_broken_link}


@pytest.fixture(params=WRONG)
def put(request: pytest.FixtureRequest) -> Callable[[Path], None]:
    return WRONG[request.param]


@pytest.mark.parametrize(
    "name", ["federation.json", "metrics.jsonl", "provenance.json", "checkpoints/round-000002.json"]
)
def test_a_file_of_a_run_at_the_server(name: str, put: Callable[[Path], None], tmp_path: Path) -> None:
    chosen = make_experiment("scaffold", 3)
    folder = write_kits(chosen, tmp_path)
    run = run_until(folder, chosen, 2)
    put(run / name)
    before = sorted((folder / "server").rglob("*"))
    with pytest.raises(UserError, match="must be a file, and it is a") as error:
        run_all(InProcessChannel(folder, make_federated(chosen)), chosen, resume=True)
    assert "\n" not in str(error.value)
    assert sorted((folder / "server").rglob("*")) == before, "the run was not moved to the archive"


def test_a_client_state_at_a_site(put: Callable[[Path], None], tmp_path: Path) -> None:
    chosen, lines = make_experiment("scaffold", 4, federation={"quorum": 0.6}), list[str]()
    folder = write_kits(chosen, tmp_path)
    run = run_until(folder, chosen, 2)
    put(folder / "b" / "state" / read_record(run).id / "round-000001.safetensors")
    run_all(InProcessChannel(folder, make_federated(chosen)), chosen, lines, resume=True)
    assert [line["clients"] for line in metrics(run)[2:]] == [[0, 2]] * 2
    assert sum("b does not count: it reports: this site needs its state after round 1" in line for line in lines) == 2


def test_the_sums_that_a_site_has_revealed(put: Callable[[Path], None], tmp_path: Path) -> None:
    """They are not forgotten: the site reveals nothing more."""
    sums = RevealedSums(tmp_path)
    sums.remember(0, ["a", "b"])
    put(tmp_path / "sums.json")
    with pytest.raises(UserError, match="must say which sums were revealed, but is damaged"):
        sums.check(0, ["a", "c"])
