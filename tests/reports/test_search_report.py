"""The charts and tables of a search."""

from pathlib import Path

import pytest

from fedcm.reports.search.charts import make_charts
from fedcm.reports.search.figures import draw_search
from fedcm.reports.search.tables import make_trial_sheet, render_trial_table
from fedcm.tuning.objective import LOSS, ValidationMetric
from fedcm.tuning.space import TunedChoices, TunedRange
from fedcm.tuning.trials import State, TuningTrial

ACCURACY = ValidationMetric("validation_accuracy", higher_is_better=True, is_share=True)
SPACE = {"client.lr": TunedRange(0.01, 1.0, log=True), "model.hidden": TunedChoices(([64, 32], [128]))}


def make_trial(
    number: int, score: float | None, state: State = "finished", metric: ValidationMetric = ACCURACY
) -> TuningTrial:
    settings = {"client.lr": 0.1 / (number + 1), "model.hidden": [128]}
    return TuningTrial("fedcm", number, settings, "", state, metric, score, [(0, 0.1), (1, 0.2)], 2)


TRIALS = [
    make_trial(0, 0.5),
    make_trial(1, 0.4),
    make_trial(2, None, "pruned"),
    make_trial(3, 0.9),
    make_trial(4, None, "diverged"),
    make_trial(5, 0.7),
]


def test_the_history_shows_every_score_and_the_best_so_far() -> None:
    history, rate, hidden = make_charts("fedcm", SPACE, TRIALS, {"client.lr": 0.75})
    assert history.points == [
        *((0, 50.0, 0, "finished"), (1, 40.0, 1, "finished"), (2, 20.0, 2, "pruned"), (3, 90.0, 3, "finished")),
        (5, 70.0, 5, "finished"),
    ]
    assert history.best == [(0, 50.0), (1, 50.0), (3, 90.0), (5, 90.0)]
    assert history.caption.endswith("4 trials finished, 1 trial pruned, 1 trial diverged")
    assert (rate.log, hidden.log) == (True, False)
    assert "explains 75% of the score's variance" in rate.caption
    assert "explains" not in hidden.caption
    assert hidden.points[0][0] == "[128]"
    assert history.y_title == "validation accuracy in %"


def test_the_best_loss_so_far_is_the_lowest() -> None:
    history, *_ = make_charts(
        "fedcm", SPACE, [make_trial(k, x, metric=LOSS) for k, x in enumerate((2.0, 3.0, 1.0))], {}
    )
    assert history.best == [(0, 2.0), (1, 2.0), (2, 1.0)]


def test_without_a_score_there_is_no_chart() -> None:
    assert make_charts("fedcm", SPACE, [make_trial(0, None, "diverged")], {}) == []


@pytest.mark.parametrize(("metric", "order"), [(ACCURACY, "350124"), (LOSS, "105324")])
def test_trials_are_sorted_by_score(metric: ValidationMetric, order: str) -> None:
    trials = [make_trial(t.number, t.score, t.state, metric) for t in TRIALS]
    sheet = make_trial_sheet("fedcm", SPACE, trials)
    assert "".join(row[0] for row in sheet.body) == order
    assert sheet.head == ("trial", "state", "client.lr", "model.hidden", metric.title, "rounds")
    assert "<caption>Trials of fedcm, the best first</caption>" in render_trial_table(sheet)


def test_a_picture_has_a_panel_per_chart(tmp_path: Path) -> None:
    charts = make_charts("fedcm", SPACE, TRIALS, {})
    for count in (1, 3):
        assert draw_search(charts[:count], "title", tmp_path / f"{count}.png").read_bytes().startswith(b"\x89PNG")
    assert draw_search([*charts, *charts], "two rows", tmp_path / "two.png").is_file()
