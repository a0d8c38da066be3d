"""What the charts of a search show: the score against the number of the trial, and against each tuned setting."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

from fedcm.config.toml_values import write_value
from fedcm.system.formatting import format_count
from fedcm.tuning.objective import LOSS
from fedcm.tuning.space import Domain, Space, TunedRange
from fedcm.tuning.trials import TuningTrial


@final
@dataclass(frozen=True)
class SearchChart:
    """Points of trials against one quantity.

    Attributes:
        title: The algorithm, and the quantity if it is a setting.
        caption: What the chart shows.
        x_title: The name of the quantity.
        y_title: The name of the score.
        log: Whether the x axis is logarithmic.
        points: For each trial: x, the score, the trial's number and its state. x is a text for a choice.
        best: For the history: (number, best score so far) of each finished trial.
    """

    title: str
    caption: str
    x_title: str
    y_title: str
    log: bool
    points: list[tuple[float | str, float, int, str]]
    best: list[tuple[int, float]]

    def to_picture(self) -> dict[str, Any]:
        """Return the chart for the page's script."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


def make_charts(
    algorithm: str, space: Space, trials: list[TuningTrial], importance: Mapping[str, float]
) -> list[SearchChart]:
    """Return the history of an algorithm's trials and one chart per tuned setting; none without a score.

    Args:
        algorithm: The algorithm's name.
        space: The tuned settings.
        trials: Its trials.
        importance: The share of the variance that each setting explains; may be empty.
    """
    shown = [(trial, value) for trial in trials if (value := _read_shown_score(trial)) is not None]
    if not shown:
        return []
    metric = shown[0][0].metric or LOSS
    counts = [
        format_count(sum(trial.state == state for trial in trials), "trial") + f" {state}"
        for state in ("finished", "pruned", "diverged")
        if any(trial.state == state for trial in trials)
    ]
    history = SearchChart(
        f"{algorithm}: history",
        f"score of each trial and the best up to it; {', '.join(counts)}",
        "trial",
        metric.title,
        False,
        [(trial.number, value, trial.number, trial.state) for trial, value in shown],
        _find_best_so_far(shown, metric.higher_is_better),
    )
    return [
        history,
        *(_make_axis_chart(algorithm, path, space[path], shown, metric.title, importance) for path in space),
    ]


def _make_axis_chart(
    algorithm: str,
    path: str,
    domain: Domain,
    shown: list[tuple[TuningTrial, float]],
    y_title: str,
    importance: Mapping[str, float],
) -> SearchChart:
    share = f"; explains {importance[path]:.0%} of the score's variance (fANOVA)" if path in importance else ""
    is_range = isinstance(domain, TunedRange)
    points = [
        (
            trial.settings[path] if is_range else write_value(trial.settings[path]),
            value,
            trial.number,
            trial.state,
        )
        for trial, value in shown
    ]
    log = isinstance(domain, TunedRange) and domain.log
    return SearchChart(f"{algorithm}: {path}", f"score against the setting{share}", path, y_title, log, points, [])


def _read_shown_score(trial: TuningTrial) -> float | None:
    """Return the score of a finished trial, or the last validation of a pruned one."""
    if trial.metric is None or trial.state not in ("finished", "pruned"):
        return None
    value = trial.score if trial.state == "finished" else trial.points[-1][1]
    return None if value is None else trial.metric.scale(value)


def _find_best_so_far(shown: list[tuple[TuningTrial, float]], higher: bool) -> list[tuple[int, float]]:
    best: list[tuple[int, float]] = []
    for trial, value in sorted(shown, key=lambda one: one[0].number):
        if trial.state == "finished":
            better = max if higher else min
            best.append((trial.number, better(value, best[-1][1]) if best else value))
    return best
