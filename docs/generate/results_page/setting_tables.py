"""Tables of studies that change one setting: where weight decay acts, and one setting at a time."""

from collections.abc import Mapping, Sequence

from fedcm.reports.claims.contrast import format_difference
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
    write_table,
)
from results_page.difference import Difference, explain_pairs, mark_pair
from results_page.study_parts import write_figure_link, write_not_run
from results_page.study_runs import Results, StudyCell

BASE_COLUMN = "II · dirichlet"
_BASE = "as in Table 1, seed 0"


def write_decay_table(results: Results) -> str:
    """Return the table of where weight decay acts: in the loss or in the step."""
    runs, others = results["weight-decay"], results["table3"]
    rows, differences = [], []
    for alpha in dict.fromkeys(cell.labels["alpha"] for cell in runs.cells):
        loss, step = (runs.get_entry("fedcm", f"{place} · {alpha}") for place in ("loss", "step"))
        other = others.get_entry("fedcm", alpha)
        possible = [Difference(one, step) for one in (loss, other) if one and step]
        chosen = next((one for one in possible if not one.is_across_cpus), next(iter(possible), None))
        text = "" if chosen is None else mark_pair(format_difference(chosen.contrast) or "diverged", chosen)
        rows.append([alpha, *map(_format, (other, loss, step)), text])
        differences += [] if chosen is None else [chosen]
    header = ("α", "in the loss, the runs of Table 3", "in the loss", "in the step", "loss − step")
    return join_parts(write_table(header, rows), explain_pairs(differences))


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
    compared = "" if plain is None else f"For comparison: FedAvg of Table 1 has {_format(plain)}."
    shown = [*list_decay_runs(results), *(plain.counted_runs if plain else ())]
    return join_parts(
        f"Test accuracy in % of FedCM, {averaged}: mean ± standard deviation over n seeds.",
        explain_marks(join_parts(write_decay_table(results), compared), shown),
        write_figure_link("weight-decay", "Accuracy against rounds with weight decay in the loss and in the step"),
    )


def _format(entry: Entry | None) -> str:
    return NOT_PLANNED if entry is None else f"{format_mean(entry)}{mark_cpu(entry.counted_runs)}"


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
    averaged = describe_rounds(cell.entry for cell in runs.cells)
    return join_parts(
        f"Test accuracy in %, {averaged}. {NOT_PLANNED}: not part of the study, or the same as in Table 1.",
        explain_marks(write_setting_table(results), list_setting_runs(results)),
        _describe_leads(best),
        write_figure_link("one-setting", "The accuracy of five algorithms for every change of a setting"),
    )


def _describe_leads(best: Mapping[str, float]) -> str:
    """Return by how much FedCM's best is ahead of the others' or behind; empty without FedCM or without others."""
    own = best.get("fedcm")
    if own is None or len(best) == 1:
        return ""
    leads = [
        f"{abs(own - value):.2f} points {'ahead of' if own >= value else 'behind'} {get_algorithm_title(name)}"
        for name, value in sorted(best.items(), key=lambda item: -item[1])
        if name != "fedcm"
    ]
    return f"With every algorithm at the best of its column, FedCM ({own:.2f}) is {', '.join(leads)}."
