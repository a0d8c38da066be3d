"""The score of a trial: the validation curve, and never the test set."""

import json
from pathlib import Path
from typing import Any

import pytest

from fedcm.tuning.objective import LOSS, MetricsReader, read_objective


def make_lines(rounds: int, **columns: float) -> list[dict[str, Any]]:
    """Rounds whose metrics are the given number times the number of rounds done."""
    return [{"round": k} | {name: factor * (k + 1) for name, factor in columns.items()} for k in range(rounds)]


def test_the_score_is_the_mean_of_the_last_tenth_of_the_validation_curve() -> None:
    objective = read_objective(make_lines(30, validation_accuracy=0.01, test_accuracy=-5.0), {})
    assert objective is not None
    assert objective.metric == ("validation_accuracy", True, True)
    assert objective.score == pytest.approx((0.28 + 0.29 + 0.30) / 3)
    assert objective.points[0] == (0, 0.01)
    assert len(objective.points) == 30


def test_the_test_set_changes_nothing() -> None:
    validation = make_lines(10, validation_loss=1.0)
    disagreeing = [line | {"test_loss": -line["validation_loss"], "test_accuracy": 1.0} for line in validation]
    assert read_objective(disagreeing, {}) == read_objective(validation, {})
    assert read_objective(make_lines(10, test_accuracy=0.1, test_loss=0.1, loss=1.0), {}) is None


def test_the_headline_comes_before_the_loss() -> None:
    both = read_objective(make_lines(10, validation_loss=2.0, validation_accuracy=0.05), {})
    alone = read_objective(make_lines(10, validation_loss=2.0), {})
    assert both is not None
    assert alone is not None
    assert (both.metric.key, both.score) == ("validation_accuracy", 0.5)
    assert (alone.metric, alone.score) == (LOSS, 20.0)


def test_the_first_metric_of_the_run_is_the_headline_and_its_direction_counts() -> None:
    error = {"higher_is_better": False, "is_share": False}
    traits = {"metrics": {"mae": error, "accuracy": {"higher_is_better": True, "is_share": True}}}
    objective = read_objective(make_lines(10, validation_accuracy=0.01, validation_mae=3.0), traits)
    assert objective is not None
    assert objective.metric == ("validation_mae", False, False)
    assert objective.score == 30.0


def test_rounds_that_were_not_evaluated_are_skipped() -> None:
    lines = [{"round": k} | ({"validation_accuracy": 0.1 * k} if k % 4 == 3 else {}) for k in range(10)]
    objective = read_objective(lines, {})
    assert objective is not None
    assert [round for round, _ in objective.points] == [3, 7]
    assert objective.score == pytest.approx(0.7)


def test_a_run_in_progress_is_read_line_by_line(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    reader = MetricsReader(path)
    assert reader.update() == []
    path.write_text('{"round": 0}\n{"rou')
    assert reader.update() == [{"round": 0}], "an incomplete line is left for later"
    path.write_text('{"round": 0}\n{"round": 1}\n')
    assert reader.update() == [{"round": 0}, {"round": 1}]
    path.write_text(json.dumps({"round": 0}) + "\n")
    assert reader.update() == [{"round": 0}], "a resume truncated the file"
