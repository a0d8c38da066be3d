"""Validation data are held back before the split, at random, by the seed alone."""

import numpy as np
import pytest
import torch

import fedcm
from fedcm.data.dataset import Dataset, Examples
from fedcm.data.federated import ArrayData
from fedcm.data.partition import Dirichlet, Natural
from fedcm.data.validation import hold_back
from fedcm.errors import UserError
from fedcm.rng import Purpose, make_generator
from fedcm.runs.data_split import draw_split, draw_validation

DRAW = torch.Generator().manual_seed(3)
X, Y = torch.randn(60, 2, generator=DRAW), torch.randint(4, (60,), generator=DRAW)


@pytest.mark.parametrize(("share", "count"), [(0.1, 6), (0.29, 17), (0.999, 59), (1 / 60, 1)])
def test_the_share_is_rounded_down_and_nothing_is_lost(share: float, count: int) -> None:
    drawn = hold_back(60, share, seed=1)
    assert len(drawn.validation) == count
    assert sorted([*drawn.validation, *drawn.remaining]) == list(range(60))


def test_the_subset_is_the_permutation_of_its_own_purpose() -> None:
    expected = np.sort(make_generator(5, Purpose.VALIDATION).permutation(60)[:15])
    assert (hold_back(60, 0.25, seed=5).validation == expected).all()
    assert (hold_back(60, 0.25, seed=6).validation != expected).any()


def test_every_owner_gives_its_share_and_keeps_an_example() -> None:
    owners = np.repeat([2, 0, 1], [1, 9, 5])
    drawn = hold_back(15, 0.5, seed=2, owners=owners)
    assert np.bincount(owners[drawn.validation], minlength=3).tolist() == [4, 2, 0]
    assert np.bincount(owners[drawn.remaining]).tolist() == [5, 3, 1]


def test_nothing_to_hold_back_is_an_error() -> None:
    with pytest.raises(UserError, match=r"at least one example, and 0.1 of each of the 3 clients \(at most 9"):
        hold_back(15, 0.1, seed=2, owners=np.repeat([2, 0, 1], [1, 9, 5]))


def test_a_split_over_clients_shares_what_remains() -> None:
    dataset = Dataset("made", Examples(X, Y), None, 4)
    held_back = draw_validation(Dirichlet(5), dataset, 7, 0.2)
    assert held_back is not None
    parts = draw_split(Dirichlet(5), dataset, 7, held_back.remaining)
    assert sorted([*np.concatenate(parts), *held_back.validation]) == list(range(60))
    literal = Dirichlet(5).partition(Y[held_back.remaining].numpy(), make_generator(7, Purpose.SPLIT))
    assert all((held_back.remaining[one] == other).all() for one, other in zip(literal, parts, strict=True))


def test_slices_are_the_held_back_examples_and_checksums_name_them() -> None:
    dataset = Dataset("made", Examples(X, Y), None, 4)
    data = ArrayData(dataset, [np.arange(10, 60)], held_back=np.arange(10))
    assert data.validation_size == 10
    assert torch.equal(data.validation_slice(2, 7).features, X[2:7])
    assert set(data.checksums()) - set(ArrayData(dataset, [np.arange(10, 60)]).checksums()) == {"validation"}


def test_given_examples_are_the_validation_set() -> None:
    clients = [(X[:30], Y[:30]), (X[30:], Y[30:])]
    experiment = fedcm.make_experiment(
        torch.nn.Linear(2, 4), clients, fedcm.FedAvg(), rounds=1, validation=(X[5:9], Y[5:9])
    )
    data = experiment.build().runner.data
    assert torch.equal(data.validation_slice(0, 4).features, X[5:9])
    assert data.sizes(np.arange(2)).tolist() == [30, 30]
    assert {"validation_features", "validation_labels"} <= set(data.checksums())


def test_a_share_of_data_with_validation_examples_is_an_error() -> None:
    dataset = Dataset("made", Examples(X, Y), None, 4, validation=Examples(X[:7], Y[:7]))
    with pytest.raises(UserError, match="have 7 validation examples already"):
        draw_validation(Natural(), dataset, 0, 0.1)


def test_clients_on_demand_need_given_examples() -> None:
    clients = fedcm.ClientsOnDemand(population=3, client=lambda number: (X, Y), size=60, classes=4)
    model = torch.nn.Linear(2, 4)
    with pytest.raises(UserError, match=r"data.validation cannot be a share of them, got 0.1; give ClientsOnDemand"):
        fedcm.train(model, clients, fedcm.FedAvg(), rounds=1, validation=0.1)
    result = fedcm.train(model, clients, fedcm.FedAvg(), rounds=1, validation=(X[:8], Y[:8]))
    with torch.no_grad():
        right = (result.model(X[:8]).argmax(1) == Y[:8]).double().mean().item()
    assert result.history[-1]["validation_accuracy"] == right
