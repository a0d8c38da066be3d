"""A run that several sweeps use is in the table of each. Runs of older sweeps, with other names, can still be used."""

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from made_digests import make_test_digest
from scenes import finish_session, read_lines, resume_run, run_and_stop_after, run_to_end, small_experiment

from fedcm.reports.collect import RunCollection
from fedcm.reports.digest import read_digest, write_digest
from fedcm.reports.document import build_document
from fedcm.reports.figures.curves import draw_curves
from fedcm.reports.groups import Group, group_runs
from fedcm.reports.html.page import render_page
from fedcm.runs.folder import RunFolder
from fedcm.runs.session import Session
from fedcm.sweeps.cells import add_cell, read_cells
from fedcm.sweeps.grid import expand_grid
from fedcm.sweeps.tasks import make_tasks, record_cells

Write = Callable[..., Path]
Fedcm = Callable[..., Any]


def run_sweep(path: Path, runs: Path, *over: str, algorithms: Sequence[str] = ()) -> None:
    tasks = make_tasks(expand_grid(path, over=over, algorithms=algorithms), runs)
    record_cells(tasks)
    for task in tasks:
        if task.outcome == "missing":
            finish_session(Session.start(task.run.experiment, runs, task.run.name))


def list_labels(group: Group) -> list[str]:
    return [row.label for row in group.rows]


def test_a_reused_run_is_in_the_table_of_every_sweep(experiment: Write, tmp_path: Path) -> None:
    path, runs = experiment(rounds=1), tmp_path / "runs"  # its own α and η_l are 0.1
    run_sweep(path, runs, "algorithm.alpha=0.05,0.1")
    run_sweep(path, runs, "client.lr=0.1,0.2")
    run_sweep(path, runs, algorithms=["fedavg", "fedcm"])
    run_sweep(path, runs, "client.lr=0.1,0.2")  # once more changes nothing
    assert len(list(runs.glob("*/summary.json"))) == 4, "two of α, one more of η_l, FedAvg"
    digests = RunCollection().read_digests([runs])
    assert len(digests) == 4
    assert {group.title.partition(", by ")[2]: list_labels(group) for group in group_runs(digests)} == {
        "algorithm.alpha": ["FedCM (algorithm.alpha = 0.05)", "FedCM (algorithm.alpha = 0.1)"],
        "client.lr": ["FedCM (client.lr = 0.1)", "FedCM (client.lr = 0.2)"],
        "": ["FedCM", "FedAvg"],
    }
    for digest in digests:
        write_digest(digest, tmp_path / "digests" / f"{digest.name}.json")
        assert read_digest(tmp_path / "digests" / f"{digest.name}.json") == digest


def test_the_report_of_a_sweep_shows_only_its_own_table(experiment: Write, fedcm: Fedcm, tmp_path: Path) -> None:
    path, runs = experiment(rounds=1), tmp_path / "runs"
    run_sweep(path, runs, "algorithm.alpha=0.05,0.1")
    run_sweep(path, runs, "client.lr=0.1,0.2")
    answer = fedcm("sweep", path, "--over", "client.lr=0.1,0.2", "--runs-dir", runs)
    assert answer.code == 0, answer.err
    assert "2 of 2 runs are finished already" in answer.err
    table = (runs / "small-sweep-client.lr-report" / "tables" / "made-mlp-accuracy.csv").read_text()
    assert "FedCM (client.lr = 0.1)" in table
    assert "FedCM (client.lr = 0.2)" in table
    assert "alpha" not in table


@pytest.mark.parametrize(
    "text", ["{", "3", '["x"]', '[{"labels": 3}]', '[{"labels": {"a": 1}}]', '[{"published": "x"}]', '[{"other": 1}]']
)
def test_a_damaged_cells_file_is_ignored(experiment: Write, tmp_path: Path, text: str) -> None:
    run = run_to_end(experiment(rounds=1), tmp_path / "runs")
    (run / "cells.json").write_text(text)
    assert read_cells(run) == []
    (digest,) = RunCollection().read_digests([run])
    assert digest.other_cells == []
    add_cell(run, {"labels": {}}, {"labels": {"client.lr": "0.1"}})
    assert read_cells(run) == [{"labels": {"client.lr": "0.1"}}]


# settings in a report


