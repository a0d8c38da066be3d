"""Minibatches: every example once per pass, in a new order, as a function of (seed, round, client)."""

from itertools import chain

import numpy as np
import pytest
import torch

from fedcm.data.batches import LocalWork
from fedcm.data.dataset import Examples
from fedcm.data.structures.tree import select_rows

DATA = Examples(torch.arange(23.0)[:, None], torch.arange(23))


def draw_labels(work: LocalWork, seed: int = 1, round: int = 2, client: int = 3) -> list[list[int]]:
    return [batch.labels.tolist() for batch in work.draw_batches(DATA, seed, round, client)]


def test_every_example_is_used_once_in_every_pass() -> None:
    batches = draw_labels(LocalWork(batch_size=5, epochs=3))
    assert [len(batch) for batch in batches] == [5, 5, 5, 5, 3] * 3
    for start in (0, 5, 10):
        assert sorted(chain.from_iterable(batches[start : start + 5])) == list(range(23))


def test_features_and_labels_stay_together() -> None:
    for batch in LocalWork(batch_size=4).draw_batches(DATA, 0, 0, 0):
        assert batch.features[:, 0].tolist() == batch.labels.tolist()


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_selected_images_keep_their_memory_layout(layout: torch.memory_format) -> None:
    images = torch.arange(4 * 3 * 2 * 5.0).reshape(4, 3, 2, 5).contiguous(memory_format=layout)
    selected = select_rows(images, torch.tensor([2, 0, 2]))
    assert torch.equal(selected, torch.stack([images[2], images[0], images[2]]))
    assert selected.is_contiguous(memory_format=layout)
    rows = torch.arange(6.0).reshape(3, 2)
    assert select_rows(rows, torch.tensor([1])).tolist() == [[2.0, 3.0]]


@pytest.mark.parametrize(
    ("work", "sizes"),
    [
        (LocalWork(batch_size=50, epochs=2), [[50, 50, 20], [50, 50, 20]]),
        (LocalWork(batch_size=50, steps=4), [[50, 50, 20], [50]]),
        (LocalWork(batch_size=200, steps=1), [[120]]),
    ],
)
def test_batch_sizes_are_listed_per_pass(work: LocalWork, sizes: list[list[int]]) -> None:
    assert work.list_batch_sizes(120, work.count_steps(120, 0, 0, 0)) == sizes


def test_every_pass_has_its_own_order_different_from_that_of_the_data() -> None:
    batches = draw_labels(LocalWork(batch_size=23, epochs=3))
    assert len({tuple(batch) for batch in [*batches, list(range(23))]}) == 4


@pytest.mark.parametrize("other", [{"seed": 9}, {"round": 9}, {"client": 9}])
def test_another_seed_round_or_client_draws_another_order(other: dict[str, int]) -> None:
    work = LocalWork(batch_size=5)
    assert draw_labels(work) == draw_labels(work)
    assert draw_labels(work) != draw_labels(work, **other)


def test_a_number_of_steps_uses_as_many_passes_as_needed() -> None:
    batches = draw_labels(LocalWork(batch_size=10, steps=5))
    assert [len(batch) for batch in batches] == [10, 10, 3, 10, 10]
    assert len(draw_labels(LocalWork(batch_size=10, steps=2))) == 2


@pytest.mark.parametrize(("examples", "steps_per_pass"), [(1, 1), (4, 1), (5, 1), (6, 2), (10, 2), (11, 3), (100, 20)])
def test_the_step_count_matches_the_drawn_batches(examples: int, steps_per_pass: int) -> None:
    data = Examples(torch.zeros(examples, 1), torch.zeros(examples))
    for work, steps in (
        (LocalWork(5, epochs=2), 2 * steps_per_pass),
        (LocalWork(5, steps=7), 7),
        (LocalWork(5), steps_per_pass),
    ):
        assert work.count_steps(examples, seed=1, round=2, client=3) == steps
        assert len(list(work.draw_batches(data, 0, 0, 0))) == steps


@pytest.mark.parametrize("work", [LocalWork(5, epochs=2), LocalWork(5, steps=7), LocalWork(100, epochs=3)], ids=str)
def test_stacked_minibatches_are_those_of_each_client(work: LocalWork) -> None:
    sizes, clients = np.array([1, 4, 5, 6, 23]), [3, 8, 9, 20, 21]
    index, weights = work.draw_stacked_indices(sizes, 0, 2, clients)
    for row, (size, client) in enumerate(zip(sizes.tolist(), clients, strict=True)):
        own = list(work.draw_indices(size, 0, 2, client))
        for step in range(index.shape[1]):
            is_example = weights[row, step] > 0
            if step < len(own):
                assert index[row, step][is_example].tolist() == own[step].tolist()
                assert weights[row, step].sum() == pytest.approx(1.0)
                assert len(set(weights[row, step][is_example].tolist())) == 1
            else:
                assert not is_example.any()
