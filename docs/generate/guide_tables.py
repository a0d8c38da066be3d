"""Write the tables of the guides and decisions whose numbers are in results/ or in the pages of benchmarks/.

    python docs/generate/guide_tables.py

`fedcm report RUNS --digests results/NAME` writes the digests; the benchmarks write their own pages.
tests/docs/test_generated_tables.py fails if a page is out of date.
"""

from collections.abc import Callable, Mapping

import augmentation_table
import numpy as np
import text_tables
from marked_text import replace_marked
from recorded import ROOT, read_digests
from results_page.cells import write_table

from fedcm.core.topology import TOPOLOGIES, compute_mixing_matrix

BENCHMARKS = ROOT / "benchmarks"
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
NAMES = {"fedavg": "FedAvg", "fednova": "FedNova", "fedcm": "FedCM"}


def format_share(share: float, digits: int = 2) -> str:
    """Format a share in percent; trailing zeros are left out in whole percents.

    >>> format_share(0.9925), format_share(1.0)
    ('99.25 %', '100 %')
    """
    text = f"{100 * share:.{digits}f}"
    return f"{text.rstrip('0').rstrip('.')} %" if float(text).is_integer() else f"{text} %"


def format_distance(distance: float) -> str:
    """Format a distance with two digits; below a thousandth as a power of ten.

    >>> format_distance(0.078), format_distance(5.6e-7)
    ('0.078', '5.6·10⁻⁷')
    """
    if distance >= 1e-3:
        return f"{distance:.2g}"
    mantissa, exponent = f"{distance:.1e}".split("e")
    return f"{mantissa}·10{str(int(exponent)).translate(SUPERSCRIPTS)}"


def write_graphs() -> str:
    """Return the table of decentralised training on several graphs."""
    runs = {run.graph: run for run in read_digests("decentralised")}
    rows = []
    for graph in ("ring", "torus", "exponential", "complete"):
        run = runs[graph]
        nodes = run.experiment["split"]["clients"]
        weights = compute_mixing_matrix(TOPOLOGIES[graph](), nodes, seed=run.seed)
        gap = 1 - np.sort(np.abs(np.linalg.eigvalsh(weights)))[-2]
        distance = run.curve.consensus_distance[-1]
        assert run.accuracy
        assert distance is not None
        cells = [f"`{graph}`", str((weights > 0).sum(1).max() - 1), f"{gap:.3f}", f"{100 * run.accuracy['last']:.1f} %"]
        rows.append(
            [*cells, format_distance(distance), f"{run.summary['bytes_up'] / run.summary['rounds'] / 1e6:.2f} MB"]
        )
    head = ("graph", "neighbours per node", "spectral gap", "accuracy", "consensus distance", "sent per round")
    return write_table(head, rows)


def write_stragglers() -> str:
    """Return the table of late and partial reports."""
    rows = []
    for policy in ("drop", "partial"):
        runs = {run.algorithm: run for run in read_digests(f"stragglers/{policy}")}
        for algorithm, name in NAMES.items():
            run = runs[algorithm]
            assert run.accuracy
            cells = [f"`{policy}`", name, f"{100 * run.accuracy['mean_last']:.1f} %"]
            cells += [f"{run.summary['missed_reports']}", f"{run.summary['simulated_seconds']:,.0f}"]
            rows.append([*cells, f"{run.summary['bytes_up'] / 1e6:.1f} MB"])
    head = ("policy", "algorithm", "accuracy", "reports missed", "simulated seconds", "sent up")
    return write_table(head, rows, texts=2)


def write_personal() -> str:
    """Return the table of personal layers and of one common model."""
    runs = {run.name: run for run in read_digests("personal")}
    rows = []
    for name, words in (("heads", "personal last layer"), ("common", "one common model")):
        summary = runs[name].summary
        clients = summary["clients"]
        cells = [words, f"{100 * clients['mean']:.2f} %", f"{100 * clients['std']:.2f}"]
        cells += [format_share(clients[key], 1) for key in ("p10", "worst")]
        rows.append([*cells, f"{summary['bytes_up'] // summary['rounds']:,} bytes"])
    return write_table(("", "mean", "standard deviation", "worst tenth", "worst", "sent up per round"), rows)


def write_own_loss() -> str:
    """Return the scores of the best evaluation and of the last one."""
    (run,) = read_digests("own-loss")
    names = ("validation_f1", "validation_all_right", "test_f1", "test_all_right")
    columns = {name: run.curve.get_column(name) for name in names}
    scores = [value for value in columns["validation_f1"] if value is not None]
    best = columns["validation_f1"].index(max(scores))
    rows = []
    for place in (best, len(run.curve.round) - 1):
        values = [columns[name][place] for name in names]
        rows.append([str(run.curve.round[place] - 1), *("" if value is None else f"{value:.4f}" for value in values)])
    return write_table(("round", *(f"`{name}`" for name in names)), rows, texts=0)


def read_section(page: str, title: str) -> list[str]:
    """Return the lines of the table in a section of a benchmark's page."""
    _, _, after = (BENCHMARKS / page).read_text(encoding="utf-8").partition(f"## {title}\n")
    return [line for line in after.partition("\n## ")[0].splitlines() if line.startswith("|")]


def copy_tables(page: str, *titles: str) -> str:
    """Return the tables of some sections as one; all have the same head."""
    first, *others = (read_section(page, title) for title in titles)
    return "\n".join([*first, *(line for lines in others for line in lines[2:])])


PAGES: Mapping[str, Mapping[str, Callable[[], str]]] = {
    "guides/decentralised.md": {"decentralised": write_graphs},
    "guides/heterogeneity.md": {"stragglers": write_stragglers},
    "guides/personal-layers.md": {"personal": write_personal},
    "guides/own-loss.md": {"own-loss": write_own_loss},
    "guides/federation.md": {
        "rounded-messages": lambda: copy_tables("ROUNDING.md", "Rounded messages, digits"),
        "rounded-messages-cifar10": lambda: copy_tables("ROUNDING.md", "Rounded messages, cifar10"),
    },
    "decisions/0006-rounded-client-states.md": {
        "rounded-states": lambda: copy_tables(
            "ROUNDING.md", "Rounded client states, digits", "Rounded client states, cifar10"
        )
    },
    "guides/text.md": {
        "text-alphas": text_tables.write_alphas,
        "text-rates": text_tables.write_rates,
        "text-server-rates": text_tables.write_server_rates,
        "text-result": text_tables.write_result,
    },
    "guides/cifar-augmentation.md": {"augmentation": augmentation_table.write_runs},
    "guides/robustness.md": {
        "norm-ratios": lambda: copy_tables("NORM_RATIOS.md", "Largest norms, largest shares and lowest cosines")
    },
}


def fill_page(name: str) -> str:
    """Return a page of docs/ with its generated tables."""
    page = (ROOT / "docs" / name).read_text(encoding="utf-8")
    for part, write in PAGES[name].items():
        page = replace_marked(page, part, write())
    return page


if __name__ == "__main__":
    for name in PAGES:
        (ROOT / "docs" / name).write_text(fill_page(name), encoding="utf-8")