def test_swept_model_settings_share_a_table() -> None:
    def of(hidden: list[int], algorithm: str) -> Any:
        digest = make_test_digest(algorithm, labels={"model.hidden": str(hidden)}, name=f"{algorithm}-{hidden}")
        model = {"name": "mlp", "hidden": hidden}
        return digest.model_copy(update={"experiment": digest.experiment | {"model": model}})

    (group,) = group_runs([of(hidden, name) for hidden in ([64, 32], [8]) for name in ("fedcm", "fedavg")])
    assert [cell.name for cell in group.cells] == ["model.hidden = [8]", "model.hidden = [64, 32]"]
    assert list_labels(group) == ["FedCM", "FedAvg"]


def test_values_that_are_not_plain_numbers_are_shown_with_their_setting() -> None:
    texts = ("1e-05", "[0.5, 0.6]", "dirichlet", "-1")
    (group,) = group_runs([make_test_digest(labels={"client.lr": text}, name=text) for text in texts])
    assert sorted(list_labels(group)) == sorted(f"FedCM (client.lr = {text})" for text in texts)


def test_the_page_shows_all_swept_settings() -> None:
    runs = [
        make_test_digest(
            labels={"algorithm.alpha": str(alpha), "client.lr": str(rate)},
            options={"alpha": alpha},
            name=f"{alpha}{rate}",
        )
        for alpha in (0.1, 0.2)
        for rate in (0.3, 0.4)
    ]
    text = render_page(build_document(runs, [], datetime.now(UTC)))
    for alpha in (0.1, 0.2):
        for rate in (0.3, 0.4):
            assert f"FedCM (algorithm.alpha = {alpha} · client.lr = {rate})" in text


@pytest.mark.parametrize("names", [["fedcm", "fedavg"], ["algorithm.alpha=0.03 fedcm", "data.source=$_{$ fedcm"]])
def test_the_legend_has_every_name(tmp_path: Path, names: list[str]) -> None:
    lines = [{"round": k, "loss": 1.0, "test_accuracy": 0.1 * k} for k in range(3)]
    picture = draw_curves(dict.fromkeys(names, lines), "a $_{$ title", tmp_path / "curves.svg").read_text()
    for name in names:
        assert f"<!-- {name} -->" in picture


# runs of older versions


@pytest.fixture
def old_sweep(npz: Path, tmp_path: Path) -> tuple[Path, Path, Path]:
    """Return an experiment, and a finished and a stopped run of it with names and labels as in older sweeps."""
    path, runs = tmp_path / "small.toml", tmp_path / "runs"
    for alpha, make in (("0.05", run_to_end), ("0.30", lambda *arguments: run_and_stop_after(2, *arguments))):
        changed = small_experiment(npz, algorithm={"name": "fedcm", "alpha": float(alpha)}, rounds=4)
        path.write_text(tomli_w.dumps(changed | {"cell": {"labels": {"algorithm.alpha": alpha}}}))
        make(path, runs, f"small-{alpha}-fedcm-seed3")
    path.write_text(tomli_w.dumps(small_experiment(npz, rounds=4)))
    return path, runs / "small-0.05-fedcm-seed3", runs / "small-0.30-fedcm-seed3"


@pytest.mark.slow
def test_runs_of_an_old_sweep_are_listed_reported_and_resumed(
    old_sweep: tuple[Path, Path, Path], fedcm: Fedcm, tmp_path: Path
) -> None:
    _, finished, stopped = old_sweep
    listed = json.loads(fedcm("runs", "--runs-dir", finished.parent, "--json").out)
    assert {run["name"]: run["state"] for run in listed} == {finished.name: "finished", stopped.name: "stopped"}
    (group,) = group_runs(RunCollection().read_digests([finished.parent]))
    assert list_labels(group) == ["FedCM (algorithm.alpha = 0.05)", "FedCM (algorithm.alpha = 0.30)"]
    assert fedcm("report", finished.parent, "-o", tmp_path / "report").code == 0
    resume_run(stopped)
    assert len(read_lines(stopped)) == 4


def test_a_sweep_reuses_the_runs_of_an_old_one(old_sweep: tuple[Path, Path, Path]) -> None:
    path, finished, stopped = old_sweep
    tasks = make_tasks(expand_grid(path, over=["algorithm.alpha=0.05,0.3,0.7"]), finished.parent)
    assert [task.folder.path for task in tasks[:2]] == [finished, stopped]
    assert [task.outcome for task in tasks] == ["finished", "stopped", "missing"]
    assert RunFolder(finished).read_summary() is not None
