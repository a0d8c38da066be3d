"""Detect datasets whose items are random, such as those with a random augmentation.

Every item is read once, and all passes of a training use that value. A random item is therefore frozen, and a warning
says so.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from fedcm.data.dataset import Examples
from fedcm.data.structures.ragged import Ragged
from fedcm.data.structures.tree import list_leaves
from fedcm.system.user_warnings import RandomDataWarning, warn_user

_PROBES = 10  # items to read twice; several, because a random flip leaves every second item unchanged

ReadItem = Callable[[int], Examples]
"""Reads one item again, as a set of one example."""


def warn_if_random(name: str, collected: Sequence[tuple[ReadItem | None, Examples]], *, held_out: bool = False) -> None:
    """Read a few items again, spread over the sets, and warn if one differs from what was collected.

    Call it after all sets have been collected: reading an item may draw from a generator that several sets share.

    Args:
        name: What the warning calls the data.
        collected: For every set, how to read an item again and the collected examples; None instead of the function
            for a set that was not read item by item.
        held_out: Whether these are test data.
    """
    sets = [(read, examples) for read, examples in collected if read is not None]
    ends = np.cumsum([examples.size for _, examples in sets])
    if not len(ends):
        return
    with restore_global_generators():
        for position in np.unique(np.linspace(0, ends[-1] - 1, _PROBES).round().astype(np.int64)).tolist():
            set_index = int(np.searchsorted(ends, position, side="right"))
            read, examples = sets[set_index]
            index = position - int(ends[set_index]) + examples.size
            if _differs(read, examples, index):
                warn_user(_make_message(name, index, held_out), RandomDataWarning)
                return


def _differs(read: ReadItem, examples: Examples, index: int) -> bool:
    try:
        again = read(index)
    except Exception:  # an item that can be read only once cannot be checked
        return False
    collected = examples.slice(index, index + 1).map(_pad_one)
    pairs = list(zip(list_leaves(tuple(again.map(_pad_one))), list_leaves(tuple(collected)), strict=True))
    if any(a.shape != b.shape for a, b in pairs):
        # an item of another length is random; an image of another shape was a mixture of channel-first and -last
        return not examples.is_simple
    return not all(torch.equal(a.double(), b.double()) for a, b in pairs)


def _pad_one(leaf: Any) -> torch.Tensor:
    """Return the only sequence of a `Ragged` as a batch of one."""
    return leaf.pad(0) if isinstance(leaf, Ragged) else leaf


def _make_message(name: str, index: int, held_out: bool) -> str:
    finding = f"{name}: the items are random (item {index} differed when it was read again), but each was drawn once"
    if held_out:
        return f"{finding} and is the same in every evaluation; leave random transforms out of test data"
    return (
        f"{finding} and is the same in every pass; for new draws set data.fresh = true (fresh=True in Python), which "
        "reads all items again in every pass, or augment each batch with data.augment, which is faster"
    )


@contextmanager
def restore_global_generators() -> Iterator[None]:
    """Restore the global generators of torch, NumPy and Python after the block."""
    python_state, numpy_state = random.getstate(), _read_numpy_state()
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        random.setstate(python_state)
        np.random.set_state(numpy_state)  # noqa: NPY002 - users' datasets draw from it


@contextmanager
def seed_global_generators(torch_seed: int) -> Iterator[None]:
    """Seed the global generators of torch, NumPy and Python, and restore them after the block."""
    with restore_global_generators():
        torch.default_generator.manual_seed(torch_seed)
        np.random.seed(torch_seed % 2**32)  # noqa: NPY002 - users' datasets draw from it
        random.seed(torch_seed)
        yield


def _read_numpy_state() -> Any:
    return np.random.get_state()  # noqa: NPY002
