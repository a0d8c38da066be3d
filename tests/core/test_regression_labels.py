"""Runs with number labels, from the experiment to the report: the test loss replaces the accuracy everywhere."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w
from scenes import Answer, forget_manifest, load_summary, read_lines, run_to_end, small_experiment

from fedcm.api.progress import show_progress

Fedcm = Callable[..., Answer]


@pytest.fixture
def regression(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that writes an experiment with 240 training and 80 test examples and float labels."""
    draw = np.random.default_rng(0)
    x = draw.normal(size=(320, 6)).astype(np.float32)
    y = (x @ draw.normal(size=6) + 0.1 * draw.normal(size=320)).astype(np.float32)
    np.savez(tmp_path / "floats.npz", x_train=x[:240], y_train=y[:240], x_test=x[240:], y_test=y[240:])

    def write(**changes: Any) -> Path:
        path = tmp_path / "small.toml"
        settings = {"split": {"kind": "iid", "clients": 12}, "evaluation": {"every": 2}} | changes
        path.write_text(tomli_w.dumps(small_experiment(tmp_path / "floats.npz", **settings)))
        return path

    return write


def make_runs(write: Callable[..., Path], folder: Path, seeds: tuple[int, ...] = (3,)) -> dict[str, Path]:
    """Run FedCM and FedAvg under the names that `fedcm compare` uses."""
    runs = {}
    for algorithm in ({"name": "fedavg"}, {"name": "fedcm", "alpha": 0.1}):
        for seed in seeds:
            name = f"small-{algorithm['name']}-seed{seed}"
            runs[name] = run_to_end(write(algorithm=algorithm, seed=seed), folder, name)
    return runs


def compute_late_loss(folder: Path) -> float:
    """Return the test loss of the last two of 12 rounds, of which the last is evaluated."""
    return read_lines(folder)[-1]["test_loss"]


def test_the_summary_has_three_test_losses(regression: Callable[..., Path], tmp_path: Path) -> None:
    path = run_to_end(regression(), tmp_path / "runs")
    losses = [line["test_loss"] for line in read_lines(path) if "test_loss" in line]
    found = load_summary(path)
    assert found["accuracy"] is None
    assert found["test_losses"]["last"] == found["test_losses"]["mean_last"] == losses[-1]
    assert found["test_losses"]["best"] == min(losses)


@pytest.mark.slow
def test_a_comparison_shows_and_plots_the_test_loss(
    fedcm: Fedcm, regression: Callable[..., Path], tmp_path: Path
) -> None:
    answer = fedcm("compare", regression(), "--algorithms", "fedavg,fedcm", "--runs-dir", tmp_path / "runs")
    assert answer.code == 0, answer.err
    assert "test loss (lower is better)" in answer.out
    assert "%" not in answer.out
    for name in ("fedavg", "fedcm"):
        folder = tmp_path / "runs" / f"small-{name}-seed3"
        (row,) = (line.split() for line in answer.out.splitlines() if line.split()[:1] == [name])
        assert float(row[1]) == pytest.approx(compute_late_loss(folder), rel=1e-3)
    assert list((tmp_path / "runs" / "small-report" / "figures").glob("*-test-loss.png"))
    page = (tmp_path / "runs" / "small-report" / "index.html").read_text()
    assert "has the lowest test loss in this table (one seed)" in page


def test_a_comparison_over_seeds_has_mean_and_deviation_of_the_losses(
    fedcm: Fedcm, regression: Callable[..., Path], tmp_path: Path
) -> None:
    runs = make_runs(regression, tmp_path / "runs", seeds=(3, 4, 5))
    words = ("--algorithms", "fedavg,fedcm", "--seeds", 3, "--runs-dir", tmp_path / "runs")
    answer = fedcm("compare", regression(), *words)
    assert answer.code == 0, answer.err
    assert "test loss, lower is better" in answer.out
    assert "mean₂" in answer.out
    for name in ("fedavg", "fedcm"):
        losses = [compute_late_loss(path) for run, path in runs.items() if name in run]
        (row,) = (line for line in answer.out.splitlines() if line.split()[:1] == [name])
        mean, deviation = re.findall(r"(\S+) ± (\S+)", row)[0]
        assert float(mean) == pytest.approx(np.mean(losses), rel=1e-3)
        assert float(deviation) == pytest.approx(np.std(losses, ddof=1), rel=0.06)


def test_runs_are_listed_with_their_losses(fedcm: Fedcm, regression: Callable[..., Path], tmp_path: Path) -> None:
    path = run_to_end(regression(), tmp_path / "runs")
    losses = [line["test_loss"] for line in read_lines(path) if "test_loss" in line]
    out = fedcm("runs", "--runs-dir", tmp_path / "runs").out
    last, best = re.findall(r"loss (\d\S+)", out)
    assert float(last) == pytest.approx(losses[-1], rel=1e-3)
    assert float(best) == pytest.approx(min(losses), rel=1e-3)
    (state,) = json.loads(fedcm("runs", "--runs-dir", tmp_path / "runs", "--json").out)
    assert (state["last_test_loss"], state["best_test_loss"]) == (losses[-1], min(losses))
    assert (state["last_accuracy"], state["best_accuracy"]) == (None, None)


def test_the_report_shows_losses_from_folders_and_from_digests(
    fedcm: Fedcm, regression: Callable[..., Path], tmp_path: Path
) -> None:
    runs = make_runs(regression, tmp_path / "runs")
    assert fedcm("report", tmp_path / "runs", "-o", tmp_path / "one").code == 0
    assert fedcm("report", tmp_path / "runs", "--digests", tmp_path / "digests").code == 0
    assert fedcm("report", tmp_path / "digests", "-o", tmp_path / "two").code == 0
    for out in ("one", "two"):
        html = (tmp_path / out / "index.html").read_text()
        assert "Nothing has been evaluated" not in html
        for path in runs.values():
            assert f"{compute_late_loss(path):#.4g}" in html
        (table,) = (tmp_path / out / "tables").glob("*-test-loss.md")
        assert "test loss, mean of the last 2 rounds, one seed" in table.read_text()


def remove_test_losses(folder: Path) -> None:
    """Turn the summary into one of an older version, without test losses."""
    summary = load_summary(forget_manifest(folder))
    del summary["test_losses"]
    (folder / "summary.json").write_text(json.dumps(summary))


def test_folders_of_older_versions_show_losses_too(
    fedcm: Fedcm, regression: Callable[..., Path], tmp_path: Path
) -> None:
    runs = make_runs(regression, tmp_path / "runs")
    words = ("compare", regression(), "--algorithms", "fedavg,fedcm", "--runs-dir", tmp_path / "runs")
    before = fedcm(*words).out
    for path in runs.values():
        remove_test_losses(path)
    assert fedcm(*words).out == before
    assert (
        fedcm("resume", runs["small-fedcm-seed3"]).out.count(f"{compute_late_loss(runs['small-fedcm-seed3']):#.4g}") > 0
    )


def test_the_progress_line_has_the_test_loss(capsys: pytest.CaptureFixture[str]) -> None:
    metrics = {"round": 0, "loss": 0.5, "test_loss": 0.25, "test_accuracy": None}
    assert list(show_progress(iter([metrics]), total=1)) == [metrics]
    assert "test loss 0.25" in capsys.readouterr().err
