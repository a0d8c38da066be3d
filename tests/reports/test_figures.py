"""Figures are written, their axes are readable, and every curve has its own style."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_digests import make_crowd, make_decentralised_digest, make_loss_digest, make_test_digest
from matplotlib.figure import Figure

from fedcm.data.partition import measure_label_mix
from fedcm.errors import UserError
from fedcm.reports.digest import Digest
from fedcm.reports.document import build_document
from fedcm.reports.figures.curves import draw_curves
from fedcm.reports.figures.group_curves import draw_group
from fedcm.reports.figures.label_mix import draw_label_mix
from fedcm.reports.figures.style import choose_style

NAMES = ["fedavg", "fedcm", "fedadam", "scaffold", "feddyn", "my:Own", "my:Other"]


def make_metrics(rounds: int) -> list[dict[str, Any]]:
    return [{"round": r, "loss": None if r == 2 else 1 / (r + 1), "test_accuracy": r / 10} for r in range(rounds)]


@pytest.mark.parametrize("suffix", [".png", ".pdf", ".svg"])
def test_draw_curves_writes_every_format(tmp_path: Path, suffix: str) -> None:
    path = draw_curves({name: make_metrics(5) for name in NAMES}, "title", tmp_path / f"curves{suffix}")
    assert path.stat().st_size > 1000


def test_every_curve_has_its_own_style_and_algorithms_keep_theirs() -> None:
    looks = [tuple(map(str, choose_style(name, NAMES).values())) for name in NAMES]
    assert len(set(looks)) == len(NAMES)
    assert choose_style("fedcm", NAMES) == choose_style("fedcm", ["fedcm"])


@pytest.mark.parametrize(("clients", "classes"), [(10, 10), (250, 100), (3, 1)])
def test_draw_label_mix_writes_a_png(tmp_path: Path, clients: int, classes: int) -> None:
    counts = np.random.default_rng(0).integers(1, 9, (clients, classes))
    assert draw_label_mix(counts, "title", tmp_path / "mix.png").read_bytes().startswith(b"\x89PNG")


def test_label_mix_distance_is_0_for_equal_clients_and_grows() -> None:
    same = measure_label_mix(np.full((4, 5), 3), np.full(4, 15))
    assert same["mean_distance"] == pytest.approx(0)
    assert same["examples"] == 60
    apart = measure_label_mix(np.eye(4, dtype=int) * 10, np.full(4, 10))
    assert apart["mean_distance"] == pytest.approx(0.75)
    assert apart["mean_classes"] == 1


def test_unknown_format_is_rejected_and_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"\.png"):
        draw_curves({"fedcm": make_metrics(3)}, "title", tmp_path / "curves.xyz")
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """Return the list of figures that the test writes."""
    written: list[Figure] = []
    save = Figure.savefig

    def record(figure: Figure, *args: Any, **options: Any) -> None:
        save(figure, *args, **options)  # computes the ticks
        written.append(figure)

    monkeypatch.setattr(Figure, "savefig", record)
    return written


def draw(folder: Path, *runs: Digest) -> None:
    document = build_document(runs, [], datetime.now(UTC))
    for group in document.groups:
        draw_group(group, document.styles, folder, "name")


def list_tick_labels(axis: Any) -> list[str]:
    return [
        label.get_text() for label in (*axis.get_ticklabels(), *axis.get_ticklabels(minor=True)) if label.get_text()
    ]


def test_every_figure_has_a_title(figures: list[Figure], tmp_path: Path) -> None:
    draw(tmp_path, make_test_digest(), make_test_digest("fedavg"))
    draw_curves({"fedcm": make_metrics(3)}, "two runs", tmp_path / "curves.png")
    draw_label_mix(np.ones((2, 2), int), "a split", tmp_path / "mix.png")
    titles = [figure.get_suptitle() or figure.axes[0].get_title() for figure in figures]
    assert titles == [*["digits, mlp: test accuracy"] * 2, *["digits, mlp: training loss"] * 2, "two runs", "a split"]


def test_accuracies_are_percentages(figures: list[Figure], tmp_path: Path) -> None:
    draw(tmp_path, make_test_digest(), make_test_digest("fedavg"))
    draw_curves({"fedcm": make_metrics(9)}, "title", tmp_path / "curves.png")
    for figure in (figures[0], figures[-1]):
        labels = list_tick_labels(figure.axes[0].yaxis)
        assert {"20 %", "40 %", "60 %", "80 %"} <= set(labels)
        assert all(label.endswith(" %") for label in labels)


@pytest.mark.parametrize(
    ("losses", "ticks"),
    [
        ([0.0005, 0.2, 3.0], ["0.001", "0.01", "0.1", "1"]),
        ([0.04, 0.7], ["0.05", "0.1", "0.2", "0.5"]),  # powers of 10 would be too few
        ([0.5, 1e9], ["1", "100", "10000", "1000000", "1e+08"]),  # of a run that diverged
        ([2.2, 2.3], ["1.8", "2", "2.2", "2.4", "2.6", "2.8"]),
    ],
)
def test_logarithmic_axes_have_plain_numbers(
    figures: list[Figure], tmp_path: Path, losses: list[float], ticks: list[str]
) -> None:
    run = make_loss_digest(loss=0.5)
    curve = run.curve.model_copy(
        update={name: column[: len(losses)] for name, column in run.curve.flatten().items()}
        | {"test_loss": losses, "train_loss": losses}
    )
    draw(tmp_path, run.model_copy(update={"curve": curve}))
    for figure in figures:
        assert figure.axes[0].get_yscale() == "log"
        assert list_tick_labels(figure.axes[0].yaxis) == ticks


def test_band_that_reaches_0_does_not_stretch_a_logarithmic_axis(figures: list[Figure], tmp_path: Path) -> None:
    low, high = (make_loss_digest(loss=loss, seed=k) for k, loss in enumerate((0.2, 1.0)))
    draw(tmp_path, low, high)
    bottom, _ = figures[0].axes[0].get_ylim()
    assert bottom > 0.4


def test_single_evaluation_is_drawn_as_a_point(figures: list[Figure], tmp_path: Path) -> None:
    draw(tmp_path, make_test_digest(curve=[0.5]), make_test_digest("fedavg", curve=[0.4, 0.5]))
    draw_curves({"fedcm": make_metrics(1), "fedavg": make_metrics(2)}, "title", tmp_path / "curves.png")
    for axes in (figures[0].axes[0], figures[-1].axes[0], figures[-1].axes[1]):
        markers = {str(line.get_label()).lower(): line.get_marker() for line in axes.lines}
        assert markers == {"fedcm": "o", "fedavg": "None"}


@pytest.mark.parametrize("loss", [float("inf"), float("nan"), 0.0, -1.0])
def test_losses_that_have_no_logarithm_are_drawn(tmp_path: Path, loss: float) -> None:
    lines = [line | {"loss": loss} for line in make_metrics(2)]
    assert draw_curves({"fedcm": lines}, "title", tmp_path / "curves.png").stat().st_size > 1000


def test_consensus_distance_has_a_figure_with_decentralised_runs_only(figures: list[Figure], tmp_path: Path) -> None:
    draw(tmp_path, make_test_digest(), make_decentralised_digest())
    assert {path.name for path in tmp_path.glob("*consensus*")} == {"name-consensus.png", "name-consensus.pdf"}
    axes = figures[-1].axes[0]
    assert [line.get_label() for line in axes.lines] == ["d-sgd"]
    assert axes.get_yscale() == "log"
    draw(tmp_path / "central", make_test_digest())
    assert list((tmp_path / "central").glob("*consensus*")) == []


def test_many_curves_are_drawn_in_the_background_of_the_best(figures: list[Figure], tmp_path: Path) -> None:
    draw(tmp_path, *make_crowd(20))
    axes = figures[0].axes[0]
    assert len(axes.lines) == 20
    (legend,) = figures[0].legends
    names = [text.get_text() for text in legend.get_texts()]
    assert names[:2] == ["FedCM", "FedAvg"]
    assert names[-1] == "10 others"
    assert len(names) == 11
    assert len({line.get_color() for line in axes.lines if str(line.get_label()).startswith("_")}) == 1
