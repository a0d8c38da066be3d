"""A traced function gives the same bits; a function that cannot be traced is called as before."""

import pytest
import torch
from torch import Tensor, nn
from torch.func import grad_and_value, vmap

from fedcm.core.local.stacked import StackedProblem
from fedcm.core.local.traced_function import TracedFunction
from fedcm.core.problem import Problem
from fedcm.data.dataset import Examples
from fedcm.models import build_model


@pytest.mark.parametrize(("name", "shape"), [("linear", (12,)), ("mlp", (12,)), ("lenet", (3, 16, 16))])
def test_a_traced_stack_has_the_same_bits(name: str, shape: tuple[int, ...]) -> None:
    draw = torch.Generator().manual_seed(0)
    stacked = StackedProblem(Problem(build_model(name, shape, 5, {}, 0), weight_decay=0.01, clip=0.1))
    stacked._gradient = TracedFunction(vmap(grad_and_value(stacked._loss)), trace_after=2)
    plain = StackedProblem(stacked.problem)
    weights = torch.full((3, 4), 0.25)
    params = stacked.problem.initial_params.repeat(3, 1)
    for call in range(5):
        examples = Examples(torch.randn(3, 4, *shape, generator=draw), torch.randint(5, (3, 4), generator=draw))
        gradient, loss = stacked.compute_gradient(params, examples, weights)
        expected, its_loss = plain.compute_gradient(params, examples, weights)
        assert torch.equal(gradient, expected)
        assert torch.equal(loss, its_loss)
        assert stacked._gradient.traced_shapes == (call >= 2)
        params = params - 0.1 * gradient


def test_each_shape_is_traced_separately() -> None:
    traced = TracedFunction(lambda x: (x.sum(-1),), trace_after=1)
    for width in (2, 3, 2, 3, 2):
        assert traced(torch.ones(2, width))[0].tolist() == [width, width]
    assert traced.traced_shapes == 2


def test_a_function_that_branches_on_values_is_not_traced() -> None:
    traced = TracedFunction(lambda x: (x if x.sum().item() > 0 else -x,), trace_after=1)
    for sign in (1.0, -1.0, 1.0, -1.0, 1.0):
        assert traced(torch.tensor([sign]))[0].item() == 1.0
    assert traced.traced_shapes == 0


def test_a_function_that_changes_between_calls_is_not_traced() -> None:
    calls = []

    def counting(x: Tensor) -> tuple[Tensor, ...]:
        calls.append(x)
        return (x * len(calls),)

    traced = TracedFunction(counting, trace_after=1)
    for _ in range(4):
        traced(torch.ones(1))
    assert traced.traced_shapes == 0


class Scaled(nn.Module):
    scale: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)
        self.register_buffer("scale", torch.ones(1))

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) * self.scale


def test_a_trace_reads_the_current_buffers() -> None:
    model = Scaled()
    stacked = StackedProblem(Problem(model))
    stacked._gradient = TracedFunction(vmap(grad_and_value(stacked._loss)), trace_after=1)
    params, weights = stacked.problem.initial_params.repeat(2, 1), torch.full((2, 4), 0.25)
    examples = Examples(torch.randn(2, 4, 3), torch.ones(2, 4, dtype=torch.int64))
    before = [stacked.compute_gradient(params, examples, weights)[0] for _ in range(3)][-1]
    assert stacked._gradient.traced_shapes == 1
    model.scale.fill_(2.0)
    after = stacked.compute_gradient(params, examples, weights)[0]
    assert not torch.equal(after, before)
    assert torch.equal(after, StackedProblem(stacked.problem).compute_gradient(params, examples, weights)[0])
