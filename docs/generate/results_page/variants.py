"""Studies with a question of their own: more unequal data, Fashion-MNIST, bfloat16, and variants of FedCM."""

from dataclasses import replace

from fedcm.reports.groups import get_algorithm_title
from fedcm.system.formatting import format_signed
from results_page.cells import (
    NOT_PLANNED,
    describe_rounds,
    explain_marks,
    find_best,
    format_cell,
    format_interval,
    format_mean,
    join_parts,
    write_table,
)
from results_page.difference import Difference, describe_seeds, explain_pairs, format_size, mark_pair
from results_page.study_parts import write_figure_link, write_grid_part, write_not_run
from results_page.study_runs import Results, StudyCell, StudyRuns

FASHION_SETTINGS = {  # settings of a cell, by its label; the first of each algorithm is the paper's
    "lr 0.1": "η_l 0.1",
    "alpha 0.3": "α 0.3, η_l 0.1",
    "advice": "α 0.065, η_l 0.3: the advice",
    "lr 0.3": "η_l 0.3",
}


_PLAIN = ("fedavg", "lr 0.1")  # the cell of Fashion-MNIST that others are compared with


def write_heterogeneity_part(results: Results) -> str:
    """Return the study of more unequal data, with the cells of Table 1 in the same table."""
    known = {"dirichlet": "dirichlet 0.6, Table 1", "iid": "iid, Table 1"}
    beside = [
        replace(cell, labels={"split": known[cell.labels["split"]]}, published=None)
        for cell in results["table1"].cells
        if cell.labels["setting"] == "II"
    ]
    text = "Accuracy against rounds for five algorithms on more unequal data"
    return write_grid_part(results["heterogeneity"], text, beside)


def describe_fashion_cell(cell: StudyCell) -> str:
    """Return the settings of a cell of the study on Fashion-MNIST."""
    alpha = "α 0.1, " if (cell.algorithm, cell.column) == ("fedcm", "lr 0.1") else ""
    return f"{alpha}{FASHION_SETTINGS[cell.column]}"


def write_fashion_part(runs: StudyRuns) -> str:
    """Return the study on Fashion-MNIST: a row per algorithm and setting, with its difference from FedAvg."""
    if not runs.has_runs:
        return write_not_run(runs)
    known = [cell.entry for cell in runs.cells]
    plain = runs.get_entry(*_PLAIN)
    differences = {
        place: Difference(cell.entry, plain)
        for cell in runs.cells
        if cell.entry and plain and (place := (cell.algorithm, cell.column)) != _PLAIN
    }
    caption = f"Test accuracy in %, {describe_rounds(known)}: mean ± standard deviation over n seeds."
    header = ("algorithm", "settings", "accuracy", "minus FedAvg with η_l 0.1", "95 % interval")
    best = find_best(known)
    rows = [_write_fashion_row(cell, best, differences.get((cell.algorithm, cell.column))) for cell in runs.cells]
    table = join_parts(write_table(header, rows, texts=2), explain_pairs(differences.values()))
    return join_parts(
        caption,
        explain_marks(table, runs.list_runs()),
        write_figure_link(runs.study.name, "Accuracy against rounds on Fashion-MNIST"),
    )


def _write_fashion_row(cell: StudyCell, best: float | None, difference: Difference | None) -> tuple[str, ...]:
    names = get_algorithm_title(cell.algorithm), describe_fashion_cell(cell), format_cell(cell, best)
    if difference is None or difference.has_diverged:
        return (*names, NOT_PLANNED, NOT_PLANNED)
    contrast = difference.contrast
    return (*names, format_signed(contrast.difference), mark_pair(format_interval(contrast), difference))


def write_precision_part(runs: StudyRuns) -> str:
    """Return the study of bfloat16, with the differences from float32."""
    part = write_grid_part(runs, "Accuracy against rounds in float32 and bfloat16")
    rows, differences = [], []
    for cell in runs.cells:
        exact = runs.get_entry(cell.algorithm, cell.column.replace("bf16", "float32"))
        if cell.labels.get("precision") != "bf16" or cell.entry is None or exact is None:
            continue
        difference = Difference(cell.entry, exact)
        if not difference.has_diverged:
            contrast = difference.contrast
            numbers = format_signed(contrast.difference), format_interval(contrast), describe_seeds(difference)
            rows.append((cell.labels["model"], get_algorithm_title(cell.algorithm), *numbers))
            differences.append(difference)
    header = ("model", "algorithm", "bfloat16 − float32, points", "95 % interval", "seeds")
    return join_parts(part, write_table(header, rows, texts=2) if rows else "", explain_pairs(differences))


def write_variants_part(results: Results) -> str:
    """Return the section about variants of FedCM with its heading."""
    runs = results["momentum"]
    part = write_grid_part(runs, "Accuracy against rounds for variants of FedCM")
    command = f"`{runs.study.shown_command}`." if runs.has_runs else ""
    return join_parts("## Variants of FedCM", command, part, _write_first_try(results))


def _write_first_try(results: Results) -> str:
    """Return the first try of `fedcm-anytime` on CIFAR-100, against the same runs of FedCM; empty without runs."""
    entry = results["momentum-first"].get_entry("fedcm-anytime", "cifar100")
    own = results["momentum"].get_entry("fedcm", "cifar100")
    if entry is None or own is None:
        return ""
    tried = f"The first try on CIFAR-100, `{results['momentum-first'].study.shown_command}`: `fedcm-anytime`"
    difference = Difference(entry, own)
    if difference.has_diverged:
        return f"{tried} {format_mean(entry)}, FedCM {format_mean(own)}."
    contrast = difference.contrast
    points = mark_pair(f"{format_signed(contrast.difference)} points", difference)
    text = (
        f"{tried} {format_mean(entry)}, which is {points} from FedCM (95 % interval {format_interval(contrast)}, "
        f"Cohen's d {format_size(difference)})."
    )
    return join_parts(text, explain_pairs([difference]))
