"""What an active client computes in a round of a study: local steps, examples per step and passes over its data."""

from typing import Any

from fedcm.reports.groups import get_algorithm_title
from results_page.cells import NOT_RUN, join_parts, write_table
from results_page.study_runs import StudyCell, StudyRuns

_TRAIN_EXAMPLES = {"cifar10": 50_000, "cifar100": 50_000}
_CAPTION = (
    "Local steps of a client per round, examples per step, and examples that the round's ten clients see on average:"
)


def write_local_work(runs: StudyRuns) -> str:
    """Return the local work of every algorithm in both settings; empty without runs."""
    settings = sorted({cell.labels["setting"] for cell in runs.cells})
    rows = [
        [get_algorithm_title(name), *(_describe(_find_cell(runs, name, setting)) for setting in settings)]
        for name in runs.list_algorithms()
    ]
    if not runs.has_runs:
        return ""
    return join_parts(_CAPTION, write_table(("algorithm", *(f"setting {name}" for name in settings)), rows))


def _find_cell(runs: StudyRuns, algorithm: str, setting: str) -> StudyCell | None:
    cells = [cell for cell in runs.cells if (cell.algorithm, cell.labels["setting"]) == (algorithm, setting)]
    return next((cell for cell in cells if cell.runs), None)


def _describe(cell: StudyCell | None) -> str:
    if cell is None:
        return NOT_RUN
    steps, batch, seen = count_local_work(cell.runs[0].experiment)
    return f"{steps} × {batch}; {seen:,} examples"


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
