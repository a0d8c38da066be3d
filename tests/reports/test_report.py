"""Figures are drawn, and every curve can be told from the others."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedcm.errors import UserError
from fedcm.reports.figures.curves import draw_curves
from fedcm.reports.figures.label_mix import draw_label_mix, spread
from fedcm.reports.figures.style import style_of

NAMES = ["fedavg", "fedcm", "fedadam", "scaffold", "feddyn", "my:Own", "my:Other"]


def metrics(rounds: int) -> list[dict[str, Any]]:
    return [{"round": r, "loss": None if r == 2 else 1 / (r + 1), "test_accuracy": r / 10} for r in range(rounds)]


@pytest.mark.parametrize("suffix", [".png", ".pdf", ".svg"])
def test_curves_are_drawn(tmp_path: Path, suffix: str) -> None:
    path = draw_curves({name: metrics(5) for name in NAMES}, "title", tmp_path / f"curves{suffix}")
    assert path.stat().st_size > 1000


def test_every_curve_has_a_look_of_its_own_and_an_algorithm_keeps_it() -> None:
    looks = [tuple(map(str, style_of(name, NAMES).values())) for name in NAMES]
    assert len(set(looks)) == len(NAMES)
    assert style_of("fedcm", NAMES) == style_of("fedcm", ["fedcm"])


@pytest.mark.parametrize(("clients", "classes"), [(10, 10), (250, 100), (3, 1)])
def test_the_label_mix_is_drawn(tmp_path: Path, clients: int, classes: int) -> None:
    counts = np.random.default_rng(0).integers(1, 9, (clients, classes))
    assert draw_label_mix(counts, "title", tmp_path / "mix.png").read_bytes().startswith(b"\x89PNG")


def test_the_distance_of_a_mix_is_0_for_the_same_and_grows_with_difference() -> None:
    same = spread(np.full((4, 5), 3))
    assert same["mean_distance"] == pytest.approx(0)
    assert same["examples"] == 60
    apart = spread(np.eye(4, dtype=int) * 10)
    assert apart["mean_distance"] == pytest.approx(0.75)
    assert apart["mean_classes"] == 1


def test_a_picture_of_an_unknown_kind_is_refused_and_nothing_is_left(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"\.png"):
        draw_curves({"fedcm": metrics(3)}, "title", tmp_path / "curves.xyz")
    assert list(tmp_path.iterdir()) == []
