"""The runs of the studies, in the cells that their files plan.

A cell has the runs of one algorithm that differ only in their seed.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import final

from fedcm.algorithms.registry import get_algorithm_name
from fedcm.reports.digest import Digest, read_digest
from fedcm.reports.entry import Entry
from fedcm.reports.groups import TITLES, keep_one_run_per_seed
from fedcm.sweeps.grid import GridRun, expand_grid
from results_page.studies import ROOT, STUDIES, Study

RESULTS = ROOT / "results"
_OVER = ("finished", "diverged")


@final
@dataclass(frozen=True)
class StudyCell:
    """One algorithm under one set of conditions: what is planned, and the runs that exist."""

    algorithm: str
    labels: Mapping[str, str]
    rounds: int
    seeds: int  # planned
    published: float | None
    data_and_model: tuple[str, str]
    runs: tuple[Digest, ...] = ()

    @property
    def entry(self) -> Entry | None:
        """The runs as an entry of a table; None if there are none."""
        return Entry(self.runs) if self.runs else None

    @property
    def column(self) -> str:
        """The conditions in words."""
        return " · ".join(
            "no augmentation" if one == ("augmentation", "none") else one[1] for one in self.labels.items()
        )


@final
@dataclass(frozen=True)
class StudyRuns:
    """A study with its runs."""

    study: Study
    cells: tuple[StudyCell, ...]
    digests: tuple[Digest, ...] = ()

    @property
    def has_runs(self) -> bool:
        """Whether at least one run is over."""
        return bool(self.list_runs())

    def list_runs(self) -> list[Digest]:
        """Return the runs of all cells, also those that are in the folder of another study."""
        return [run for cell in self.cells for run in cell.runs]

    def list_columns(self) -> list[str]:
        """Return the conditions, in the order of the file."""
        return list(dict.fromkeys(cell.column for cell in self.cells))

    def list_algorithms(self) -> list[str]:
        """Return the algorithms: those of the paper first, then in the order of the file."""
        names = list(dict.fromkeys(cell.algorithm for cell in self.cells))
        return [name for name in TITLES if name in names] + [name for name in names if name not in TITLES]

    def find(self, algorithm: str, column: str = "") -> StudyCell | None:
        """Return a cell; None if the study does not have it."""
        found = (cell for cell in self.cells if (cell.algorithm, cell.column) == (algorithm, column))
        return next(found, None)

    def get_entry(self, algorithm: str, column: str = "") -> Entry | None:
        """Return the runs of a cell; None if there are none."""
        cell = self.find(algorithm, column)
        return cell.entry if cell else None


@final
@dataclass(frozen=True)
class Results:
    """All studies by name."""

    studies: Mapping[str, StudyRuns] = field(default_factory=dict)

    def __getitem__(self, name: str) -> StudyRuns:
        """Return a study."""
        return self.studies[name]

    def list_digests(self, names: Iterable[str] | None = None) -> list[Digest]:
        """Return the runs of some studies, by default of all."""
        return [run for name in names or self.studies for run in self.studies[name].digests]


def read_results(folder: Path = RESULTS) -> Results:
    """Read the digests of all studies.

    Raises:
        ValueError: If a digest belongs to no cell of its study, or has another length than planned.
    """
    digests = {
        study.name: [run for path in sorted((folder / study.name).glob("*.json")) if is_over(run := read_digest(path))]
        for study in STUDIES
    }
    return Results({study.name: _fill_study(study, digests) for study in STUDIES})


def is_over(run: Digest) -> bool:
    """Return whether a run finished or diverged."""
    return run.state in _OVER


def _fill_study(study: Study, digests: Mapping[str, Sequence[Digest]]) -> StudyRuns:
    own = digests[study.name]
    planned = _list_planned_cells(study)
    for run in own:
        cell = next((cell for cell in planned if _is_in_cell(run, cell)), None)
        if cell is None:
            raise ValueError(f"{run.name} belongs to no cell of {study.path.name}")
        if _get_rounds(run) != cell.rounds:
            raise ValueError(f"{run.name} has {_get_rounds(run)} rounds, but {study.path.name} plans {cell.rounds}")
    reused = [run for name, runs in digests.items() if name != study.name for run in _list_reused(runs, planned)]
    cells = []
    for cell in planned:
        runs = [run for run in (*own, *reused) if _is_in_cell(run, cell)]
        cells.append(replace(cell, runs=tuple(keep_one_run_per_seed(runs))))
    return StudyRuns(study, tuple(cells), tuple(own))


def _list_planned_cells(study: Study) -> list[StudyCell]:
    """Return the cells of the study's file, without runs."""
    cells: dict[tuple[str, ...], list[GridRun]] = {}
    for run in _expand(study.path):
        labels = run.experiment.cell.labels
        cells.setdefault((_get_algorithm(run), *labels.values()), []).append(run)
    return [
        StudyCell(
            _get_algorithm(runs[0]),
            runs[0].experiment.cell.labels,
            runs[0].experiment.rounds,
            len(runs),
            runs[0].experiment.cell.published,
            (runs[0].experiment.data.source, runs[0].experiment.model.name),
        )
        for runs in cells.values()
    ]


@cache
def _expand(path: Path) -> list[GridRun]:
    return expand_grid(path)


def _get_algorithm(run: GridRun) -> str:
    return get_algorithm_name(run.experiment.algorithm)


def _get_rounds(run: Digest) -> int:
    return run.experiment["rounds"]


def _get_data_and_model(run: Digest) -> tuple[str, str]:
    return run.experiment["data"]["source"], run.experiment["model"]["name"]


def _is_in_cell(run: Digest, cell: StudyCell) -> bool:
    same_data = _get_data_and_model(run) == cell.data_and_model
    return run.algorithm == cell.algorithm and run.labels == cell.labels and same_data


def _list_reused(runs: Sequence[Digest], cells: Sequence[StudyCell]) -> list[Digest]:
    """Return the runs of another study that this one reused, which their digests record."""
    placements = [run.place_in_cell(cell.model_dump(exclude_none=True)) for run in runs for cell in run.other_cells]
    return [
        run
        for run in placements
        if any(_is_in_cell(run, cell) and run.labels and _get_rounds(run) == cell.rounds for cell in cells)
    ]
