"""Write the tables and figures of docs/results.md and docs/in-practice.md from the digests in results/.

    python docs/generate/results_tables.py

A generated part is between `<!-- tables of NAME -->` and `<!-- end of NAME -->`; everything else is written by hand.
`fedcm report RUNS --digests results/STUDY` writes the digests. tests/docs/test_results_page.py fails if the pages are
out of date.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

from marked_text import replace_marked
from results_page import overview, practice
from results_page.cells import join_parts
from results_page.equal_rounds import write_window
from results_page.figure_data import list_figures
from results_page.local_work import write_equal_examples, write_local_work
from results_page.losses import write_losses
from results_page.round_tables import write_alpha_part, write_family_part, write_resnet_part
from results_page.search_table import write_search_part
from results_page.setting_tables import write_decay_part, write_setting_part
from results_page.studies import ROOT
from results_page.study_parts import write_grid_part
from results_page.study_runs import Results, read_results
from results_page.target_costs import write_target_costs
from results_page.tuned import write_tuned_part
from results_page.variants import (
    write_fashion_part,
    write_heterogeneity_part,
    write_precision_part,
    write_variants_part,
)

DOCS = ROOT / "docs"
FIVE = "Accuracy against rounds for five algorithms, one panel per cell"
Parts = Mapping[str, Callable[[Results], str]]
PAGES: Mapping[str, Parts] = {
    "results.md": {
        "studies": overview.write_studies,
        "claims": overview.write_claims,
        "table1": lambda results: join_parts(
            write_grid_part(results["table1"], FIVE),
            write_losses(results["table1"]),
            write_local_work(results["table1"]),
            write_target_costs(results["table1"], (0.5, 0.55, 0.6)),
        ),
        "table2": lambda results: join_parts(
            write_grid_part(results["table2"], FIVE),
            write_losses(results["table2"]),
            write_local_work(results["table2"]),
            write_equal_examples(results["table2"]),
            write_target_costs(results["table2"], (0.15, 0.2, 0.25)),
            write_window(results["table2"]),
        ),
        "table3": lambda results: write_alpha_part(results["table3"]),
        "weight-decay": write_decay_part,
        "heterogeneity": write_heterogeneity_part,
        "resnet8": lambda results: write_resnet_part(results["resnet8"]),
        "resnet18": lambda results: join_parts(
            write_grid_part(
                results["resnet18"], "Accuracy against rounds with ResNet-18, without and with augmentation"
            ),
            write_losses(results["resnet18"]),
        ),
        "cnn": lambda results: write_grid_part(results["cnn"], "Accuracy against rounds with the CNN"),
        "fashion": lambda results: write_fashion_part(results["fashion"]),
        "shakespeare": lambda results: write_grid_part(
            results["shakespeare"], "Accuracy against rounds on Shakespeare's plays"
        ),
        "precision": lambda results: write_precision_part(results["precision"]),
        "one-setting": write_setting_part,
        "tuned": lambda results: write_tuned_part(),
        "momentum-search": lambda results: write_search_part(),
        "momentum": write_variants_part,
        "family": lambda results: write_family_part(results["family"]),
        "equal-runs": overview.write_equal_runs,
    },
    "in-practice.md": {
        "leads": practice.write_leads,
        "rates": practice.write_rates,
        "start": practice.write_start,
        "alphas": practice.write_alphas,
        "costs": practice.write_costs,
        "times": lambda results: practice.write_times(),
        "clipping": practice.write_clipping,
        "decay": practice.write_decay,
    },
}


def fill_page(page: str, parts: Parts, results: Results) -> str:
    """Return a page with its generated parts."""
    for name, write in parts.items():
        page = replace_marked(page, name, write(results))
    return page


def update_pages(results: Results, folder: Path = DOCS) -> None:
    """Write the generated parts of the pages and all figures; figures without runs are removed."""
    for name, parts in PAGES.items():
        path = folder / name
        path.write_text(fill_page(path.read_text(encoding="utf-8"), parts, results), encoding="utf-8")
    figures = list_figures(results)
    for path in folder.glob("results-*.png"):
        if path.stem.removeprefix("results-") not in figures:
            path.unlink()
    for name, figure in figures.items():
        figure.draw(folder / f"results-{name}.png")


if __name__ == "__main__":
    update_pages(read_results())
