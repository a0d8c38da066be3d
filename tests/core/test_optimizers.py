"""Local optimisers: against a loop with torch.optim, and the identities of algorithms that must still hold."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch_optimizers import make_torch_optimizer

import fedcm
from fedcm.config.choices import describe_optimizer, read_optimizer
from fedcm.core.local.optimizers import OptimizedGradient
from fedcm.data.batches import LocalWork
from fedcm.errors import UserError

TABLES: dict[str, dict[str, Any]] = {
    "plain": {"name": "sgd"},
    "momentum": {"name": "sgd", "momentum": 0.9},
    "dampened": {"name": "sgd", "momentum": 0.9, "dampening": 0.3},
    "nesterov": {"name": "sgd", "momentum": 0.8, "nesterov": True},
    "adam": {"name": "adam"},
    "adam, other betas": {"name": "adam", "betas": [0.7, 0.9], "eps": 1e-4},
    "adamw": {"name": "adamw", "weight_decay": 0.1},
}
SIZES = (3, 9, 4, 8, 14)  # K_i = 1, 3, 1, 2, 4 with batches of 4
USUAL: dict[str, Any] = {"rounds": 4, "batch_size": 4, "lr": 0.02, "seed": 5}


def make_clients(sizes: tuple[int, ...] = SIZES) -> list[tuple[torch.Tensor, torch.Tensor]]:
    draw = torch.Generator().manual_seed(1)
    return [(torch.randn(size, 3, generator=draw) + k / 5, torch.arange(size) % 2) for k, size in enumerate(sizes)]


def make_model() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()


def flatten(model: nn.Module) -> torch.Tensor:
    return torch.cat([parameter.detach().reshape(-1) for parameter in model.parameters()])


def train(algorithm: Any, optimizer: Any = None, **settings: Any) -> torch.Tensor:
    given = read_optimizer(optimizer)
    return flatten(fedcm.train(make_model(), make_clients(), algorithm, optimizer=given, **USUAL | settings).model)


@pytest.mark.parametrize("name", TABLES)
def test_fedavg_with_one_client_is_a_loop_with_torch(name: str) -> None:
    """With fresh state in every round."""
    ((x, y),) = make_clients((14,))
    expected, work = make_model(), LocalWork(4, 2)
    for round in range(5):
        optimizer = make_torch_optimizer(TABLES[name], expected.parameters(), lr=0.02)
        for index in work.draw_indices(14, 5, round, 0):
            optimizer.zero_grad()
            nn.functional.cross_entropy(expected(x[index].double()), y[index]).backward()
            optimizer.step()
    given = USUAL | {"rounds": 5, "epochs": 2, "optimizer": read_optimizer(TABLES[name])}
    trained = fedcm.train(make_model(), [(x, y)], fedcm.FedAvg(), **given).model
    torch.testing.assert_close(flatten(trained), flatten(expected), rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", TABLES)
def test_identities_between_algorithms_hold(name: str) -> None:
    """Clients take equally many steps, because FedCM divides by each client's own number."""
    plain = train(fedcm.FedAvg(), TABLES[name], steps=3)
    for same in (fedcm.FedCM(1.0), fedcm.FedProx(0.0), fedcm.FedAvgM(0.0), fedcm.SlowMo(0.0), fedcm.FedNova()):
        torch.testing.assert_close(train(same, TABLES[name], steps=3), plain, rtol=0, atol=1e-12)
    one, other = (train(same, TABLES[name]) for same in (fedcm.MoFedSAM(0.3, 0.0), fedcm.FedCM(0.3)))
    torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


def test_plain_sgd_changes_no_bit() -> None:
    for stack in (1, 3):
        assert torch.equal(train(fedcm.FedCM(), stack=stack), train(fedcm.FedCM(), {"name": "sgd"}, stack=stack))


def test_an_optimiser_changes_the_result() -> None:
    results = [train(fedcm.FedCM(0.3), TABLES[name]) for name in TABLES]
    apart = [float((one - other).abs().max()) for k, one in enumerate(results) for other in results[:k]]
    assert min(apart) > 1e-5


@pytest.mark.parametrize("name", ["nesterov", "adamw"])
def test_workers_and_resumes_give_the_same_bits(name: str) -> None:
    optimizer, clients = read_optimizer(TABLES[name]), make_clients()
    settings: dict[str, Any] = USUAL | {"optimizer": optimizer, "step_schedule": fedcm.Cosine(final=0.2)}
    whole = fedcm.train(make_model(), clients, fedcm.Scaffold(), **settings)
    settings["rounds"] = 2
    half = fedcm.train(make_model(), clients, fedcm.Scaffold(), **settings, workers=2)
    rest = fedcm.train(make_model(), clients, fedcm.Scaffold(), **settings, resume_from=half.state)
    assert torch.equal(flatten(rest.model), flatten(whole.model))
    with pytest.raises(UserError, match="with the same settings, and they differ"):
        fedcm.train(make_model(), clients, fedcm.Scaffold(), **USUAL, resume_from=half.state)


