"""What sites keep stays in step with the server, whatever dies: SCAFFOLD's c is the mean of all c_i at the end."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from fleet import Fleet, bits, experiment_file, lines, until
from safetensors.numpy import load_file
from scenes import whole

from fedcm.federation.terms import read_noted

pytestmark = pytest.mark.federation

SITES = ("a", "b", "c")
ROUNDS = 6
SLOW = """
import sys, time
from pathlib import Path
if "fedcm.federation.site.trainer" in sys.orig_argv:
    from fedcm.federation import trainer
    good = trainer.Site.train
    def train(self, **asked):
        time.sleep(3)
        return good(self, **asked)
    trainer.Site.train = train
    trainer.main(Path(sys.orig_argv[-3]), int(sys.orig_argv[-2]), int(sys.orig_argv[-1]))
    sys.exit()
"""


@pytest.fixture
def experiment(tmp_path: Path) -> Path:
    links = {"classes": 10, "quorum": 0.3, "wait": 10, "drop_after": 100}
    return experiment_file(tmp_path / "trial.toml", rounds=ROUNDS, algorithm={"name": "scaffold"}, federation=links)


@pytest.fixture
def three(fleet: Fleet, dealt: Callable[..., list[str]], experiment: Path, tmp_path: Path) -> Fleet:
    """The last site takes long for a round: the others have answered by then, and the round has not counted."""
    dealt(experiment, fleet, *SITES)
    (tmp_path / "slow").mkdir()
    (tmp_path / "slow" / "sitecustomize.py").write_text(SLOW)
    fleet.start("a", "b")
    fleet.start_site("c", PYTHONPATH=str(tmp_path / "slow"))
    return fleet


def kept(fleet: Fleet, site: str, run: str) -> Path:
    """Where a site keeps what it keeps of a run."""
    return fleet.site(site) / "state" / read_noted(fleet.at_server(run)).id


def answered_but_not_counted(fleet: Fleet, site: str, run: str, round: int) -> None:
    fleet.reaches(run, round)
    until((kept(fleet, site, run) / f"round-{round:06d}.safetensors").exists, f"round {round} of {site}", fleet.told)
    assert fleet.rounds(run) == round, "the slow site has answered already"


def assert_in_step(fleet: Fleet, run: str) -> None:
    """c against the mean of the c_i of the rounds that counted last, in float64."""
    counted: dict[int, int] = {}
    for line in lines(fleet.at_server(run)):
        counted |= dict.fromkeys(line["clients"], line["round"])
    checkpoint = fleet.at_server(run) / "checkpoints" / f"round-{ROUNDS:06d}.safetensors"
    control = load_file(checkpoint)["server.control"].astype(np.float64)
    own = [
        load_file(kept(fleet, site, run) / f"round-{counted[client]:06d}.safetensors")["control"].astype(np.float64)
        if client in counted
        else np.zeros_like(control)
        for client, site in enumerate(SITES)
    ]
    # each round rounds the sum, the change and the report once: a few units in the last place of the largest
    largest = max(np.abs(c).max() for c in own)
    assert largest > 0
    np.testing.assert_allclose(control, np.mean(own, 0), rtol=0, atol=4 * ROUNDS * np.finfo(np.float32).eps * largest)


def test_c_stays_the_mean_when_the_server_dies_before_answers_count(
    three: Fleet, experiment: Path, tmp_path: Path
) -> None:
    run = three.follow("run", experiment, "--name", "r")
    for round in (1, 3):
        answered_but_not_counted(three, "a", "r", round)
        three.running["server"].kill()
        assert three.rounds("r") == round, "the round has not counted"
        three.start_server()
    assert run.ends() == 0, run.said + three.told()
    assert_in_step(three, "r")
    assert bits(three.at_server("r")) == bits(whole(experiment, tmp_path)), "everybody counted in every round"


def test_c_stays_the_mean_when_a_site_dies_after_it_answered(three: Fleet, experiment: Path) -> None:
    run = three.follow("run", experiment, "--name", "r")
    answered_but_not_counted(three, "a", "r", 1)
    three.running["a"].kill()
    three.reaches("r", 3)
    three.start_site("a")
    assert run.ends() == 0, run.said + three.told()
    assert_in_step(three, "r")


def test_c_stays_the_mean_when_a_site_is_left_out_of_a_round_that_it_did(three: Fleet, experiment: Path) -> None:
    """Its answer comes too late: the state of that round is on its disk, and is not the one to go on from."""
    done = three.run(experiment, "r", "--set", "federation.wait=1", "--set", "federation.retry_after=1")
    assert done.code == 0, done.err + three.told()
    assert any(line["missed"] for line in lines(three.at_server("r")))
    assert_in_step(three, "r")
