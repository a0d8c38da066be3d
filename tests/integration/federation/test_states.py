"""Client states stay in step with the server whatever dies: SCAFFOLD's c is the mean of all c_i at the end."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from fleet import Fleet, bits, experiment_file, lines, until
from safetensors.numpy import load_file
from scenes import run_to_end

from fedcm.federation.terms import read_record

pytestmark = pytest.mark.federation

SITES = ("a", "b", "c")
ROUNDS = 6
SLOW = """
import sys, time
from pathlib import Path
if "fedcm.federation.site.trainer" in sys.orig_argv:
    from fedcm.federation.site import trainer
    good = trainer.SiteTrainer.train
    def train(self, **request):
        time.sleep(3)
        return good(self, **request)
    trainer.SiteTrainer.train = train
    trainer.main(Path(sys.orig_argv[-3]), int(sys.orig_argv[-2]), int(sys.orig_argv[-1]))
    sys.exit()
"""


@pytest.fixture
def experiment(tmp_path: Path) -> Path:
    links = {"classes": 10, "quorum": 0.3, "wait": 10, "drop_after": 100}
    return experiment_file(tmp_path / "trial.toml", rounds=ROUNDS, algorithm={"name": "scaffold"}, federation=links)


@pytest.fixture
def three(fleet: Fleet, dealt: Callable[..., list[str]], experiment: Path, tmp_path: Path) -> Fleet:
    """The last site is slow: the others have answered when a round has not counted yet."""
    dealt(experiment, fleet, *SITES)
    (tmp_path / "slow").mkdir()
    (tmp_path / "slow" / "sitecustomize.py").write_text(SLOW)
    fleet.start("a", "b")
    fleet.start_site("c", PYTHONPATH=str(tmp_path / "slow"))
    return fleet


def get_state_folder(fleet: Fleet, site: str, run: str) -> Path:
    """Return the folder of a site's states of a run."""
    return fleet.site(site) / "state" / read_record(fleet.at_server(run)).id


def answered_but_not_counted(fleet: Fleet, site: str, run: str, round: int) -> None:
    fleet.wait_for_round(run, round)
    until(
        (get_state_folder(fleet, site, run) / f"round-{round:06d}.safetensors").exists,
        f"round {round} of {site}",
        fleet.collect_output,
    )
    assert fleet.rounds(run) == round, "the slow site has answered already"


def assert_in_step(fleet: Fleet, run: str) -> None:
    """Compare c with the mean of the c_i of the rounds that counted last, in float64."""
    counted: dict[int, int] = {}
    for line in lines(fleet.at_server(run)):
        counted |= dict.fromkeys(line["clients"], line["round"])
    checkpoint = fleet.at_server(run) / "checkpoints" / f"round-{ROUNDS:06d}.safetensors"
    control = load_file(checkpoint)["server.control"].astype(np.float64)
    own = [
        load_file(get_state_folder(fleet, site, run) / f"round-{counted[client]:06d}.safetensors")["control"].astype(
            np.float64
        )
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
    assert run.wait() == 0, run.output + three.collect_output()
    assert_in_step(three, "r")
    assert bits(three.at_server("r")) == bits(run_to_end(experiment, tmp_path)), "everybody counted in every round"


def test_c_stays_the_mean_when_a_site_dies_after_it_answered(three: Fleet, experiment: Path) -> None:
    run = three.follow("run", experiment, "--name", "r")
    answered_but_not_counted(three, "a", "r", 1)
    three.running["a"].kill()
    three.wait_for_round("r", 3)
    three.start_site("a")
    assert run.wait() == 0, run.output + three.collect_output()
    assert_in_step(three, "r")


def test_c_stays_the_mean_when_an_answer_comes_too_late(three: Fleet, experiment: Path) -> None:
    """The state of that round is on the site's disk, but must not be used."""
    done = three.run(experiment, "r", "--set", "federation.wait=1", "--set", "federation.retry_after=1")
    assert done.code == 0, done.err + three.collect_output()
    assert any(line["missed"] for line in lines(three.at_server("r")))
    assert_in_step(three, "r")
