"""The training and test losses at the end of the runs of a study."""

from statistics import fmean

from recorded import get_last

from fedcm.reports.groups import get_algorithm_title
from results_page.cells import NOT_PLANNED, NOT_RUN, join_parts, write_table
from results_page.study_runs import StudyCell, StudyRuns

_CAPTION = (
    "Training loss / test loss at the end, means over n seeds. The training loss is the mean over the clients' local "
    "steps since the evaluation before, each at the client's parameters before the step; the test loss is the server's."
)


def write_losses(runs: StudyRuns) -> str:
    """Return both losses of every cell; empty without runs."""
    columns = list(dict.fromkeys(cell.column for cell in runs.cells if cell.runs))
    if not columns:
        return ""
    rows = [
        [get_algorithm_title(name), *(_format_cell(runs.find(name, column)) for column in columns)]
        for name in runs.list_algorithms()
    ]
    return join_parts(_CAPTION, write_table(("algorithm", *columns), rows))


def _format_cell(cell: StudyCell | None) -> str:
    if cell is None:
        return NOT_PLANNED
    if not cell.runs:
        return NOT_RUN
    if any(run.divergence_round is not None for run in cell.runs):
        return "diverged"
    train, test = (fmean(get_last(run, name) for run in cell.runs) for name in ("train_loss", "test_loss"))
    return f"{train:.2f} / {test:.2f}, n = {len(cell.runs)}"
