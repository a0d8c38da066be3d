"""The part of the page about one study that compares algorithms: its table, figure, differences and order."""

from collections.abc import Sequence

from fedcm.reports.groups import get_algorithm_title
from results_page.cells import describe_rounds, explain_marks, find_best, format_cell, join_parts, write_table
from results_page.effects import write_effects
from results_page.study_runs import StudyCell, StudyRuns


def write_not_run(runs: StudyRuns) -> str:
    """Return the sentence in place of a table without runs."""
    return f"Not run yet: `{runs.study.shown_command}`."


def write_figure_link(name: str, text: str) -> str:
    """Return the image of a figure."""
    return f"![{text}](results-{name}.png)"


def write_grid_part(runs: StudyRuns, figure_text: str, beside: Sequence[StudyCell] = ()) -> str:
    """Return the table of algorithms by cell, its figure, and the differences between FedCM and the others.

    Args:
        runs: The study.
        figure_text: Describes the figure.
        beside: Cells of another study to show in the same table.
    """
    if not runs.has_runs:
        return write_not_run(runs)
    cells = (*runs.cells, *beside)
    return join_parts(
        write_caption(cells),
        explain_marks(write_grid(cells), [run for cell in cells for run in cell.runs]),
        write_figure_link(runs.study.name, figure_text),
        write_effects(runs),
        write_orders(runs),
    )


def write_caption(cells: Sequence[StudyCell]) -> str:
    """Return the sentence above a table."""
    published = any(cell.published is not None for cell in cells)
    figures = " The published figures, for ResNet-18 and 4000 rounds, are in brackets." if published else ""
    averaged = describe_rounds(cell.entry for cell in cells)
    return f"Test accuracy in %, {averaged}: mean ± standard deviation over n seeds.{figures}"


def write_grid(cells: Sequence[StudyCell]) -> str:
    """Return a table with one row per algorithm and one column per cell; the best of a column is bold."""
    columns = list(dict.fromkeys((cell.column, cell.rounds) for cell in cells))
    algorithms = dict.fromkeys(cell.algorithm for cell in cells)
    places = {(cell.algorithm, cell.column, cell.rounds): cell for cell in cells}
    best = {
        column: find_best(cell.entry for place, cell in places.items() if place[1:] == column) for column in columns
    }
    header = ["algorithm", *(", ".join(filter(None, (name, f"{rounds} rounds"))) for name, rounds in columns)]
    rows = [
        [get_algorithm_title(name), *(format_cell(places.get((name, *column)), best[column]) for column in columns)]
        for name in algorithms
    ]
    return write_table(header, rows)


def write_orders(runs: StudyRuns) -> str:
    """Return a table of the algorithms' order here and in the paper, for cells where all are known."""
    rows = []
    for column in runs.list_columns():
        cells = [cell for cell in runs.cells if cell.column == column and cell.published is not None]
        if len(cells) > 1 and all(cell.entry for cell in cells):
            here = sorted(cells, key=lambda cell: -_get_mean(cell))
            paper = sorted(cells, key=lambda cell: -(cell.published or 0))
            rows.append((column, _join(here), ", ".join(get_algorithm_title(cell.algorithm) for cell in paper)))
    return write_table(("cell", "best first, here", "best first, in the paper"), rows, texts=3) if rows else ""


def _get_mean(cell: StudyCell) -> float:
    mean = cell.entry.mean() if cell.entry else None
    return -1.0 if mean is None else mean


def _join(cells: Sequence[StudyCell]) -> str:
    texts = {cell.algorithm: " (diverged)" if cell.entry and cell.entry.divergence else "" for cell in cells}
    return ", ".join(f"{get_algorithm_title(name)}{text}" for name, text in texts.items())
