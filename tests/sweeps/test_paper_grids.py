"""The grids of the paper's tables have the paper's settings and figures, cell by cell."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from made_digests import ALGORITHMS, PAPER, PAPER_BY_ALPHA

from fedcm.algorithms.registry import get_algorithm_name
from fedcm.config.sections import Experiment
from fedcm.sweeps.grid import expand_grid
from fedcm.sweeps.paper_grids import list_grid_files

SETTINGS = {"I": (100, 0.1), "II": (500, 0.02)}  # clients, and the probability to take part
PAPER_100 = {  # CIFAR-100, in the order of ALGORITHMS
    ("I", "iid"): (58.16, 49.18, 54.91, 55.68, 53.52),
    ("I", "dirichlet"): (57.96, 47.76, 54.67, 55.31, 52.95),
    ("II", "iid"): (56.68, 40.93, 52.31, 47.91, 48.19),
    ("II", "dirichlet"): (56.64, 40.08, 52.24, 47.71, 47.98),
}
FEDADAM = {"beta1": pytest.approx(1 - 0.1), "tau": 0.01}


def method_10(algorithm: str, setting: str, split: str) -> dict[str, Any]:
    """Return the paper's settings on CIFAR-10: epochs, batch size, decay of the rate, server rate, hyperparameters."""
    alpha = 0.1 if (setting, split) == ("I", "dirichlet") else 0.05
    own = {"fedcm": {"alpha": alpha}, "fedadam": FEDADAM, "feddyn": {"alpha": 0.01}}.get(algorithm, {})
    decay = 0.9995 if algorithm == "feddyn" else 0.998
    return {"epochs": 5, "batch": 50, "decay": decay, "server": server(algorithm), "own": own}


def method_100(algorithm: str, setting: str, split: str) -> dict[str, Any]:
    dyn = 0.01 if setting == "I" else 0.001
    own = {"fedcm": {"alpha": 0.05}, "fedadam": FEDADAM, "feddyn": {"alpha": dyn}}.get(algorithm, {})
    epochs = 5 if (algorithm, setting) == ("fedcm", "II") else 2
    batch = 50 if algorithm in ("fedcm", "fedadam") else 20
    decay = 0.999 if algorithm == "feddyn" else 0.998
    return {"epochs": epochs, "batch": batch, "decay": decay, "server": server(algorithm), "own": own}


def server(algorithm: str) -> float:
    return 0.1 if algorithm == "fedadam" else 1.0


def method_of(experiment: Experiment) -> dict[str, Any]:
    own = dataclasses.asdict(experiment.algorithm)
    named = {"fedcm": ("alpha",), "fedadam": ("beta1", "tau"), "feddyn": ("alpha",)}
    return {
        "epochs": experiment.client.epochs,
        "batch": experiment.client.batch_size,
        "decay": experiment.client.lr_decay,
        "server": experiment.server.lr,
        "own": {key: own[key] for key in named.get(get_algorithm_name(experiment.algorithm), ())},
    }


def assert_scale_of_the_paper(experiment: Experiment, source: str, setting: str, split: str) -> None:
    clients, probability = SETTINGS[setting]
    assert (experiment.data.source, experiment.model.name, experiment.rounds) == (source, "resnet18", 4000)
    assert experiment.participation == type(experiment.participation)(probability=probability)
    assert type(experiment.participation).__name__ == "Independent"
    assert (type(experiment.split).__name__.lower(), experiment.split.clients) == (split, clients)
    assert split == "iid" or experiment.split.concentration == 0.6
    client = experiment.client
    assert (client.lr, client.weight_decay, client.clip, client.steps) == (0.1, 0.001, None, None)
    assert client.weight_decay_at == "loss"


def table(name: str, scale: str = "full") -> list[Experiment]:
    (path,) = list_grid_files(name, scale)
    return [run.experiment for run in expand_grid(Path(path))]


@pytest.mark.parametrize(
    ("name", "source", "figures", "method"),
    [("table1", "cifar10", PAPER, method_10), ("table2", "cifar100", PAPER_100, method_100)],
)
def test_every_cell_has_the_papers_settings_and_figure(name: str, source: str, figures: Any, method: Any) -> None:
    cells = {}
    for experiment in table(name):
        labels = experiment.cell.labels
        algorithm = get_algorithm_name(experiment.algorithm)
        assert_scale_of_the_paper(experiment, source, **labels)
        assert method_of(experiment) == method(algorithm, **labels), (algorithm, labels)
        cells[labels["setting"], labels["split"], algorithm] = experiment.cell.published
    assert cells == {
        (*cell, algorithm): figure
        for cell, row in figures.items()
        for algorithm, figure in zip(ALGORITHMS, row, strict=True)
    }


def test_the_table_of_alphas_has_the_papers_settings_and_figures() -> None:
    runs = table("table3")
    for experiment in runs:
        assert_scale_of_the_paper(experiment, "cifar10", "I", "dirichlet")
        assert method_of(experiment) == method_10("fedcm", "I", "dirichlet") | {"own": method_of(experiment)["own"]}
    assert {method_of(run)["own"]["alpha"]: run.cell.published for run in runs} == PAPER_BY_ALPHA


@pytest.mark.parametrize(
    ("name", "figures", "method"), [("table1", PAPER, method_10), ("table2", PAPER_100, method_100)]
)
def test_the_small_scale_has_the_papers_methods_and_figures(name: str, figures: Any, method: Any) -> None:
    for experiment in table(name, "mini"):
        labels, algorithm = experiment.cell.labels, get_algorithm_name(experiment.algorithm)
        assert method_of(experiment) == method(algorithm, **labels), (algorithm, labels)
        row = figures[labels["setting"], labels["split"]]
        assert experiment.cell.published == row[ALGORITHMS.index(algorithm)]
