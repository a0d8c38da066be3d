"""Validation data that are held back at the sites: the simulation's draw, exact sums, stopping, bad answers."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sites_here import SITES, InProcessChannel, make_experiment, make_federated, write_kits
from test_server import metrics, parameters, run_all, simulate

from fedcm.errors import UserError
from fedcm.federation.server.run import RunRequest, run_federation
from fedcm.federation.shares import SiteShares


def make_sites(tmp_path: Path, **tables: Any) -> tuple[Path, Any]:
    """Write kits, and return their folder and an experiment over the same clients, which a simulation can run too."""
    folder = write_kits(make_experiment(), tmp_path)
    clients = tmp_path / "clients"
    clients.mkdir()
    for site in SITES:
        (clients / f"{site}.npz").write_bytes((tmp_path / "dealt" / f"{site}.npz").read_bytes())
    data = {"source": str(clients), "validation": 0.25}
    return folder, make_experiment(**{"data": data, "split": {"kind": "natural"}, **tables})


def test_sites_hold_back_the_validation_examples_of_the_simulation(tmp_path: Path) -> None:
    """Parameters and counts have the same bits. The sites evaluate other pieces, so the last bits of losses differ."""
    evaluation = {"every": 2, "clients": 0.2, "metrics": ["accuracy", "top2"]}
    folder, chosen = make_sites(tmp_path, evaluation=evaluation)
    run = run_all(InProcessChannel(folder, make_federated(chosen)), chosen)
    assert parameters(run) == simulate(chosen, tmp_path)
    for ours, theirs in zip(metrics(run), metrics(tmp_path / "simulated"), strict=True):
        for key in ("validation_accuracy", "validation_top2", "clients_accuracy_mean"):
            assert ours.get(key) == theirs.get(key)
        if "validation_loss" in theirs:
            assert ours["validation_loss"] == pytest.approx(theirs["validation_loss"], rel=1e-6)
    assert "validation_accuracy" in metrics(run)[-1]
    summaries = [json.loads((path / "summary.json").read_text()) for path in (run, tmp_path / "simulated")]
    assert summaries[0]["best_round"] == summaries[1]["best_round"]
    assert (run / "best.safetensors").read_bytes() == (tmp_path / "simulated" / "best.safetensors").read_bytes()


def test_a_federation_stops_in_the_round_of_the_simulation(tmp_path: Path) -> None:
    folder, chosen = make_sites(tmp_path, rounds=40, evaluation={"every": 1}, stop={"target": 0.6})
    run = run_all(InProcessChannel(folder, make_federated(chosen)), chosen)
    assert parameters(run) == simulate(chosen, tmp_path)
    assert 1 < len(metrics(run)) == len(metrics(tmp_path / "simulated")) < 40


def test_a_resumed_run_stops_in_the_same_round(tmp_path: Path) -> None:
    folder, chosen = make_sites(tmp_path, rounds=40, evaluation={"every": 1}, stop={"target": 0.6})
    whole = run_all(InProcessChannel(folder, make_federated(chosen)), chosen, name="whole")
    request = RunRequest(folder / "server", "r", "lead@example.org", resume=False)
    channel = InProcessChannel(folder, make_federated(chosen))
    rounds = run_federation(request, make_federated(chosen), channel, print, lambda: False, lambda: None)
    next(rounds)
    rounds.close()
    again = run_all(InProcessChannel(folder, make_federated(chosen)), chosen, resume=True)
    assert parameters(again) == parameters(whole)
    assert [line.get("validation_loss") for line in metrics(again)] == [
        line.get("validation_loss") for line in metrics(whole)
    ]


def test_a_regression_is_validated_by_its_loss(tmp_path: Path) -> None:
    folder, chosen = make_sites(tmp_path, model={"name": "linear"})
    generator = np.random.default_rng(0)
    for site in SITES:
        x = generator.normal(size=(30, 5)).astype(np.float32)
        for path in (tmp_path / "clients", tmp_path / "dealt"):
            np.savez(path / f"{site}.npz", x=x, y=x.sum(1))
    (folder / "server" / "server.toml").unlink()
    run = run_all(InProcessChannel(folder, make_federated(chosen)), chosen)
    assert parameters(run) == simulate(chosen, tmp_path)
    ours, theirs = metrics(run)[-1], metrics(tmp_path / "simulated")[-1]
    assert ours["validation_loss"] == pytest.approx(theirs["validation_loss"], rel=1e-6)
    assert ours["validation_accuracy"] is None


def change(place: int, value: Any) -> Any:
    return lambda w: w | {"tallies": [[*row[:place], value, *row[place + 1 :]] for row in w["tallies"]]}


BAD: dict[str, tuple[Any, str]] = {
    "nan": (change(1, math.nan), "its sum of loss is nan"),
    "an infinite count": (change(2, math.inf), "its sum of accuracy is inf"),
    "no count": (change(2, None), "its sum of accuracy is None"),
    "more right than there are": (change(2, 1e9), "its sums of accuracy are"),
    "of nothing": (change(3, 0.0), "its sums of accuracy are"),
    "a weight that is no number": (change(0, "many"), "the weight of its sums is many"),
    "no weight": (change(0, 0), "the weight of its sums is 0"),
    "short rows": (lambda w: w | {"tallies": [row[:3] for row in w["tallies"]]}, "lists of 4 numbers"),
    "more rows": (lambda w: w | {"tallies": w["tallies"] * 1000}, "in 1 pieces"),
    "no rows": (lambda w: {key: w[key] for key in w if key != "tallies"}, "in 1 pieces"),
    "a wrong round": (lambda w: w | {"round": 7}, "answers round 7"),
    "more keys": (lambda w: w | {"outputs": [1.0]}, "unknown keys"),
    "silence": (lambda w: None, "it did not answer in time"),
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_sums_are_left_out_and_a_line_names_the_site(kind: str, tmp_path: Path) -> None:
    bad, reason = BAD[kind]
    folder, chosen = make_sites(tmp_path, rounds=2)
    lines = list[str]()

    def spoil(site: str, fields: dict[str, Any], arrays: Any) -> Any:
        spoiled = bad(fields) if site == "b" else fields
        return None if spoiled is None else (spoiled, arrays)

    run = run_all(InProcessChannel(folder, make_federated(chosen), spoil_scores=spoil), chosen, lines)
    silent = InProcessChannel(
        folder, make_federated(chosen), spoil_scores=lambda site, w, a: None if site == "b" else (w, a)
    )
    without = run_all(silent, chosen, name="without")
    assert [line for line in lines if line.startswith("round 1: b is left out of the evaluation: ") and reason in line]
    for key in ("validation_loss", "validation_accuracy"):
        assert metrics(run)[-1][key] == metrics(without)[-1][key]


def test_a_validation_without_a_quorum_has_no_result(tmp_path: Path) -> None:
    folder, chosen = make_sites(tmp_path, rounds=2)
    channel = InProcessChannel(folder, make_federated(chosen), spoil_scores=lambda site, w, a: None)
    assert "validation_loss" not in metrics(run_all(channel, chosen))[-1]


def test_validation_data_at_the_server_and_at_the_sites_are_rejected(tmp_path: Path) -> None:
    folder, chosen = make_sites(tmp_path)
    (folder / "server" / "server.toml").write_text('[validation]\nsource = "../dealt/test.npz"\n')
    with pytest.raises(UserError, match=r"the server has \d+ validation examples of its own .* got 0\.25"):
        run_all(InProcessChannel(folder, make_federated(chosen)), chosen)


def test_metrics_that_need_all_outputs_are_rejected(tmp_path: Path) -> None:
    folder, chosen = make_sites(tmp_path, evaluation={"every": 2, "metrics": ["accuracy", "f1"]})
    with pytest.raises(UserError, match=r"the metric 'f1' needs all outputs and labels of the validation data"):
        run_all(InProcessChannel(folder, make_federated(chosen)), chosen)
    assert not (folder / "server" / "runs" / "r").exists()


@pytest.mark.parametrize("examples", [1, 2, 3, 10, 29, 100, 1237])
@pytest.mark.parametrize("shares", [SiteShares(), SiteShares(0.1), SiteShares(None, 0.29), SiteShares(0.5, 0.5)])
def test_the_server_counts_what_the_site_draws(shares: SiteShares, examples: int) -> None:
    parts = shares.draw(examples, seed=3, client=1)
    counts = shares.count_training(examples), shares.count_tests(examples), shares.count_validation(examples)
    assert tuple(map(len, parts)) == counts
    assert counts[0] >= 1
    assert sorted(np.concatenate(parts).tolist()) == list(range(examples))
