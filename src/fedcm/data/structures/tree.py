"""Structures of tensors: a tensor, or a tuple, list or dict of such structures.

The features of a batch are one tensor for images; a pair for a model of two inputs; a dict for a model that takes its
inputs by name. A leaf is a tensor, or a `Ragged` if the examples have unequal lengths. Every leaf has one row per
example.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from fedcm.data.structures.ragged import Ragged

Tree = Any  # a leaf, or a tuple, list or dict of trees


def is_leaf(tree: Tree) -> bool:
    """Return whether this is a tensor or a `Ragged`, and not a structure of them."""
    return isinstance(tree, Tensor | Ragged)


def map_leaves(function: Callable[..., Any], tree: Tree, *others: Tree) -> Tree:
    """Apply a function to every leaf, and return the results in the same structure.

    Args:
        function: Called with a leaf, and with the leaves at the same place of the other trees.
        tree: The structure.
        *others: Structures of the same form.

    >>> map_leaves(len, {"a": torch.zeros(2), "b": (torch.zeros(3), torch.zeros(4))})
    {'a': 2, 'b': (3, 4)}
    """
    if isinstance(tree, Mapping):
        return {key: map_leaves(function, part, *[other[key] for other in others]) for key, part in tree.items()}
    if isinstance(tree, tuple | list):
        return tuple(map_leaves(function, *parts) for parts in zip(tree, *others, strict=True))
    return function(tree, *others)


def list_leaves(tree: Tree) -> list[Any]:
    """Return the leaves in the order of the structure."""
    return [leaf for _, leaf in iterate_leaves(tree)]


def iterate_leaves(tree: Tree, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every leaf with its path, such as `features.input_ids` or `features.0`.

    Args:
        tree: The structure.
        path: The path of the structure itself.
    """
    if isinstance(tree, Mapping):
        children = list(tree.items())
    elif isinstance(tree, tuple | list):
        children = list(enumerate(tree))
    else:
        yield path, tree
        return
    for key, part in children:
        yield from iterate_leaves(part, _join_path(path, key))


def _join_path(path: str, key: object) -> str:
    return f"{path}.{key}" if path else str(key)


def iterate_tensors(tree: Tree, path: str = "") -> Iterator[tuple[str, Tensor]]:
    """Yield every tensor with its path; a `Ragged` is two of them."""
    for place, leaf in iterate_leaves(tree, path):
        if isinstance(leaf, Ragged):
            yield f"{place}.values", leaf.values
            yield f"{place}.lengths", leaf.lengths
        else:
            yield place, leaf


def describe_tree(tree: Tree) -> Any:
    """Return the structure as JSON: each leaf as the shape of one row, its dtype, and whether lengths are unequal.

    >>> describe_tree((torch.zeros(5, 3), torch.zeros(5, dtype=torch.int64)))
    [{'shape': [3], 'dtype': 'float32', 'ragged': False}, {'shape': [], 'dtype': 'int64', 'ragged': False}]
    """
    if isinstance(tree, Mapping):
        return {"fields": {key: describe_tree(part) for key, part in tree.items()}}
    if isinstance(tree, tuple | list):
        return [describe_tree(part) for part in tree]
    ragged = isinstance(tree, Ragged)
    shape = list(tree.values.shape[1:] if ragged else tree.shape[1:])
    return {"shape": shape, "dtype": str(tree.dtype).removeprefix("torch."), "ragged": ragged}


def rebuild_tree(description: Any, make_leaf: Callable[[str, Mapping[str, Any]], Any], path: str = "") -> Tree:
    """Return a structure from what `describe_tree` returned.

    Args:
        description: The description.
        make_leaf: Called with the path and the description of each leaf.
        path: The path of the structure itself.
    """
    if isinstance(description, list):
        return tuple(rebuild_tree(part, make_leaf, _join_path(path, k)) for k, part in enumerate(description))
    if "fields" in description:
        fields = description["fields"].items()
        return {key: rebuild_tree(part, make_leaf, _join_path(path, key)) for key, part in fields}
    return make_leaf(path, description)


def count_rows(tree: Tree) -> int:
    """Return the number of examples: the rows of the first leaf."""
    return len(list_leaves(tree)[0])


def select_rows(tree: Tree, index: Tensor) -> Tree:
    """Return the rows at `index`; images in channels_last keep that layout and are copied one whole image at a time."""
    if isinstance(tree, Tensor):
        if tree.dim() == 4 and tree.is_contiguous(memory_format=torch.channels_last):
            return tree.permute(0, 2, 3, 1).index_select(0, index).permute(0, 3, 1, 2)
        return tree.index_select(0, index)
    if isinstance(tree, Ragged):
        return tree[index]
    return map_leaves(lambda leaf: select_rows(leaf, index), tree)


def slice_rows(tree: Tree, start: int, stop: int) -> Tree:
    """Return the rows from `start` to `stop`."""
    return tree[start:stop] if is_leaf(tree) else map_leaves(lambda leaf: leaf[start:stop], tree)


def concatenate_rows(trees: list[Tree]) -> Tree:
    """Return the rows of several structures of one form, one after another."""
    return map_leaves(_concatenate, *trees)


def _concatenate(*leaves: Any) -> Any:
    if any(isinstance(leaf, Ragged) for leaf in leaves):
        ragged = [leaf if isinstance(leaf, Ragged) else Ragged.from_list(list(leaf)) for leaf in leaves]
        return Ragged(torch.cat([one.values for one in ragged]), torch.cat([one.lengths for one in ragged]))
    return torch.cat(leaves)


def are_equal(tree: Tree, other: Tree) -> bool:
    """Return whether two structures have the same form and the same values."""
    one, two = list(iterate_tensors(tree)), list(iterate_tensors(other))
    if [path for path, _ in one] != [path for path, _ in two]:
        return False
    return all(torch.equal(a, b) for (_, a), (_, b) in zip(one, two, strict=True))
