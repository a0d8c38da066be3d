"""Tables of studies that change one setting: where weight decay acts, and one setting at a time."""

from collections.abc import Sequence

from fedcm.reports.claims.contrast import compare, format_difference
from fedcm.reports.digest import Digest
from fedcm.reports.entry import Entry
from fedcm.reports.groups import get_algorithm_title
from results_page.cells import (
    NOT_PLANNED,
    describe_rounds,
    explain_marks,
    find_best,
    format_cell,
    format_mean,
    join_parts,
    mark_cpu,
    name_cpu,
    write_table,
)
from results_page.study_parts import write_figure_link, write_not_run
from results_page.study_runs import Results, StudyCell

BASE_COLUMN = "II · dirichlet"
_BASE = "as in Table 1, seed 0"


def write_decay_table(results: Results) -> str:
    """Return the table of where weight decay acts: in the loss or in the step."""
    runs, others = results["weight-decay"], results["table3"]
    rows = []
    for alpha in dict.fromkeys(cell.labels["alpha"] for cell in runs.cells):
        loss, step = (runs.get_entry("fedcm", f"{place} · {alpha}") for place in ("loss", "step"))
        other = others.get_entry("fedcm", alpha)
        same = next((one for one in (other, loss) if one and step and _list_cpus(one) == _list_cpus(step)), loss)
        difference = "" if same is None or step is None else _format_difference(same, step)
        rows.append([alpha, *map(_format, (other, loss, step)), difference])
    header = ("α", "in the loss, the runs of Table 3", "in the loss", "in the step", "loss − step")
    return write_table(header, rows)


def _list_cpus(entry: Entry) -> set[str]:
    return {name_cpu(run) for run in entry.counted_runs}


def list_decay_runs(results: Results) -> list[Digest]:
    """Return the runs of the table of where weight decay acts."""
    runs = results["weight-decay"]
    alphas = {cell.labels["alpha"] for cell in runs.cells}
    cells = (*runs.cells, *(cell for cell in results["table3"].cells if cell.column in alphas))
    return [run for cell in cells for run in cell.runs]


def write_decay_part(results: Results) -> str:
    """Return the table of where weight decay acts, and its figure."""
    runs = results["weight-decay"]
    if not runs.has_runs:
        return write_not_run(runs)
    averaged = describe_rounds(cell.entry for cell in runs.cells)
    plain = results["table1"].get_entry("fedavg", BASE_COLUMN)
    return join_parts(
        f"Test accuracy in % of FedCM, {averaged}: mean ± standard deviation over n seeds.",
        explain_marks(write_decay_table(results), list_decay_runs(results)),
        "" if plain is None else f"For comparison: FedAvg of Table 1 has {format_mean(plain)}{mark_cpu(plain.runs)}.",
        write_figure_link("weight-decay", "Accuracy against rounds with weight decay in the loss and in the step"),
    )


def _format(entry: Entry | None) -> str:
    return NOT_PLANNED if entry is None else f"{format_mean(entry)}{mark_cpu(entry.counted_runs)}"


def _format_difference(first: Entry, second: Entry) -> str:
    return format_difference(compare([(1, first.list_gains()), (-1, second.list_gains())])) or "diverged"


def list_base_cells(results: Results) -> dict[str, StudyCell]:
    """Return the cells of Table 1 that the study changes, with their first seed only, by algorithm."""
    cells = [cell for cell in results["table1"].cells if cell.column == BASE_COLUMN]
    return {
        cell.algorithm: StudyCell(
            cell.algorithm,
            cell.labels,
            cell.rounds,
            1,
            None,
            cell.data_and_model,
            tuple(run for run in cell.runs if run.seed == 0),
        )
        for cell in cells
    }


def list_setting_rows(results: Results) -> dict[str, dict[str, StudyCell]]:
    """Return the cells of the study by change and algorithm; the first row has the runs without a change."""
    runs = results["one-setting"]
    rows = {_BASE: list_base_cells(results)}
    for cell in runs.cells:
        rows.setdefault(cell.column, {})[cell.algorithm] = cell
    return rows


def write_setting_table(results: Results, changes: Sequence[str] | None = None) -> str:
    """Return a table with one row per change and one column per algorithm; the best of a column is bold."""
    rows = list_setting_rows(results)
    if changes is not None:
        rows = {change: rows[change] for change in (_BASE, *changes)}
    algorithms = results["one-setting"].list_algorithms()
    best = {name: find_best(row[name].entry for row in rows.values() if name in row) for name in algorithms}
    body = [[change, *(format_cell(row.get(name), best[name]) for name in algorithms)] for change, row in rows.items()]
    return write_table(["change", *map(get_algorithm_title, algorithms)], body)


def list_setting_runs(results: Results, changes: Sequence[str] | None = None) -> list[Digest]:
    """Return the runs of a table of changes."""
    rows = list_setting_rows(results)
    shown = rows if changes is None else (_BASE, *changes)
    return [run for change in shown for cell in rows[change].values() for run in cell.runs]


def write_setting_part(results: Results) -> str:
    """Return the table of one setting at a time, its figure, and the best of every algorithm."""
    runs = results["one-setting"]
    if not runs.has_runs:
        return write_not_run(runs)
    rows = list_setting_rows(results)
    best = {
        name: value
        for name in runs.list_algorithms()
        if (value := find_best(row[name].entry for row in rows.values() if name in row)) is not None
    }
    leads = [
        f"{best['fedcm'] - value:.2f} points ahead of {get_algorithm_title(name)}"
        for name, value in sorted(best.items(), key=lambda item: -item[1])
        if name != "fedcm"
    ]
    averaged = describe_rounds(cell.entry for cell in runs.cells)
    return join_parts(
        f"Test accuracy in %, {averaged}. {NOT_PLANNED}: not part of the study, or the same as in Table 1.",
        explain_marks(write_setting_table(results), list_setting_runs(results)),
        f"With every algorithm at the best of its column, FedCM ({best['fedcm']:.2f}) is {', '.join(leads)}.",
        write_figure_link("one-setting", "The accuracy of five algorithms for every change of a setting"),
    )
