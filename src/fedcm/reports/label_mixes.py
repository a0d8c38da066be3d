"""Find the label mix of a run: draw the split of its experiment again and count the labels of each client."""

import math
from pathlib import Path
from typing import Any, final

import numpy as np

from fedcm.config.schema import read_choice
from fedcm.data import SOURCES, load_dataset
from fedcm.data.client_tests import hold_out_of_clients
from fedcm.data.partition import SPLITS, count_labels, measure_label_mix
from fedcm.errors import UserError
from fedcm.reports.digest import LabelMix
from fedcm.runs.data_split import draw_split, draw_validation
from fedcm.system.checksum import compute_sha256

_MAX_CLIENTS = 60  # in a label mix
_MAX_COUNTS = 2000  # numbers in a label mix


@final
class LabelMixFinder:
    """Draws the split of an experiment again and returns its label mix. Each split is drawn once.

    The result is None if the dataset is not on this machine, its labels are not classes, a function makes the data, or
    the checksum differs from the one that the run recorded.
    """

    def __init__(self, data_dir: Path | None = None) -> None:
        self.data_dir = data_dir
        self._cache: dict[str, LabelMix | None] = {}

    def __call__(self, table: dict[str, Any], checksum: str) -> LabelMix | None:
        """Return the label mix of the experiment's split if the split has this checksum."""
        if checksum not in self._cache:
            try:
                self._cache[checksum] = self._draw(table, checksum)
            except (UserError, OSError, ValueError):
                self._cache[checksum] = None
        return self._cache[checksum]

    def _draw(self, table: dict[str, Any], checksum: str) -> LabelMix | None:
        source = table["data"]["source"]
        if source not in SOURCES and not Path(source).exists():
            return None  # a function: a report runs no code of the user
        dataset = load_dataset(source, self.data_dir)
        if dataset.classes is None:
            return None
        split, seed = read_choice(SPLITS, table["split"], "kind", "split"), table["seed"]
        held_back = draw_validation(split, dataset, seed, table["data"].get("validation"))
        parts = draw_split(split, dataset, seed, held_back and held_back.remaining)
        if (own := table.get("evaluation", {}).get("clients")) is not None:
            parts = hold_out_of_clients(parts, own, seed).training
        sizes = np.array([len(part) for part in parts])
        if compute_sha256(np.concatenate(parts).astype("<i8"), sizes.astype("<i8")) != checksum:
            return None
        return _sample_label_mix(count_labels(parts, dataset.train.labels.numpy()), sizes, checksum)


def _sample_label_mix(counts: np.ndarray, sizes: np.ndarray, checksum: str) -> LabelMix:
    clients, classes = counts.shape
    most = max(1, min(_MAX_CLIENTS, _MAX_COUNTS // classes))
    return LabelMix(
        sha256=checksum,
        clients=clients,
        classes=classes,
        shown=counts[:: math.ceil(clients / most)].tolist(),
        spread={name: round(value, 4) for name, value in measure_label_mix(counts, sizes).items()},
    )
