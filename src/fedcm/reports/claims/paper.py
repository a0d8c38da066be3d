"""The FedCM paper's figures and scale, read from the bundled experiments in `experiments/paper`.

No figure of the paper is repeated in the code. FedCM's default α is, because the algorithm's module needs torch.
"""

import tomllib
from collections.abc import Iterable
from functools import cache
from itertools import product
from typing import Any, NamedTuple

from fedcm.errors import UserError
from fedcm.reports.digest import Digest
from fedcm.sweeps.paper_grids import list_grid_files

DEFAULT_ALPHA = 0.1  # of `fedcm.algorithms.client_momentum.fedcm.FedCM`
UNCORRECTED = ("fedavg", "fedadam")  # their clients take plain gradient steps


class PaperFigure(NamedTuple):
    """An accuracy in percent that the paper publishes, with the scale of the experiment."""

    accuracy: float
    algorithm: str
    source: str
    clients: int
    model: str
    rounds: int


def has_paper_figures(runs: Iterable[Digest]) -> bool:
    """Return whether a run has a published figure of the paper: the rule for reports that show its claims."""
    return any(_find_figures(placement) for run in runs for placement in run.list_placements())


def describe_scale_difference(runs: Iterable[Digest]) -> str:
    """Describe how the scale of runs differs from that of the paper's figures beside them.

    Returns:
        E.g. "model resnet18 (here lenet)"; empty if the scale is the same, or the figures are not the paper's.
    """
    differences: dict[str, dict[str, None]] = {}
    for run in runs:
        figures = _find_figures(run)
        if not figures:
            continue
        clients = run.experiment["split"].get("clients")
        figure = next((figure for figure in figures if figure.clients == clients), figures[0])
        scales = [
            ("model", figure.model, run.experiment["model"]["name"]),
            ("rounds", figure.rounds, run.experiment["rounds"]),
            ("clients", figure.clients, clients),
        ]
        for name, of_paper, of_run in scales:
            if of_run != of_paper:
                differences.setdefault(f"{name} {of_paper}", {})[str(of_run)] = None
    return ", ".join(f"{of_paper} (here {' and '.join(sorted(of_runs))})" for of_paper, of_runs in differences.items())


def _find_figures(run: Digest) -> list[PaperFigure]:
    """Return the paper's figures for a run's dataset and algorithm that equal the run's published figure."""
    key = (run.published, run.algorithm, run.experiment["data"]["source"])
    return [figure for figure in read_paper_figures() if key == (figure.accuracy, figure.algorithm, figure.source)]


@cache
def read_paper_figures() -> tuple[PaperFigure, ...]:
    """Read the paper's figures from `experiments/paper`; none if these files are not installed."""
    try:
        tables = [tomllib.loads(path.read_text(encoding="utf-8")) for path in list_grid_files("figures", "full")]
    except (UserError, OSError):
        return ()
    return tuple(figure for table in tables for figure in _list_figures(table))


def _list_figures(table: dict[str, Any]) -> Iterable[PaperFigure]:
    """List the figures of one grid file; `fedcm.sweeps.grid`, which expands grids into runs, needs torch."""
    grid = table["grid"]
    for variants in product(*(axis.items() for axis in grid["axes"].values())):
        cell = {"data": table["data"], "split": table["split"], "model": table["model"]}
        for _, changes in variants:
            cell |= {name: cell[name] | changes[name] for name in cell if name in changes}
        published = grid["published"].get(" ".join(name for name, _ in variants), {})
        for algorithm, accuracy in published.items():
            source, clients, model = cell["data"]["source"], cell["split"]["clients"], cell["model"]["name"]
            yield PaperFigure(accuracy, algorithm, source, clients, model, table["rounds"])
