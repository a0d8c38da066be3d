"""Studies with a question of their own: more unequal data, bfloat16, and variants of FedCM."""

from dataclasses import replace

from fedcm.reports.claims.contrast import compare
from fedcm.reports.groups import get_algorithm_title
from fedcm.system.formatting import format_signed
from results_page.cells import format_interval, join_parts, write_table
from results_page.study_parts import write_grid_part
from results_page.study_runs import Results, StudyRuns


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


def write_precision_part(runs: StudyRuns) -> str:
    """Return the study of bfloat16, with the differences from float32."""
    part = write_grid_part(runs, "Accuracy against rounds in float32 and bfloat16")
    rows = []
    for cell in runs.cells:
        entry, exact = cell.entry, runs.get_entry(cell.algorithm, cell.column.replace("bf16", "float32"))
        if cell.labels.get("precision") == "bf16" and entry and exact and not (entry.divergence or exact.divergence):
            contrast = compare([(1, entry.list_gains()), (-1, exact.list_gains())])
            numbers = format_signed(contrast.difference), format_interval(contrast), contrast.seeds
            rows.append((cell.labels["model"], get_algorithm_title(cell.algorithm), *numbers))
    header = ("model", "algorithm", "bfloat16 − float32, points", "95 % interval", "seeds")
    return join_parts(part, write_table(header, rows, texts=2) if rows else "")


def write_variants_part(runs: StudyRuns) -> str:
    """Return the section about variants of FedCM with its heading; empty if the study is neither planned nor run."""
    if not runs.cells:
        return ""
    part = write_grid_part(runs, "Accuracy against rounds for variants of FedCM")
    return join_parts("## Variants of FedCM", f"`{runs.study.shown_command}`." if runs.has_runs else "", part)
