"""Each problem has the constants, the minimum and the gradients that it says it has."""

import math

import numpy as np
import pytest
import torch
from made import KINDS, problem, quadratics

from fedcm.refusal import Refused
from fedcm.theory.known_problem import KnownProblem, dissimilarity
from fedcm.theory.logistic import digits_logistic
from fedcm.theory.quadratics import Quadratics
from fedcm.theory.ridge import digits_ridge
from fedcm.theory.saturating import Saturating


def client_gradients(known: KnownProblem, points: torch.Tensor) -> torch.Tensor:
    """(R, N, d) at points (R, d)."""
    everyone = torch.arange(known.clients).expand(len(points), -1)
    return known.client_gradients(everyone)(points.unsqueeze(-2).expand(-1, known.clients, -1))


def places(known: KnownProblem, draw: np.random.Generator, count: int = 10) -> torch.Tensor:
    return known.optimum + 2 * torch.from_numpy(draw.normal(size=(count, known.dimension)))


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_are_those_of_the_value_and_the_mean_of_the_clients(kind: str) -> None:
    for number in range(30):
        draw = np.random.default_rng([1, number])
        known = problem(kind, draw)
        points = places(known, draw).requires_grad_()
        (slopes,) = torch.autograd.grad(known.value(points).sum(), points)
        assert torch.allclose(known.gradient(points.detach()), slopes, rtol=1e-10, atol=1e-12)
        assert torch.allclose(client_gradients(known, points.detach()).mean(1), slopes, rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("kind", KINDS)
def test_every_client_is_as_smooth_and_as_convex_as_stated(kind: str) -> None:
    for number in range(30):
        draw = np.random.default_rng([2, number])
        known = problem(kind, draw)
        x, y = places(known, draw, 50), places(known, draw, 50)
        apart = client_gradients(known, x) - client_gradients(known, y)
        way = (x - y).unsqueeze(1)
        assert bool((apart.norm(dim=-1) <= known.constants.smoothness * way.norm(dim=-1) * (1 + 1e-9)).all())
        convex = (apart * way).sum(-1) - known.constants.strong_convexity * way.square().sum(-1)
        assert kind == "saturating" or bool((convex >= -1e-9 * way.square().sum(-1)).all())


@pytest.mark.parametrize("kind", KINDS)
def test_the_minimum_is_one(kind: str) -> None:
    for number in range(30):
        draw = np.random.default_rng([3, number])
        known = problem(kind, draw)
        assert float(known.gradient(known.optimum).norm()) <= 1e-10
        assert abs(float(known.value(known.optimum)) - known.least) <= 1e-12
        assert bool((known.value(places(known, draw, 50)) >= known.least).all())


@pytest.mark.parametrize("known", [digits_ridge(), digits_logistic()], ids=["ridge", "logistic"])
def test_the_digits_minimum_is_found_to_1e_minus_10_and_its_constants_are_sharp(known: KnownProblem) -> None:
    assert float(known.gradient(known.optimum).norm()) <= 1e-10
    mean = client_gradients(known, known.optimum[None])[0].mean(0)
    assert float(mean.norm()) <= 1e-10
    c = known.constants
    assert c.strong_convexity == pytest.approx(0.01, rel=1e-6)
    assert 5 < c.smoothness / c.strong_convexity < 100
    assert c.dissimilarity > 0.05  # clients of unlike labels do differ
    away = known.optimum + 1e-4 * torch.eye(known.dimension, dtype=torch.float64)
    steepest = (client_gradients(known, away) - client_gradients(known, known.optimum[None])).norm(dim=-1).max() / 1e-4
    assert steepest <= c.smoothness * (1 + 1e-6)


def test_quadratics_have_exactly_the_constants_that_were_set() -> None:
    for number in range(50):
        known = quadratics(np.random.default_rng([4, number]))
        assert float(known.curvatures.min()) == pytest.approx(known.strong_convexity, rel=1e-12)
        assert float(known.curvatures.max()) == pytest.approx(known.smoothness, rel=1e-12)
        assert float(dissimilarity(known, known.optimum[None])) == pytest.approx(known.dissimilarity, rel=1e-9)
        assert torch.allclose(known.curvatures.mean(0), known.eigenvalues, rtol=1e-12)


def test_at_no_spread_the_dissimilarity_is_the_same_everywhere_and_with_a_spread_it_is_not() -> None:
    points = torch.tensor([[0.0, 0.0, 0.0], [9.0, -5.0, 2.0]], dtype=torch.float64)
    even, spread = (Quadratics(8, 3, 0.1, 1.0, dissimilarity=1.5, spread=s) for s in (0.0, 0.4))
    assert dissimilarity(even, points).tolist() == pytest.approx([1.5, 1.5], rel=1e-12)
    assert float(dissimilarity(spread, points)[1]) > 1.6


def test_the_alignment_is_the_correlation_that_makes_local_steps_biased() -> None:
    def pull(alignment: float) -> float:
        made = Quadratics(100, 4, 0.1, 1.0, dissimilarity=1.0, spread=0.5, alignment=alignment)
        return float((made.curvatures * made.slopes).mean(0).norm())

    assert pull(0.0) < 1e-12
    assert pull(0.5) == pytest.approx(pull(1.0) / 2, rel=1e-9)


def test_copies_of_clients_change_nothing_but_their_number() -> None:
    one = Quadratics(8, 3, 0.1, 1.0, dissimilarity=1.5, spread=0.3)
    many = Quadratics(8, 3, 0.1, 1.0, dissimilarity=1.5, spread=0.3, copies=5)
    points = torch.randn(4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert many.clients == 40
    assert torch.equal(client_gradients(many, points)[:, :8], client_gradients(one, points))
    assert torch.equal(client_gradients(many, points)[:, 32:], client_gradients(one, points))
    assert torch.equal(one.value(points), many.value(points))


def test_the_saturating_problems_gradient_is_bounded_and_its_bound_is_reached() -> None:
    known = Saturating(3, 2, dissimilarity=1.0)
    points = torch.linspace(-20, 20, 4001, dtype=torch.float64)[:, None].expand(-1, 2)
    assert float(known.gradient(points).norm(dim=-1).max()) <= known.gradient_bound
    steepest = torch.full((1, 2), 1 / math.sqrt(3), dtype=torch.float64)
    assert float(known.gradient(steepest).norm()) == pytest.approx(known.gradient_bound, rel=1e-12)
    assert dissimilarity(known, points[::1000]).tolist() == pytest.approx([1.0] * 5, rel=1e-9)
    curvature = torch.autograd.functional.hessian(lambda x: known.value(x), points[2700])
    assert float(torch.linalg.eigvalsh(torch.as_tensor(curvature)).min()) < 0  # it is not convex


@pytest.mark.parametrize(
    "changes",
    [{"distinct": 2}, {"spread": 1.0}, {"spread": 0.9}, {"strong_convexity": 2.0}, {"noise": -1.0}, {"dimension": 1}],
    ids=str,
)
def test_quadratics_that_cannot_be_are_refused(changes: dict[str, float]) -> None:
    settings = {"distinct": 8, "dimension": 3, "strong_convexity": 0.1, "smoothness": 1.0, "dissimilarity": 1.0}
    with pytest.raises(Refused, match="must"):
        Quadratics(**settings | changes)  # pyright: ignore[reportArgumentType]
