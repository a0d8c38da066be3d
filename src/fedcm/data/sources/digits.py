"""The digits that come with scikit-learn: 1797 images of 8 × 8 in 17 greys, 10 classes. Nothing to download.

They bring no test set, so 360 of them are held out here, the same in every run whatever its seed, each class in its
proportion.
"""

from pathlib import Path

import numpy as np
import torch

from fedcm.data.checksum import sha256
from fedcm.data.dataset import Dataset, Examples, Normalisation

_TEST_SIZE = 360
_HELD_OUT = 20210621  # the division is part of every published result: never change it


def load(_: Path | None = None) -> Dataset:
    """1437 training and 360 test images, bytes (n, 1, 8, 8) from 0 to 16."""
    from sklearn.datasets import load_digits  # takes a second to import

    pixels, labels = load_digits(return_X_y=True)
    images, labels = pixels.reshape(-1, 1, 8, 8).astype(np.uint8), labels.astype(np.int64)
    held_out = _held_out(labels)
    parts = {"train": ~held_out, "test": held_out}
    return Dataset(
        "digits",
        train=Examples(torch.from_numpy(images[~held_out]), torch.from_numpy(labels[~held_out])),
        test=Examples(torch.from_numpy(images[held_out]), torch.from_numpy(labels[held_out])),
        classes=10,
        normalisation=Normalisation(mean=(0.3050,), std=(0.3757,), scale=16.0),
        checksums={f"{part}_features": sha256(images[chosen]) for part, chosen in parts.items()}
        | {f"{part}_labels": sha256(labels[chosen].astype(np.uint8)) for part, chosen in parts.items()},
    )


def _held_out(labels: np.ndarray) -> np.ndarray:
    """(n,) bool: the images of each class are shuffled, then every class gives its share by largest remainder."""
    chance = np.random.Generator(np.random.Philox(np.random.SeedSequence(_HELD_OUT)))
    exact = np.bincount(labels) * _TEST_SIZE / len(labels)
    share = np.floor(exact).astype(int)
    share[np.argsort(share - exact, kind="stable")[: _TEST_SIZE - share.sum()]] += 1
    held_out = np.zeros(len(labels), bool)
    for label, count in enumerate(share):
        held_out[chance.permutation(np.flatnonzero(labels == label))[:count]] = True
    return held_out