def test_calls_in_one_step_start_from_one_state_and_the_last_counts() -> None:
    """After two calls in a step, the state is that of the second call; a step without a call keeps its state."""
    optimizer, params = fedcm.SGD(momentum=0.5), torch.zeros(1)
    first = OptimizedGradient(optimizer, lambda params: params + 1, optimizer.init(params), 0)
    assert first(torch.tensor([0.0])).tolist() == [1.0]
    second = OptimizedGradient(optimizer, lambda params: params + 1, first.state, 1)
    assert second(torch.tensor([9.0])).tolist() == [10.5]
    assert second(torch.tensor([1.0])).tolist() == [2.5]
    assert second.state.momentum.tolist() == [2.5]
    unused = OptimizedGradient(optimizer, lambda params: params, second.state, 2)
    assert unused.state is second.state


def test_an_algorithm_may_change_the_returned_vector() -> None:
    for optimizer in (fedcm.SGD(momentum=0.5), fedcm.SGD(momentum=0.5, nesterov=True), fedcm.Adam(), fedcm.AdamW()):
        gradient = OptimizedGradient(optimizer, lambda params: params + 1, optimizer.init(torch.zeros(2)), 0)
        moved = gradient(torch.ones(2))
        before = [field.clone() for field in gradient.state]
        moved.mul_(7)
        assert all(torch.equal(one, other) for one, other in zip(before, gradient.state, strict=True))


@pytest.mark.parametrize("name", TABLES)
def test_a_table_is_described_as_it_was_read(name: str) -> None:
    described = describe_optimizer(read_optimizer(TABLES[name]))
    assert described is not None
    assert {key: described[key] for key in TABLES[name]} == TABLES[name]
    assert read_optimizer(described) == read_optimizer(TABLES[name])


@pytest.mark.parametrize("algorithm", [fedcm.Scaffold("I"), fedcm.Mime(), fedcm.MimeLite(), fedcm.FedDANE()], ids=str)
def test_algorithms_that_use_full_gradients_need_plain_sgd(algorithm: Any) -> None:
    with pytest.raises(UserError, match=r"over all data of a client.* so it needs plain sgd, got 'adam'$"):
        train(algorithm, {"name": "adam"})
    assert torch.equal(train(algorithm), train(algorithm, {"name": "sgd"}))


def test_numbers_of_numpy_become_pythons_own() -> None:
    adam = fedcm.AdamW(betas=(np.float64(0.5), np.float64(0.9)), weight_decay=np.float32(0.5))  # pyright: ignore[reportArgumentType]
    assert [type(value) for value in (*adam.betas, adam.weight_decay)] == [float] * 3


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: fedcm.SGD(momentum=1.0), "momentum and dampening must be at least 0 and below 1, got 1.0 and 0.0"),
        (lambda: fedcm.SGD(nesterov=True), "nesterov needs momentum above 0 and dampening 0"),
        (lambda: fedcm.SGD(momentum="much"), "momentum must be a number, got 'much'"),  # pyright: ignore[reportArgumentType]
        (lambda: fedcm.Adam(betas=(0.9, 1.0)), r"betas must be at least 0 and below 1, got \[0.9, 1.0\]"),
        (lambda: fedcm.Adam(betas=(0.9,)), "betas must be two numbers"),  # pyright: ignore[reportArgumentType]
        (lambda: fedcm.Adam(eps=0.0), "eps must be above 0 and at most 1e6, got 0.0"),
        (lambda: fedcm.AdamW(weight_decay=-0.1), "weight_decay must be at least 0 and at most 1e6, got -0.1"),
        (lambda: read_optimizer("adam"), r"^client.optimizer must be a table such as \{name = \"adam\"\}"),
        (lambda: read_optimizer(fedcm.Adam), r"^client.optimizer must be a table such as"),
        (lambda: read_optimizer({"name": "adom"}), "there is no client.optimizer 'adom'; did you mean 'adam'"),
        (lambda: read_optimizer({"name": "adam", "lr": 0.1}), "client.optimizer 'adam' has no setting 'lr'"),
    ],
)
def test_a_wrong_optimiser_gives_one_sentence(make: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        make()
