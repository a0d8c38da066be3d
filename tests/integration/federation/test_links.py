"""A site's link is cut for 40 s in the middle of a run, and comes back."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fleet import Fleet, bits, lines, until
from links import Link, link_for
from scenes import run_to_end
from test_killed import in_the_middle_of_a_round, long_rounds

pytestmark = pytest.mark.federation

SITES = ("a", "b", "c")
CUT = 40.0  # seconds
Dealt = Callable[..., list[str]]


@pytest.fixture
def link(fleet: Fleet, dealt: Dealt, tmp_path: Path) -> Iterator[Link]:
    """Three connected sites; that of b."""
    dealt(long_rounds(tmp_path / "dealt.toml", "fedcm"), fleet, *SITES)
    with link_for(fleet.site("b")) as link:
        fleet.start(*SITES)
        yield link


def interrupt(link: Link, how: str) -> None:
    link.cut() if how == "silent" else link.break_off()
    time.sleep(CUT)
    link.mend()


@pytest.mark.parametrize("how", ["silent", "closed"])
def test_a_run_waits_for_a_site_whose_link_comes_back_and_has_the_same_bits(
    fleet: Fleet, link: Link, how: str, tmp_path: Path
) -> None:
    experiment = long_rounds(tmp_path / "long.toml", "fedcm")
    run = fleet.follow("run", experiment, "--name", "r")
    in_the_middle_of_a_round(fleet, "r", 1, "b")
    interrupt(link, how)
    assert run.wait() == 0, run.output + fleet.collect_output()
    assert [line["missed"] for line in lines(fleet.at_server("r"))] == [[]] * 4
    assert bits(fleet.folder / "runs" / "r") == bits(run_to_end(experiment, tmp_path, "simulated"))


@pytest.mark.parametrize("how", ["silent", "closed"])
def test_a_run_continues_without_a_site_that_counts_again_later(
    fleet: Fleet, link: Link, how: str, tmp_path: Path
) -> None:
    links = {"classes": 10, "quorum": 0.6, "wait": 1, "retry_after": 2}
    experiment = long_rounds(tmp_path / "long.toml", "fedcm", federation=links)
    run = fleet.follow("run", experiment, "--set", "rounds=400", "--name", "r")
    in_the_middle_of_a_round(fleet, "r", 1, "b")
    before = fleet.rounds("r")
    interrupt(link, how)
    during = fleet.rounds("r")
    meanwhile = lines(fleet.at_server("r"))[before:during]
    assert len(meanwhile) > 1, "the others go on"
    assert any("b" in line["missed"] for line in meanwhile)
    assert meanwhile[-1]["clients"] == [0, 2]
    until(
        lambda: any(1 in line["clients"] for line in lines(fleet.at_server("r"))[during:]),
        "b counts again",
        fleet.collect_output,
    )
    assert run.process.poll() is None
