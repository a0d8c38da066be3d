"""The trials of a search as a table, sorted by score."""

from fedcm.config.toml_values import write_value
from fedcm.reports.html.markup import Html, make_table
from fedcm.reports.sheet import Sheet
from fedcm.tuning.objective import LOSS, ValidationMetric
from fedcm.tuning.plan import make_file_name
from fedcm.tuning.space import Space
from fedcm.tuning.trials import TuningTrial


def make_trial_sheet(algorithm: str, space: Space, trials: list[TuningTrial]) -> Sheet:
    """Return the trials of an algorithm: the best first, then those without a score."""
    metric = next((trial.metric for trial in trials if trial.metric is not None), LOSS)
    head = ("trial", "state", *space, metric.title, "rounds")
    body = [
        (
            str(trial.number),
            trial.state,
            *(write_value(trial.settings[path]) for path in space),
            "–" if trial.score is None else metric.format(trial.score),
            str(trial.rounds),
        )
        for trial in _sort_trials(trials, metric)
    ]
    return Sheet(
        f"trials-{make_file_name(algorithm)}", f"Trials of {algorithm}, the best first", head, tuple(body), texts=2
    )


def render_trial_table(sheet: Sheet) -> Html:
    """Return the table as HTML."""
    return make_table(sheet.caption, [*sheet.head], [[*row] for row in sheet.body])


def _sort_trials(trials: list[TuningTrial], metric: ValidationMetric) -> list[TuningTrial]:
    def rank(trial: TuningTrial) -> tuple[bool, float, int]:
        score = trial.score or 0.0
        return trial.score is None, -score if metric.higher_is_better else score, trial.number

    return sorted(trials, key=rank)
