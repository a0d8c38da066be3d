"""A model and loss as functions of one flat vector."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from fedcm.core.problem import Problem
from fedcm.data.dataset import Examples
from fedcm.errors import UserError


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(3 * 4, 5)).double()


BATCH = Examples(
    torch.randn(6, 1, 4, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64),
    torch.tensor([0, 1, 2, 3, 4, 0]),
)


def plain_gradient(model: nn.Module, batch: Examples) -> torch.Tensor:
    loss = F.cross_entropy(model(batch.features), batch.labels)
    return torch.cat([g.reshape(-1) for g in torch.autograd.grad(loss, list(model.parameters()))])


def test_the_gradient_is_the_models_gradient() -> None:
    problem = Problem(network())
    assert torch.equal(problem.gradient(BATCH)(problem.initial_params), plain_gradient(network(), BATCH))


def test_the_models_parameters_are_views_of_the_vector() -> None:
    problem = Problem(network())
    params = problem.initial_params
    first = next(problem.bind(params).parameters())
    assert first.data_ptr() == params.data_ptr()
    params.add_(1.0)
    assert torch.equal(first.detach().reshape(-1), params[: first.numel()])


def test_a_gradient_at_other_parameters_does_not_change_the_vector() -> None:
    problem = Problem(network())
    params = problem.initial_params
    gradient = problem.gradient(BATCH)
    here, before = gradient(params), params.clone()
    elsewhere = gradient(params + 0.5)
    assert torch.equal(params, before)
    assert torch.equal(gradient(params), here)
    assert not torch.equal(elsewhere, here)


def test_gradients_of_two_calls_do_not_share_memory() -> None:
    problem = Problem(network())
    params = problem.initial_params
    gradient = problem.gradient(BATCH)
    first = gradient(params)
    kept = first.clone()
    gradient(params + 1.0)
    assert torch.equal(first, kept)


def test_weight_decay_in_the_loss_is_part_of_the_gradient() -> None:
    problem = Problem(network(), weight_decay=0.1)
    params = problem.initial_params
    torch.testing.assert_close(problem.gradient(BATCH)(params), plain_gradient(network(), BATCH) + 0.1 * params)


def test_clipping_bounds_the_gradient_including_decay() -> None:
    problem = Problem(network(), weight_decay=0.1, clip=0.01)
    params = problem.initial_params
    whole = plain_gradient(network(), BATCH) + 0.1 * params
    torch.testing.assert_close(problem.gradient(BATCH)(params), whole * 0.01 / whole.norm())


def test_a_gradient_within_the_bound_is_not_clipped() -> None:
    problem = Problem(network(), clip=1e6)
    assert torch.equal(problem.gradient(BATCH)(problem.initial_params), plain_gradient(network(), BATCH))


def test_the_full_gradient_is_the_mean_over_all_pieces() -> None:
    many = Examples(BATCH.features.repeat(200, 1, 1, 1)[:1111], BATCH.labels.repeat(200)[:1111])
    problem = Problem(network(), weight_decay=0.01)
    params = problem.initial_params
    expected = plain_gradient(network(), many) + 0.01 * params
    torch.testing.assert_close(problem.full_gradient(many)(params), expected)


def test_the_full_loss_is_the_mean_over_all_pieces() -> None:
    many = Examples(BATCH.features.repeat(200, 1, 1, 1), BATCH.labels.repeat(200))
    problem = Problem(network(), weight_decay=3.0)
    _, loss = problem.full_gradient_and_loss(problem.initial_params, many)
    expected = F.cross_entropy(network()(BATCH.features), BATCH.labels).item()
    assert loss == pytest.approx(expected, rel=1e-12), "without weight decay, as in metrics"


def test_autocast_is_bfloat16_only_if_requested() -> None:
    model = nn.Linear(3, 2)
    with Problem(model, autocast=True).autocast():
        assert model(torch.ones(1, 3)).dtype == torch.bfloat16
    with Problem(model).autocast():
        assert model(torch.ones(1, 3)).dtype == torch.float32


def test_random_numbers_of_the_model_are_a_function_of_the_seed() -> None:
    problem = Problem(nn.Linear(3, 2))
    with torch.random.fork_rng(devices=[]):
        drawn = []
        for seed in (5, 6, 5):
            problem.reseed(seed)
            drawn.append(torch.rand(3))
    assert torch.equal(drawn[0], drawn[2])
    assert not torch.equal(drawn[0], drawn[1])


def test_only_full_batches_run_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def compiled(model: nn.Module, dynamic: bool) -> nn.Module:
        assert dynamic is False
        return lambda features: calls.append(len(features)) or model(features)  # type: ignore[return-value]

    monkeypatch.setattr(torch, "compile", compiled)
    problem = Problem(network())
    some = Examples(BATCH.features[:2], BATCH.labels[:2])

    def step(*batches: Examples) -> list[int]:
        calls.clear()
        for batch in batches:
            problem.gradient(batch)(problem.initial_params)
        return list(calls)

    assert step(BATCH, some) == []
    problem.compile_for(6)
    assert step(BATCH, some, BATCH) == [6, 6]
    problem.compile_for(None)
    assert step(BATCH, some) == []


def test_the_hash_of_constants_covers_names_types_and_values() -> None:
    def model(frozen: float = 1.0, buffer: float = 2.0, **more: Any) -> nn.Module:
        made = nn.Linear(2, 1)
        made.bias = nn.Parameter(torch.full((1,), frozen), requires_grad=False)
        made.register_buffer(more.get("name", "kept"), torch.tensor([buffer, 1.0], dtype=more.get("dtype")))
        return made

    one = Problem(model()).hash_constants()
    assert one is not None
    assert Problem(model()).hash_constants() == one, "trained parameters are not hashed"
    others = [model(frozen=3.0), model(buffer=3.0), model(name="other"), model(dtype=torch.float16)]
    assert len({one, *(Problem(other).hash_constants() for other in others)}) == 5
    assert Problem(nn.Linear(2, 1)).hash_constants() is None


class FailsBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        raise LookupError("lost")


def fail(*given: Any) -> Any:
    raise LookupError("lost")


@pytest.mark.parametrize(
    ("model", "loss", "note"),
    [
        (lambda x: fail(), F.cross_entropy, "in the model"),
        (None, fail, "in the loss"),
        (FailsBackward.apply, F.cross_entropy, "in the backward pass"),
    ],
)
def test_an_error_has_a_note_about_the_stage_of_the_step(model: Any, loss: Any, note: str) -> None:
    class Own(nn.Linear):
        def forward(self, input: torch.Tensor) -> Any:
            outputs = super().forward(input)
            return outputs if model is None else model(outputs)

    problem = Problem(Own(3, 5), loss)
    with pytest.raises(LookupError, match="lost") as failure:
        problem.gradient(Examples(torch.ones(2, 3), torch.tensor([0, 1])))(problem.initial_params)
    assert failure.value.__notes__ == [note]


def test_a_lazy_module_raises_with_its_own_path() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.ReLU(), nn.LazyLinear(3)))
    with pytest.raises(UserError, match=r"got the lazy LazyLinear at '1\.1'; pass one batch through the model first"):
        Problem(model)


def test_the_loss_is_that_of_the_first_call() -> None:
    problem = Problem(network())
    gradient = problem.gradient(BATCH)
    gradient(problem.initial_params)
    first = gradient.loss
    gradient(problem.initial_params + 3.0)
    assert first is not None
    assert gradient.loss is first


def test_frozen_parameters_are_not_in_the_vector() -> None:
    model = network()
    model[0].requires_grad_(False)  # pyright: ignore[reportIndexIssue, reportCallIssue, reportArgumentType]
    assert Problem(model).size == 3 * 4 * 5 + 5


def test_a_parameter_that_the_loss_does_not_use_has_gradient_zero() -> None:
    class Unused(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.unused = nn.Linear(2, 2), nn.Linear(2, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.used(x)

    problem = Problem(Unused())
    gradient = problem.gradient(Examples(torch.ones(1, 2), torch.tensor([1])))(problem.initial_params)
    assert torch.equal(gradient[6:], torch.zeros(6))


@pytest.mark.parametrize(
    "model",
    [
        nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)),
        nn.BatchNorm1d(4),
        nn.SyncBatchNorm(4),
        nn.InstanceNorm2d(4, affine=True, track_running_stats=True),
    ],
)
def test_batch_norm_in_training_mode_raises_with_the_reason_and_remedies(model: nn.Module) -> None:
    message = r"trained last; use nn.GroupNorm instead, freeze the module .* or give it track_running_stats=False"
    with pytest.raises(UserError, match=message):
        Problem(model)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (nn.ReLU(), "must have parameters"),
        (nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2).double()), "one dtype"),
        (nn.LazyLinear(3), "know its shapes"),
    ],
)
def test_models_that_cannot_be_trained_raise(model: nn.Module, message: str) -> None:
    with pytest.raises(UserError, match=message):
        Problem(model)
