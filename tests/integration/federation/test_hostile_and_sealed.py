"""One federation with most protections at once: a median against a hostile site, sealed states, and the audit log."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import final

import numpy as np
import pytest
from fleet import CommandResult, Fleet, experiment_file, fedcm, lines

from fedcm.federation.site.state_cipher import is_sealed

pytestmark = pytest.mark.federation

SITES = ("a", "b", "c", "d")
HOSTILE = "d"
LARGE = 2  # the round in which the hostile site also sends a report that is too large
ROUNDS = 4

# runs first in every process of the hostile site; see test_bad_sites
FLIPPED = f"""
import sys
from pathlib import Path
if "fedcm.federation.site.trainer" in sys.orig_argv:
    from fedcm.federation.site import trainer
    good = trainer.SiteTrainer.train
    def train(self, **request):
        fields, arrays = good(self, **request)
        factor = -1000 if request["round"] == {LARGE} else -2
        return fields, {{name: array * array.dtype.type(factor) for name, array in arrays.items()}}
    trainer.SiteTrainer.train = train
    trainer.main(Path(sys.orig_argv[-3]), int(sys.orig_argv[-2]), int(sys.orig_argv[-1]))
    sys.exit()
"""


@final
@dataclass
class Ended:
    """A federation whose run has ended."""

    fleet: Fleet
    done: CommandResult


@pytest.fixture(scope="module")
def ended(shared: Fleet, tmp_path_factory: pytest.TempPathFactory) -> Ended:
    """SCAFFOLD over three honest sites and one that turns its reports round; all sites seal their states."""
    from fedcm.config.experiment import load_experiment_file
    from fedcm.federation.provision.deal import deal

    place = tmp_path_factory.mktemp("hostile")
    (place / "sitecustomize.py").write_text(FLIPPED)
    experiment = experiment_file(
        place / "trial.toml",
        rounds=ROUNDS,
        split={"kind": "iid", "clients": len(SITES)},
        algorithm={"name": "scaffold"},
        server={"mean": "median"},
        federation={"classes": 10, "sites": list(SITES), "norm_ratio": 5.0, "min_cosine": -1.0},
    )
    dealt = deal(load_experiment_file(experiment), SITES, place / "dealt")
    shared.deal(dealt.files[0].parent, SITES)
    for site in SITES:
        _seal_states(shared.site(site))
    shared.start(*(site for site in SITES if site != HOSTILE))
    shared.start_site(HOSTILE, PYTHONPATH=str(place))
    return Ended(shared, shared.run(experiment, "r"))


def _seal_states(kit: Path) -> None:
    key = kit / "state.key"
    key.write_bytes(np.random.default_rng(0).bytes(32))
    key.chmod(0o600)
    settings = kit / "site.toml"
    text = settings.read_text()
    assert text.count("[storage]\n") <= 1
    text = text if "[storage]\n" in text else text + "\n[storage]\n"
    settings.write_text(text.replace("[storage]\n", '[storage]\nkey = "state.key"\n'))


def test_a_run_with_a_median_and_a_hostile_site_ends(ended: Ended) -> None:
    assert ended.done.code == 0, ended.done.err + ended.fleet.collect_output()
    rounds = lines(ended.fleet.at_server("r"))
    assert [line["round"] for line in rounds] == list(range(ROUNDS))
    losses = [line["loss"] for line in rounds]
    assert losses[-1] < losses[0], "the honest sites learn"


def test_the_record_names_the_hostile_site(ended: Ended) -> None:
    for line in lines(ended.fleet.at_server("r")):
        is_large = line["round"] == LARGE
        assert line["missed"] == []
        assert line.get("shortened", []) == ([HOSTILE] if is_large else [])
        assert line["influence"][HOSTILE]["cosine"] < -0.5
        assert all(line["influence"][site]["cosine"] > 0 for site in SITES if site != HOSTILE)
    log = ended.fleet.call("logs", "r").out
    assert f"round {LARGE}: ALARM: look at {HOSTILE}: the norm of its report is" in log
    assert f"round 0: ALARM: look at {HOSTILE}: " in log


def test_the_states_on_the_sites_disks_are_sealed(ended: Ended) -> None:
    for site in SITES:
        states = [file for file in (ended.fleet.site(site) / "state").rglob("round-*") if file.is_file()]
        assert states, f"{site} has no states"
        assert all(file.suffix == ".sealed" and is_sealed(file.read_bytes()) for file in states)


def test_the_audit_command_lists_the_rounds_and_the_alarms(ended: Ended) -> None:
    audit = fedcm("federation", "audit", ended.fleet.server)
    assert audit.code == 0, audit.out + audit.err
    assert f"{ROUNDS:7}  round\n" in audit.out
    named = [line for line in audit.out.splitlines() if line.startswith("alarm: ")]
    assert len(named) >= ROUNDS - 1
    assert all(f"look at {HOSTILE}: " in line for line in named)
    table = json.loads(fedcm("federation", "audit", ended.fleet.server, "--json").out)
    assert (table["problem"], table["events"]["round"]) == ("", ROUNDS)
    fetched = fedcm("federation", "audit", ended.fleet.folder / "runs" / "r", "--kit", ended.fleet.admin)
    assert fetched.code == 0, fetched.out + fetched.err
