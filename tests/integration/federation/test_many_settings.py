"""Experiments with many settings at once, over real processes, with the parameters and scores of the simulation."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from fleet import Fleet, bits, experiment_file, fedcm, lines

SITES = ("a", "b", "c")
SETTINGS: dict[str, Any] = {  # of both experiments
    "rounds": 12,
    "model": {"name": "resnet8", "width": 8},
    "algorithm": {"name": "fedcm", "alpha": 0.3},
    "participation": {"kind": "independent", "probability": 0.8},
    "client": {
        "steps": {"kind": "uniform", "low": 1, "high": 6},
        "batch_size": 32,
        "lr": 0.01,
        "clip": 5.0,
        "optimizer": {"name": "adamw", "betas": [0.8, 0.99]},
        "schedule": {"kind": "cosine", "warmup": 2},
        "step_schedule": {"kind": "polynomial", "final": 0.5},
    },
    "server": {"lr": 0.9, "schedule": {"kind": "step", "every": 4, "factor": 0.7}},
}
AUGMENT = ["flip", {"name": "crop", "padding": 1}]


@pytest.fixture(scope="module")
def three(shared: Fleet, tmp_path_factory: pytest.TempPathFactory) -> tuple[Fleet, Path]:
    """A running federation of three sites, and the folder of its clients' data for simulations."""
    folder = tmp_path_factory.mktemp("data")
    experiment = experiment_file(folder / "deal.toml")
    dealt = fedcm("federation", "deal", experiment, "--sites", ",".join(SITES), "-o", folder / "clients")
    assert dealt.code == 0, dealt.err
    shared.deal(folder / "clients", SITES)
    return shared.start(*SITES), folder / "clients"


def run_and_simulate(three: tuple[Fleet, Path], name: str, tmp_path: Path, **changes: Any) -> tuple[Path, Path]:
    """Run an experiment in the federation and as a simulation, compare the parameters, and return both folders."""
    fleet, clients = three
    data = {"source": str(clients), "augment": AUGMENT} | changes.pop("data", {})
    table = SETTINGS | {"data": data, "split": {"kind": "natural"}} | changes
    experiment = experiment_file(tmp_path / f"{name}.toml", **table)
    done = fleet.run(experiment, name, "--sites", ",".join(SITES))
    assert done.code == 0, done.err + fleet.collect_output()
    made = fedcm("run", experiment, "--runs-dir", tmp_path, "--name", name)
    assert made.code == 0, made.err
    real, simulated = fleet.folder / "runs" / name, tmp_path / name
    assert bits(real) == bits(simulated)
    assert (real / "model.safetensors").read_bytes() == (simulated / "model.safetensors").read_bytes()
    return real, simulated


def select(run: Path, *words: str) -> list[dict[str, Any]]:
    """Return the part of each line of the metrics whose keys begin with one of these words."""
    return [{key: value for key, value in line.items() if key.startswith(words)} for line in lines(run)]


@pytest.mark.federation
def test_personal_layers_and_scores_of_sites_are_those_of_the_simulation(
    three: tuple[Fleet, Path], tmp_path: Path
) -> None:
    real, simulated = run_and_simulate(
        three,
        "personal",
        tmp_path,
        model={"name": "resnet8", "width": 8, "personal": ["6.*"]},
        evaluation={"every": 2, "clients": 0.25, "personalise": 1, "metrics": ["top2", "accuracy"]},
        stop={"metric": "loss", "patience": 2, "min_delta": 0.2},
    )
    words = ("clients", "personal_", "steps", "loss", "client_lr", "server_lr", "test_")
    assert select(real, *words) == select(simulated, *words)
    results = [json.loads((run / "client_results.json").read_text()) for run in (real, simulated)]
    assert results[0] == results[1]
    assert results[0]["metric"] == "top2"
    assert len(results[0]["personal"]) == 3
    assert select(real, "clients_top2_worst")[1] != {}
    assert len(lines(real)) < SETTINGS["rounds"], "the rule ends the run early"


@pytest.mark.federation
def test_a_run_that_stops_by_the_sites_validation_data_is_that_of_the_simulation(
    three: tuple[Fleet, Path], tmp_path: Path
) -> None:
    real, simulated = run_and_simulate(
        three,
        "validated",
        tmp_path,
        data={"validation": 0.2},
        evaluation={"every": 1, "clients": 0.25, "metrics": ["accuracy", "top2"]},
        stop={"patience": 2, "min_delta": 0.03},
    )
    words = ("clients", "steps", "validation_accuracy", "validation_top2", "test_")
    assert select(real, *words) == select(simulated, *words)
    for ours, theirs in zip(lines(real), lines(simulated), strict=True):
        assert ours["validation_loss"] == pytest.approx(theirs["validation_loss"], rel=1e-6)
    assert (real / "best.safetensors").read_bytes() == (simulated / "best.safetensors").read_bytes()
    summaries = [json.loads((run / "summary.json").read_text()) for run in (real, simulated)]
    for key in ("best_round", "stopped_early", "clients"):
        assert summaries[0][key] == summaries[1][key]
    assert len(lines(real)) < SETTINGS["rounds"], "the rule ends the run early"
    report = fedcm("report", shutil.copytree(real, tmp_path / "fetched" / "validated"), "-o", tmp_path / "report")
    assert report.code == 0, report.err
