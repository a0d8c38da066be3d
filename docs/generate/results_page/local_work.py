"""What an active client computes in a round of a study: local steps, examples per step and passes over its data."""

from typing import Any

from fedcm.reports.groups import get_algorithm_title
from results_page.cells import NOT_PLANNED, NOT_RUN, join_parts, write_table
from results_page.round_tables import get_accuracy
from results_page.study_runs import StudyCell, StudyRuns

_TRAIN_EXAMPLES = {"cifar10": 50_000, "cifar100": 50_000}
_CAPTION = (
    "Local steps of a client per round, examples per step, and the gradients of single examples that ten clients "
    "compute per round; an example counts once per epoch:"
)
_EQUAL = (
    "Test accuracy in % in setting II after equally many gradients of single examples, because the methods differ in "
    "them: the mean over n seeds of one evaluation."
)


def write_local_work(runs: StudyRuns) -> str:
    """Return the local work of every algorithm in both settings; empty without runs."""
    if not runs.has_runs:
        return ""
    settings = sorted({cell.labels["setting"] for cell in runs.cells})
    rows = [
        [get_algorithm_title(name), *(_describe(_find_cell(runs, name, setting)) for setting in settings)]
        for name in runs.list_algorithms()
    ]
    return join_parts(_CAPTION, write_table(("algorithm", *(f"setting {name}" for name in settings)), rows))


def write_equal_examples(runs: StudyRuns) -> str:
    """Return the accuracies of setting II after as much local work as the least busy algorithm does in all its rounds.

    Empty if all algorithms have equal work or one has not run.
    """
    cells = [cell for cell in runs.cells if cell.labels["setting"] == "II"]
    if not all(cell.runs for cell in cells):
        return ""
    work = {cell.algorithm: count_local_work(cell.runs[0].experiment)[2] for cell in cells}
    if len(set(work.values())) == 1:
        return ""
    budget = min(work[cell.algorithm] * cell.rounds for cell in cells)
    columns = list(dict.fromkeys(cell.column for cell in cells))
    rows = []
    for name in runs.list_algorithms():
        rounds = budget // work[name]
        own = [cell for column in columns for cell in cells if (cell.algorithm, cell.column) == (name, column)]
        accuracies = [_format_accuracy(cell, rounds) for cell in own]
        rows.append([get_algorithm_title(name), str(rounds), f"{budget:,}", *accuracies])
    return join_parts(_EQUAL, write_table(("algorithm", "rounds", "gradients", *columns), rows))


def _format_accuracy(cell: StudyCell, rounds: int) -> str:
    if cell.entry and cell.entry.divergence:
        return "diverged"
    accuracy = get_accuracy(cell.entry, rounds)
    return NOT_PLANNED if accuracy is None else f"{accuracy:.2f}, n = {len(cell.runs)}"


def _find_cell(runs: StudyRuns, algorithm: str, setting: str) -> StudyCell | None:
    cells = [cell for cell in runs.cells if (cell.algorithm, cell.labels["setting"]) == (algorithm, setting)]
    return next((cell for cell in cells if cell.runs), None)


def _describe(cell: StudyCell | None) -> str:
    if cell is None:
        return NOT_RUN
    steps, batch, seen = count_local_work(cell.runs[0].experiment)
    return f"{steps} × {batch}; {seen:,}"


def count_local_work(experiment: dict[str, Any]) -> tuple[int, int, int]:
    """Return the local steps of a client, the examples per step, and the examples of a round's mean cohort.

    Args:
        experiment: An experiment whose clients have equally many examples and make whole passes over them.
    """
    client, clients = experiment["client"], experiment["split"]["clients"]
    examples = _TRAIN_EXAMPLES[experiment["data"]["source"]] // clients
    steps = client["epochs"] * -(-examples // client["batch_size"])
    cohort = round(clients * experiment["participation"]["probability"])
    return steps, client["batch_size"], cohort * client["epochs"] * examples
