"""Turn selected examples into the batch that a model takes: pad sequences, or call the user's own function."""

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from fedcm.data.dataset import IGNORED, Examples
from fedcm.data.structures.ragged import Ragged
from fedcm.data.structures.tree import list_leaves, map_leaves
from fedcm.errors import UserError
from fedcm.system.error_messages import describe_error

Collate = Callable[[Examples], Examples]
UserCollate = Callable[[list[Any]], Any]  # list of examples -> (features, labels), or a dict with the key "labels"


def pad_examples(examples: Examples) -> Examples:
    """Pad sequences of unequal lengths to the longest one: features with 0, labels with -100, which no loss counts."""
    features, labels = examples
    if isinstance(features, Tensor) and isinstance(labels, Tensor):
        return examples
    return Examples(
        map_leaves(lambda leaf: _pad(leaf, 0), features), map_leaves(lambda leaf: _pad(leaf, IGNORED), labels)
    )


def _pad(leaf: Any, value: int) -> Tensor:
    return leaf.pad(value) if isinstance(leaf, Ragged) else leaf


def make_collate(function: UserCollate) -> Collate:
    """Return the function from selected examples to a batch that calls a user's own.

    The user's function gets a list with one pair (features, labels) per example; if features are given by name, a dict
    with these names and "labels".
    """

    def collate(examples: Examples) -> Examples:
        result = function(split_examples(examples))
        return _read_batch(result, examples.size)

    return collate


def split_examples(examples: Examples) -> list[Any]:
    """Return the examples one by one: pairs (features, labels), or dicts if features are given by name."""
    rows = [
        (map_leaves(lambda leaf: leaf[row], examples.features), map_leaves(lambda leaf: leaf[row], examples.labels))  # noqa: B023
        for row in range(examples.size)
    ]
    if isinstance(examples.features, Mapping):
        return [{**features, "labels": labels} for features, labels in rows]
    return rows


def _read_batch(result: Any, size: int) -> Examples:
    if isinstance(result, Mapping) and "labels" in result:
        batch = Examples({key: value for key, value in result.items() if key != "labels"}, result["labels"])
    elif isinstance(result, tuple | list) and len(result) == 2:
        batch = Examples(*result)
    else:
        raise UserError(
            "data.collate must return a pair (features, labels), or a dict with the key 'labels', got "
            f"{type(result).__name__}"
        )
    for leaf in list_leaves(batch):
        if not isinstance(leaf, Tensor) or leaf.dim() == 0 or len(leaf) != size:
            given = f"shape {tuple(leaf.shape)}" if isinstance(leaf, Tensor) else type(leaf).__name__
            raise UserError(
                f"data.collate must return tensors with one row for each of the {size} examples of a batch, got {given}"
            )
    return batch


def reject_failing_collate(collate: Collate, sample: Examples) -> None:
    """Raise UserError if the user's collate function fails on some examples."""
    try:
        collate(sample)
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"data.collate failed on {sample.size} examples: {describe_error(error)}") from error
