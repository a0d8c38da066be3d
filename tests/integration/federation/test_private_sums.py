"""Privacy between real processes over mutual TLS: shares of noise in masked reports, and ε in all records."""

import json
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from fleet import Fleet, experiment_file, lines
from test_killed import SITES, in_the_middle_of_a_round

from fedcm.core.participation import Everyone
from fedcm.federation.trust.audit import AUDIT_FILE
from fedcm.privacy.accountant import Accountant, Sampling

pytestmark = pytest.mark.federation

ROUNDS = 3
EPSILONS = [Accountant(Sampling.of(Everyone()), 2.0, 1e-4).compute_epsilon(count) for count in range(1, ROUNDS + 1)]


def private(path: Path, **federation: object) -> Path:
    return experiment_file(
        path,
        rounds=ROUNDS,
        client={"steps": 1500, "batch_size": 16, "lr": 0.01},
        privacy={"noise_multiplier": 2.0, "clip": 0.5, "delta": 1e-4},
        federation={"classes": 10, **federation},
    )


def test_noisy_sums_and_their_epsilon_survive_a_killed_training(
    fleet: Fleet, dealt: Callable[..., list[str]], tmp_path: Path
) -> None:
    dealt(private(tmp_path / "dealt.toml"), fleet, *SITES)
    fleet.start(*SITES)
    secure = private(tmp_path / "private.toml", secure_aggregation=True)
    run = fleet.follow("run", secure, "--name", "r")
    in_the_middle_of_a_round(fleet, "r", 1, "b")
    fleet.running["b"].part("training").kill()
    assert run.wait() == 0, run.output + fleet.collect_output()
    fetched = fleet.folder / "runs" / "r"
    assert [line["clients"] for line in lines(fetched)] == [[0, 1, 2]] * ROUNDS
    assert [line["epsilon"] for line in lines(fetched)] == EPSILONS
    assert [line["loss"] for line in lines(fetched)] == [None] * ROUNDS
    assert json.loads((fetched / "summary.json").read_text())["privacy"]["epsilon"] == EPSILONS[-1]
    signed = json.loads(json.loads((fetched / "signature.json").read_text())["record"])
    assert signed["privacy"] == {"epsilon": EPSILONS[-1], "delta": 1e-4}
    log = [json.loads(json.loads(line)["record"]) for line in (fleet.server / AUDIT_FILE).read_text().splitlines()]
    assert [event["epsilon"] for event in log if event["event"] == "round"] == EPSILONS
    assert not list(fleet.server.rglob("noise.key"))
    keys = [key for site in SITES for key in (fleet.site(site) / "state").rglob("noise.key")]
    assert [stat.S_IMODE(key.stat().st_mode) for key in keys] == [0o600] * 3
    assert len({key.read_bytes() for key in keys}) == 3
