"""Structures of tensors, sequences of unequal lengths, padding, and the user's own collate function."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.utils.data import default_collate

from fedcm.data.dataset import IGNORED, Examples, count_scored_labels
from fedcm.data.structures.collate import make_collate, pad_examples, reject_failing_collate
from fedcm.data.structures.ragged import Ragged
from fedcm.data.structures.tree import (
    are_equal,
    concatenate_rows,
    count_rows,
    describe_tree,
    iterate_leaves,
    iterate_tensors,
    list_leaves,
    map_leaves,
    rebuild_tree,
    select_rows,
    slice_rows,
)
from fedcm.data.user_data import convert_to_examples
from fedcm.errors import UserError

sequences = st.lists(st.lists(st.integers(-99, 99), min_size=1, max_size=7), min_size=1, max_size=9)


def make_ragged(lists: list[list[int]]) -> Ragged:
    return Ragged.from_list([torch.tensor(one) for one in lists])


def to_lists(ragged: Ragged) -> list[list[int]]:
    return [ragged[row].tolist() for row in range(len(ragged))]


def make_tree() -> dict[str, Any]:
    return {
        "ids": make_ragged([[1, 2, 3], [4], [5, 6], [7]]),
        "pair": (torch.arange(8.0).reshape(4, 2), torch.arange(4)),
        "images": torch.arange(4 * 3 * 2 * 5.0).reshape(4, 3, 2, 5).contiguous(memory_format=torch.channels_last),
    }


@given(sequences, st.data())
def test_unequal_sequences_behave_as_a_list_of_lists(lists: list[list[int]], data: st.DataObject) -> None:
    ragged = make_ragged(lists)
    assert to_lists(ragged) == lists
    assert ragged[-1].tolist() == lists[-1]
    assert ragged.shape == (len(lists), max(map(len, lists)))
    index = data.draw(st.lists(st.integers(0, len(lists) - 1), max_size=12))
    assert to_lists(ragged[torch.tensor(index, dtype=torch.int64)]) == [lists[row] for row in index]
    start, stop = data.draw(st.integers(0, 9)), data.draw(st.integers(0, 12))
    assert to_lists(ragged[start:stop]) == lists[start:stop]
    longest = max(map(len, lists))
    assert ragged.pad(-1).tolist() == [one + [-1] * (longest - len(one)) for one in lists]


@given(sequences, sequences)
def test_concatenation_of_unequal_sequences_is_that_of_lists(one: list[list[int]], other: list[list[int]]) -> None:
    assert to_lists(concatenate_rows([make_ragged(one), make_ragged(other)])) == one + other
    equal = torch.tensor([[1, 2], [3, 4]])
    assert to_lists(concatenate_rows([equal, make_ragged(other)])) == [[1, 2], [3, 4], *other]


def test_another_dtype_leaves_the_lengths_alone() -> None:
    ragged = make_ragged([[1, 2], [3]]).to(torch.float64)
    assert ragged.dtype == torch.float64
    assert ragged.is_floating_point()
    assert ragged.lengths.tolist() == [2, 1]


def test_leaves_have_paths_in_the_order_of_the_structure() -> None:
    tree = make_tree()
    assert [path for path, _ in iterate_leaves(tree, "x")] == ["x.ids", "x.pair.0", "x.pair.1", "x.images"]
    assert [path for path, _ in iterate_tensors(tree)] == ["ids.values", "ids.lengths", "pair.0", "pair.1", "images"]
    assert count_rows(tree) == 4
    assert map_leaves(len, tree) == {"ids": 4, "pair": (4, 4), "images": 4}


def test_selected_rows_are_the_rows_of_every_leaf() -> None:
    tree, index = make_tree(), [3, 0, 0]
    chosen = select_rows(tree, torch.tensor(index))
    for leaf, whole in zip(list_leaves(chosen), list_leaves(tree), strict=True):
        assert all(torch.equal(leaf[k], whole[row]) for k, row in enumerate(index))
    assert chosen["images"].is_contiguous(memory_format=torch.channels_last)
    assert are_equal(slice_rows(tree, 1, 3), select_rows(tree, torch.tensor([1, 2])))


def test_structures_are_equal_only_with_equal_form_and_values() -> None:
    tree = make_tree()
    assert are_equal(tree, make_tree())
    assert not are_equal(tree, tree | {"pair": tree["pair"][:1]})
    assert not are_equal(tree, tree | {"ids": make_ragged([[1, 2], [3, 4], [5, 6], [7]])})
    assert not are_equal(tree, {key: tree[key] for key in ("ids", "pair")})


def test_a_description_rebuilds_the_structure() -> None:
    tree = make_tree()
    leaves = dict(iterate_leaves(tree))
    assert are_equal(rebuild_tree(describe_tree(tree), lambda path, leaf: leaves[path]), tree)
    assert describe_tree(tree)["fields"]["ids"] == {"shape": [], "dtype": "int64", "ragged": True}


def test_a_field_may_have_any_name() -> None:
    tree = {"fields": torch.zeros(2), "shape": {"dtype": torch.ones(2)}}
    leaves = dict(iterate_leaves(tree))
    assert are_equal(rebuild_tree(describe_tree(tree), lambda path, leaf: leaves[path]), tree)


# batches


def test_features_are_padded_with_0_and_labels_with_ignored_ones() -> None:
    features, labels = pad_examples(Examples({"a": make_ragged([[1, 2], [3]])}, make_ragged([[5], [6, 7]])))
    assert features["a"].tolist() == [[1, 2], [3, 0]]
    assert labels.tolist() == [[5, IGNORED], [6, 7]]
    assert count_scored_labels(labels) == 3


def test_a_collate_function_gets_the_examples_one_by_one() -> None:
    seen = []

    def collate(examples: Sequence[Any]) -> Any:
        seen.extend(examples)
        return default_collate(list(examples))

    x, y = torch.arange(6.0).reshape(3, 2), torch.tensor([2, 0, 1])
    assert are_equal(tuple(make_collate(collate)(Examples(x, y))), (x, y))
    assert [label.item() for _, label in seen] == [2, 0, 1]
    seen.clear()
    named = make_collate(collate)(Examples({"x": x}, y))
    assert are_equal(tuple(named), ({"x": x}, y))
    assert [set(one) for one in seen] == [{"x", "labels"}] * 3


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (None, "must return a pair .* got NoneType"),
        ({"x": torch.zeros(2)}, "must return a pair .* got dict"),
        ((torch.zeros(2), torch.zeros(2), torch.zeros(2)), "must return a pair .* got tuple"),
        ((torch.zeros(2), torch.zeros(3)), r"one row for each of the 2 examples .* got shape \(3,\)"),
        ((torch.zeros(2), torch.tensor(1.0)), r"one row for each of the 2 examples .* got shape \(\)"),
        (([1, 2], torch.zeros(2)), "one row for each of the 2 examples .* got int"),
    ],
)
def test_a_collate_function_that_returns_nonsense_is_rejected(result: Any, message: str) -> None:
    collate = make_collate(lambda examples: result)
    with pytest.raises(UserError, match=message):
        reject_failing_collate(collate, Examples(torch.zeros(2, 1), torch.zeros(2)))


def test_a_collate_function_that_raises_is_rejected() -> None:
    with pytest.raises(UserError, match=r"data.collate failed on 2 examples: .*division"):
        reject_failing_collate(make_collate(lambda _: 1 / 0), Examples(torch.zeros(2, 1), torch.zeros(2)))


# the user's data

Y = torch.tensor([0, 1, 2])


class Items(torch.utils.data.Dataset[Any]):
    """A torch dataset of given items."""

    def __init__(self, *items: Any) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> Any:
        return self.items[index]


def to_ids(*numbers: int) -> Tensor:
    return torch.tensor(numbers)


@pytest.mark.parametrize(
    ("whole", "items"),
    [
        (((torch.eye(3), Y), Y), [(torch.eye(3)[k], Y[k], Y[k]) for k in range(3)]),
        (((torch.eye(3), Y), Y), [((torch.eye(3)[k], Y[k]), Y[k]) for k in range(3)]),
        ({"a": torch.eye(3), "labels": Y}, [{"a": torch.eye(3)[k], "labels": k} for k in range(3)]),
        (((Y + 5, Y), Y), [(k + 5, k, k) for k in range(3)]),
        (({"a": {"b": torch.eye(3)}}, Y), [({"a": {"b": torch.eye(3)[k]}}, k) for k in range(3)]),
        ((torch.eye(3), {"p": Y, "q": -Y.float()}), [(torch.eye(3)[k], {"p": k, "q": -float(k)}) for k in range(3)]),
        (
            {"ids": [to_ids(1, 2), to_ids(3), to_ids(4)], "labels": Y},
            [{"ids": [1, 2], "labels": 0}, {"ids": [3], "labels": 1}, {"ids": [4], "labels": 2}],
        ),
        (torch.utils.data.TensorDataset(torch.eye(3), Y, Y), [(torch.eye(3)[k], Y[k], Y[k]) for k in range(3)]),
    ],
    ids=["three", "pair", "dict", "numbers", "nested", "labels", "unequal", "tensor-dataset"],
)
def test_a_whole_set_and_its_items_give_the_same_examples(whole: Any, items: list[Any]) -> None:
    assert are_equal(tuple(convert_to_examples(whole)), tuple(convert_to_examples(Items(*items))))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"image": torch.zeros(3, 8, dtype=torch.uint8), "labels": Y}, r"features\['image'\]: bytes are normalised"),
        ({"image": torch.zeros(3, 8), "label": Y}, "a dict of them with the key 'labels', got dict"),
        (Items({"a": 1.0}), "a pair .* or a dict with the key 'labels', got dict at index 0"),
        (
            Items({"a": 1.0, "labels": 0}, {"b": 1.0, "labels": 0}),
            r"the same keys in x, got \['a'\] at index 0 and \['b'\] at index 1",
        ),
        (Items((1.0, 2.0, 0), (1.0, 0)), "the same parts in x, got 2 at index 0"),
        (
            Items(([1, 2], torch.tensor([0.5, 1.0])), ([1, 2], torch.tensor([0.5]))),
            "float labels must have one length, because there is no number that a loss ignores",
        ),
        (Items(([1], to_ids(0)), ([1, 2], to_ids())), "must have at least one element each, but labels of example 1"),
        (Items(({"a": "text"}, 0)), r"features\['a'\]: features must be numbers"),
        (({"a": torch.eye(3), "b": torch.eye(2)}, Y), "must have the same length, got 3 and 2 and 3"),
        (({}, Y), "must be a torch dataset"),
        ((torch.eye(3), torch.full((3, 2), -3)), "labels must be 0 or more, got -3"),
        ((torch.eye(3), torch.tensor([[0, IGNORED], [IGNORED, IGNORED], [1, 1]])), "all labels of example 1 are -100"),
        (Items(([1], to_ids(0)), ([1, 2], to_ids(IGNORED, IGNORED))), "all labels of example 1 are -100"),
        ((torch.eye(3), torch.tensor([0, IGNORED, 1])), "labels must be 0 or more, got -100"),
    ],
)
def test_data_that_cannot_be_used_are_rejected_in_one_sentence(data: Any, message: str) -> None:
    with pytest.raises(UserError, match=message) as error:
        convert_to_examples(data)
    assert "\n" not in str(error.value)
