"""Detects datasets whose items are random, such as those with a random augmentation.

Every item is read once, and all passes of a training use what was read. So a random item is frozen, and a
warning says so.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from fedcm.data.dataset import Examples
from fedcm.system.notices import RandomDataWarning, warn

_PROBES = 10  # items read twice; one that is flipped or not, by chance, is the same again in one of two cases

ReadItem = Callable[[int], Examples]  # an item read anew, as a set of one example


def warn_if_random(name: str, collected: Sequence[tuple[ReadItem | None, Examples]], *, held_out: bool = False) -> None:
    """Reads a few items again, spread over the sets, and warns if one differs from what was collected.

    Call it when all sets have been collected: reading an item may draw from a generator that several of them share.

    Args:
        name: What the warning calls the data.
        collected: For every set how to read an item of it anew, and its examples; None for a set that was not read item
            by item.
        held_out: Whether these are test data.
    """
    sets = [(read, examples) for read, examples in collected if read is not None]
    ends = np.cumsum([examples.size for _, examples in sets])
    if not len(ends):
        return
    with _global_generators_kept():
        for place in np.unique(np.linspace(0, ends[-1] - 1, _PROBES).round().astype(np.int64)).tolist():
            which = int(np.searchsorted(ends, place, side="right"))
            read, examples = sets[which]
            index = place - int(ends[which]) + examples.size
            if _differs(read, examples, index):
                warn(_sentence(name, index, held_out), RandomDataWarning)
                return


def _differs(read: ReadItem, examples: Examples, index: int) -> bool:
    try:
        again = read(index)
    except Exception:  # it can be read but once: nothing is known, and nothing is lost
        return False
    kept = Examples(examples.features[index : index + 1], examples.labels[index : index + 1])
    pairs = list(zip(again, kept, strict=True))
    if any(a.shape != b.shape for a, b in pairs):  # images whose channels come first in some items and last in others
        return False
    return not all(torch.equal(a.double(), b.double()) for a, b in pairs)


def _sentence(name: str, index: int, held_out: bool) -> str:
    found = f"{name}: the items are random (item {index} differed when it was read again), but each was drawn once"
    if held_out:
        return f"{found} and is the same in every evaluation; leave random transforms out of test data"
    return (
        f"{found} and is the same in every pass; for a new draw in every step, put the random transform into your "
        "model's forward, where self.training is true"
    )


@contextmanager
def _global_generators_kept() -> Iterator[None]:
    """What is drawn inside leaves no trace in the generators of torch, numpy and Python."""
    state, kept = random.getstate(), _numpy_state()
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        random.setstate(state)
        np.random.set_state(kept)  # noqa: NPY002 - datasets of others draw from it


def _numpy_state() -> Any:
    return np.random.get_state()  # noqa: NPY002
