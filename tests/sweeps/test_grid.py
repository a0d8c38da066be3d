"""A grid expands to every combination of algorithms, variants and seeds, with exceptions for some cells."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from scenes import small_experiment

from fedcm.algorithms import FedCM
from fedcm.errors import UserError
from fedcm.sweeps.grid import GridRun, expand_grid, select_by_name

Write = Callable[..., Path]
AXES = {
    "setting": {"I": {"participation": {"probability": 0.5}}, "II": {"participation": {"probability": 0.2}}},
    "split": {"iid": {"split": {"kind": "iid"}}, "dirichlet": {"split": {"kind": "dirichlet", "concentration": 0.6}}},
}


@pytest.fixture
def grid(tmp_path: Path, npz: Path) -> Write:
    def write(grid: dict[str, Any], **changes: Any) -> Path:
        path = tmp_path / "grid.toml"
        path.write_text(tomli_w.dumps(small_experiment(npz, **changes) | {"grid": grid}))
        return path

    return write


def by_name(runs: list[GridRun]) -> dict[str, Any]:
    return {run.name: run.experiment for run in runs}


def test_a_grid_expands_to_every_combination_ordered_by_seed(grid: Write) -> None:
    runs = expand_grid(grid({"algorithms": ["fedavg", "fedcm"], "seeds": 2, "axes": AXES}))
    assert len(runs) == 2 * 2 * 2 * 2
    assert [run.experiment.seed for run in runs] == [3] * 8 + [4] * 8
    assert runs[0].name == "small-i-iid-fedavg-seed3"
    experiments = by_name(runs)
    assert experiments["small-ii-iid-fedavg-seed3"].participation.probability == 0.2
    assert type(experiments["small-ii-iid-fedavg-seed3"].split).__name__ == "IID"
    assert experiments["small-i-dirichlet-fedcm-seed4"].cell.labels == {"setting": "I", "split": "dirichlet"}


def test_without_a_grid_there_is_one_run_per_requested_algorithm(experiment: Write) -> None:
    assert [run.name for run in expand_grid(experiment())] == ["small-fedcm-seed3"]
    runs = expand_grid(experiment(), algorithms=["fedavg", "fedcm"], seeds=2)
    assert [run.name for run in runs] == [
        *("small-fedavg-seed3", "small-fedcm-seed3"),
        *("small-fedavg-seed4", "small-fedcm-seed4"),
    ]


def test_exceptions_apply_only_to_their_cells_and_a_later_one_wins(grid: Write) -> None:
    exceptions = [
        {"where": {"algorithm": "fedcm"}, "set": {"algorithm": {"alpha": 0.3}}},
        {"where": {"algorithm": "fedcm", "setting": ["II"]}, "set": {"algorithm": {"alpha": 0.05}, "rounds": 7}},
        {"where": {"setting": "I", "split": "iid"}, "skip": True},
        {"where": {"split": "iid"}, "seeds": 1},
    ]
    path = grid({"algorithms": ["fedavg", "fedcm"], "seeds": 2, "axes": AXES, "exceptions": exceptions})
    experiments = by_name(expand_grid(path))
    assert experiments["small-i-dirichlet-fedcm-seed3"].algorithm == FedCM(0.3)
    assert experiments["small-ii-dirichlet-fedcm-seed3"].algorithm == FedCM(0.05)
    assert experiments["small-ii-dirichlet-fedcm-seed3"].rounds == 7
    assert experiments["small-ii-dirichlet-fedavg-seed3"].rounds == 12
    assert not any("-i-iid-" in name for name in experiments)
    assert "small-ii-iid-fedavg-seed3" in experiments
    assert "small-ii-iid-fedavg-seed4" not in experiments
    assert "small-ii-iid-fedavg-seed5" in by_name(expand_grid(path, seeds=3)), "a requested number applies to all"


def test_overrides_win_over_variants_and_exceptions(grid: Write) -> None:
    exceptions = [{"where": {"setting": "II"}, "set": {"rounds": 7}}]
    runs = expand_grid(grid({"axes": AXES, "exceptions": exceptions}), ["rounds=3", "participation.probability=0.9"])
    assert {run.experiment.rounds for run in runs} == {3}
    assert {run.experiment.participation.probability for run in runs} == {0.9}


def test_published_figures_are_assigned_to_their_cells(grid: Write) -> None:
    published = {"I iid": {"fedcm": 87.9}, "II dirichlet": {"fedavg": 73.9}}
    experiments = by_name(expand_grid(grid({"algorithms": ["fedavg", "fedcm"], "axes": AXES, "published": published})))
    assert experiments["small-i-iid-fedcm-seed3"].cell.published == 87.9
    assert experiments["small-i-iid-fedavg-seed3"].cell.published is None
    assert experiments["small-ii-dirichlet-fedavg-seed3"].cell.published == 73.9


def test_swept_settings_are_axes_that_multiply(experiment: Write) -> None:
    runs = expand_grid(experiment(), over=["algorithm.alpha=0.05,1.0", "client.lr=0.1, 0.2"])
    assert [(run.experiment.algorithm.alpha, run.experiment.client.lr) for run in runs] == [
        *((0.05, 0.1), (0.05, 0.2)),
        *((1.0, 0.1), (1.0, 0.2)),
    ]
    assert runs[0].experiment.cell.labels == {"algorithm.alpha": "0.05", "client.lr": "0.1"}
    assert runs[0].name == "small-algorithm.alpha=0.05-client.lr=0.1-fedcm-seed3"


def test_runs_are_selected_by_a_part_of_their_name(grid: Write) -> None:
    runs = expand_grid(grid({"axes": AXES, "algorithms": ["fedavg", "fedcm"]}))
    assert [run.name for run in select_by_name(runs, "FedCM")] == [run.name for run in runs if "fedcm" in run.name]
    assert select_by_name(runs, "") == runs
    with pytest.raises(UserError, match="no run has 'fedcn'"):
        select_by_name(runs, "fedcn")


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"axis": {}}, "grid.axis"),
        ({"axes": {"setting": {}}}, "must have a variant"),
        ({"axes": AXES, "exceptions": [{"where": {"seting": "I"}}]}, "setting"),
        ({"axes": AXES, "exceptions": [{"where": {"setting": "III"}}]}, "'III'"),
        ({"axes": AXES, "published": {"I": {"fedcm": 1.0}}}, "grid.published"),
        ({"axes": AXES, "exceptions": [{"where": {}, "skip": True}]}, "skip them all"),
        ({"seeds": 0}, "grid.seeds"),
        ({"axes": {"a": {"b": {"client": {"lrr": 1}}}}}, "lr"),
    ],
)
def test_bad_grids_raise_one_sentence(grid: Write, table: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        expand_grid(grid(table))


@pytest.mark.parametrize("over", ["client.lr", "client.lr=0.1,,0.2", "client.lr=0.1,0.1", "=1"])
def test_bad_options_of_a_sweep_raise(experiment: Write, over: str) -> None:
    with pytest.raises(UserError, match="a setting to sweep must"):
        expand_grid(experiment(), over=[over])


def test_run_rejects_a_grid_and_names_the_command_for_it(grid: Write, fedcm: Callable[..., Any]) -> None:
    answer = fedcm("run", grid({"axes": AXES}))
    assert answer.code == 2
    assert "fedcm compare" in answer.err
