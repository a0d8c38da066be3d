"""Tables of the accuracy after given numbers of rounds: FedCM's α, ResNet-8 and the whole family."""

from collections.abc import Sequence
from statistics import fmean
from typing import NamedTuple

from fedcm.reports.entry import Entry, average_curves
from fedcm.reports.figures.method_groups import get_method_group
from fedcm.reports.groups import get_algorithm_title
from fedcm.reports.metric import ACCURACY
from fedcm.system.formatting import format_bytes
from results_page.cells import (
    NOT_RUN,
    describe_rounds,
    explain_marks,
    find_best,
    format_mean,
    join_parts,
    mark_cpu,
    round_mean,
    write_table,
)
from results_page.effects import write_effects
from results_page.study_parts import write_figure_link, write_not_run
from results_page.study_runs import StudyRuns

ALPHA_ROUNDS = (50, 100, 200, 300, 500)
RESNET_ROUNDS = (10, 30, 50, 70, 100, 130, 150)
FAMILY_ROUNDS = (10, 30, 50)


class Row(NamedTuple):
    """A row of a table over rounds."""

    label: str
    entry: Entry | None
    end: tuple[str, ...] = ()  # columns after the mean of the last rounds


def get_accuracy(entry: Entry | None, round: int) -> float | None:
    """Return the mean accuracy in % over seeds after a number of rounds; None if it was not evaluated then."""
    if entry is None:
        return None
    average = average_curves([run.curve for run in entry.counted_runs])
    values = dict(zip(average.round, average.mean["test_accuracy"], strict=True))
    value = values.get(round)
    return None if value is None else 100 * value


def write_round_table(first: str, rows: Sequence[Row], rounds: Sequence[int], end: Sequence[str] = ()) -> str:
    """Return a table of accuracies after rounds and of the mean of the last ones; the best of a column is bold."""
    columns = {round: [get_accuracy(row.entry, round) for row in rows] for round in rounds}
    best = {round: max((v for v in values if v is not None), default=None) for round, values in columns.items()}
    best_mean = find_best(row.entry for row in rows)
    body = []
    for k, row in enumerate(rows):
        cells = [_format(columns[round][k], best[round]) for round in rounds]
        body.append([row.label, *cells, _format_end(row.entry, best_mean), *row.end])
    averaged = describe_rounds(row.entry for row in rows)
    return write_table([first, *(f"after {round}" for round in rounds), averaged, *end], body)


def _format(value: float | None, best: float | None) -> str:
    if value is None:
        return "–"
    text = ACCURACY.format(value)
    return f"**{text}**" if value == best else text


def _format_end(entry: Entry | None, best: float | None) -> str:
    if entry is None:
        return NOT_RUN
    value, _, seeds = format_mean(entry).partition(", n")
    is_best = best is not None and round_mean(entry) == best
    return f"{f'**{value}**' if is_best else value}, n{seeds}{mark_cpu(entry.counted_runs)}"


class BestAlpha(NamedTuple):
    """The best α of runs with a number of rounds."""

    rounds: int
    alpha: str
    accuracy: float  # in %, mean of the last fifth of the rounds
    close: tuple[str, ...]  # other values within one deviation


def list_best_alphas(runs: StudyRuns, deviation: float) -> list[BestAlpha]:
    """Return the best α after each number of rounds, and those that are not more than a deviation below it."""
    found = []
    for rounds in ALPHA_ROUNDS:
        values = {
            cell.column: value for cell in runs.cells if (value := _average_last_fifth(cell.entry, rounds)) is not None
        }
        if values:
            best = max(values, key=lambda alpha: values[alpha])
            close = [alpha for alpha in values if alpha != best and values[alpha] >= values[best] - deviation]
            found.append(BestAlpha(rounds, best, values[best], tuple(close)))
    return found


def _average_last_fifth(entry: Entry | None, rounds: int) -> float | None:
    last = range(rounds - rounds // 5 + 1, rounds + 1)
    values = [value for done in last if (value := get_accuracy(entry, done)) is not None]
    return fmean(values) if values else None


def write_alpha_part(runs: StudyRuns) -> str:
    """Return the table of α, its figure, and which α is best after how many rounds."""
    if not runs.has_runs:
        return write_not_run(runs)
    rows = [
        Row(cell.column, cell.entry, ("" if cell.published is None else f"{cell.published:.2f}",))
        for cell in runs.cells
    ]
    return join_parts(
        "Test accuracy in % after a number of rounds, mean over n seeds. Published: ResNet-18, setting I.",
        explain_marks(write_round_table("α", rows, ALPHA_ROUNDS, ["published"]), runs.list_runs()),
        write_figure_link("table3", "Accuracy against rounds, one curve per α"),
    )


def write_resnet_part(runs: StudyRuns) -> str:
    """Return the table of ResNet-8 and its figure."""
    if not runs.has_runs:
        return write_not_run(runs)
    rows = [Row(get_algorithm_title(cell.algorithm), cell.entry) for cell in runs.cells]
    return join_parts(
        "Test accuracy in % after a number of rounds, mean over n seeds.",
        explain_marks(write_round_table("algorithm", rows, RESNET_ROUNDS), runs.list_runs()),
        write_figure_link("resnet8", "Accuracy of FedCM and FedAvg against rounds with ResNet-8"),
        write_effects(runs),
    )


def write_family_part(runs: StudyRuns) -> str:
    """Return the table of all methods and its figure."""
    if not runs.has_runs:
        return write_not_run(runs)
    body = []
    for cell in runs.cells:
        values = [get_accuracy(cell.entry, round) for round in FAMILY_ROUNDS]
        sent = [_format_sent(cell.entry, key) for key in ("bytes_down", "bytes_up")]
        texts = [_format(value, None) for value in values]
        seeds = f"{len(cell.runs)}{mark_cpu(cell.runs)}" if cell.runs else NOT_RUN
        body.append([get_method_group(cell.algorithm), f"`{cell.algorithm}`", *texts, seeds, *sent])
    header = ["group", "method", *(f"after {round}" for round in FAMILY_ROUNDS), "n", "down", "up"]
    return join_parts(
        "Test accuracy in % after a number of rounds over n seeds, and what a federation would send in the whole run.",
        explain_marks(write_table(header, body, texts=2), runs.list_runs()),
        write_figure_link("family", "The accuracy of every method after 50 rounds, by group"),
    )


def _format_sent(entry: Entry | None, key: str) -> str:
    return format_bytes(entry.runs[0].summary[key]) if entry else "–"
