"""The digits that come with scikit-learn: 1797 images of 8 × 8 pixels in 17 greys, 10 classes. Nothing to download.

scikit-learn has no test set for them. Here 360 images are the test set, stratified by class, the same for every seed.
"""

import importlib.util
from pathlib import Path

import numpy as np
import torch

from fedcm.data.dataset import Dataset, Examples, Normalisation
from fedcm.system.checksum import compute_sha256

_TEST_SIZE = 360
_TEST_SEED = 20210621  # part of every published result: never change it


def load_digits(_: Path | None = None) -> Dataset:
    """Load 1437 training and 360 test images, bytes (n, 1, 8, 8) from 0 to 16."""
    table = np.loadtxt(_find_file(), delimiter=",", dtype=np.int64)
    images, labels = table[:, :-1].reshape(-1, 1, 8, 8).astype(np.uint8), table[:, -1].copy()
    held_out = _choose_test_set(labels)
    parts = {"train": ~held_out, "test": held_out}
    return Dataset(
        "digits",
        train=Examples(torch.from_numpy(images[~held_out]), torch.from_numpy(labels[~held_out])),
        test=Examples(torch.from_numpy(images[held_out]), torch.from_numpy(labels[held_out])),
        classes=10,
        normalisation=Normalisation(mean=(0.3050,), std=(0.3757,), scale=16.0),
        checksums={f"{part}_features": compute_sha256(images[chosen]) for part, chosen in parts.items()}
        | {f"{part}_labels": compute_sha256(labels[chosen].astype(np.uint8)) for part, chosen in parts.items()},
    )


def _find_file() -> Path:
    """Return scikit-learn's file of the digits; importing scikit-learn to read it would take half a second."""
    spec = importlib.util.find_spec("sklearn")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "datasets" / "data" / "digits.csv.gz"


def _choose_test_set(labels: np.ndarray) -> np.ndarray:
    """Return a mask (n,): random images of each class, whose number follows from its share by largest remainder."""
    generator = np.random.Generator(np.random.Philox(np.random.SeedSequence(_TEST_SEED)))
    exact = np.bincount(labels) * _TEST_SIZE / len(labels)
    share = np.floor(exact).astype(int)
    share[np.argsort(share - exact, kind="stable")[: _TEST_SIZE - share.sum()]] += 1
    held_out = np.zeros(len(labels), bool)
    for label, count in enumerate(share):
        held_out[generator.permutation(np.flatnonzero(labels == label))[:count]] = True
    return held_out
