"""The label mix of a run's split, drawn anew from its experiment and checked against the checksum the run kept."""

import math
from pathlib import Path
from typing import Any, final

import numpy as np

from fedcm.config.schema import read_choice
from fedcm.data import SOURCES, load
from fedcm.data.checksum import sha256
from fedcm.data.partition import SPLITS, Natural, label_counts, split_by_owner
from fedcm.errors import UserError
from fedcm.reports.digest import Mix
from fedcm.reports.figures.label_mix import spread
from fedcm.rng import Purpose, make_generator

_SHOWN = 60  # clients in a small picture
_NUMBERS = 2000  # in a digest


@final
class Mixes:
    """Each split is drawn once; `mixes(table, sha256)` is None where its data are not here or are others."""

    def __init__(self, data_dir: Path | None = None) -> None:
        self.data_dir = data_dir
        self.known: dict[str, Mix | None] = {}

    def __call__(self, table: dict[str, Any], checksum: str) -> Mix | None:
        if checksum not in self.known:
            try:
                self.known[checksum] = self._drawn(table, checksum)
            except (UserError, OSError, ValueError):
                self.known[checksum] = None
        return self.known[checksum]

    def _drawn(self, table: dict[str, Any], checksum: str) -> Mix | None:
        source = table["data"]["source"]
        if source not in SOURCES and not Path(source).exists():
            return None  # a function: a report runs nobody's code
        dataset = load(source, self.data_dir)
        if dataset.classes is None:
            return None
        labels = dataset.train.labels.numpy()
        split = read_choice(SPLITS, table["split"], "kind", "split")
        if isinstance(split, Natural) and dataset.owners is not None:
            parts = split_by_owner(dataset.owners)
        else:
            parts = split.parts(labels, make_generator(table["seed"], Purpose.SPLIT))
        sizes = np.array([len(part) for part in parts])
        if sha256(np.concatenate(parts).astype("<i8"), sizes.astype("<i8")) != checksum:
            return None
        return small(label_counts(parts, labels), checksum)


def small(counts: np.ndarray, checksum: str) -> Mix:
    clients, classes = counts.shape
    most = max(1, min(_SHOWN, _NUMBERS // classes))
    return Mix(
        sha256=checksum,
        clients=clients,
        classes=classes,
        shown=counts[:: math.ceil(clients / most)].tolist(),
        spread={name: round(value, 4) for name, value in spread(counts).items()},
    )
