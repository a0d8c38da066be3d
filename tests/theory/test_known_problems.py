"""Each problem has the constants, the minimum and the gradients that it says it has."""

import math

import numpy as np
import pytest
import torch
from made import KINDS, problem, quadratics

from fedcm.errors import UserError
from fedcm.theory.problems.known_problem import KnownProblem, dissimilarity
from fedcm.theory.problems.losses import LOGISTIC, SQUARES
from fedcm.theory.problems.quadratics import Quadratics
from fedcm.theory.problems.regression import Regression, digits_logistic, digits_ridge
from fedcm.theory.problems.saturating import Saturating


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
        assert float(known.gradient(known.optimum).norm()) <= 1e-10 * (known.constants.strong_convexity or 1)
        assert abs(float(known.value(known.optimum)) - known.least) <= 1e-12
        assert bool((known.value(places(known, draw, 50)) >= known.least).all())


@pytest.mark.parametrize("known", [digits_ridge(), digits_logistic()], ids=["ridge", "logistic"])
def test_the_digits_minimum_is_found_to_1e_minus_10(known: Regression) -> None:
    """‖x − x*‖ ≤ ‖∇f(x)‖/μ."""
    mean = client_gradients(known, known.optimum[None])[0].mean(0)
    for slope in (known.gradient(known.optimum), mean):
        assert float(slope.norm()) / known.constants.strong_convexity <= 1e-10
    assert known.constants.dissimilarity > 0.05  # clients of unlike labels do differ


@pytest.mark.parametrize("known", [digits_ridge(), digits_logistic()], ids=["ridge", "logistic"])
def test_the_digits_constants_are_reached_by_a_client_and_so_are_sharp(known: Regression) -> None:
    """At 0, where the logistic loss is steepest, along the eigenvectors of every client's features."""
    _, ways = torch.linalg.eigh(known.features.mT @ known.features)  # in columns, from the flattest to the steepest
    everyone, step = torch.arange(known.clients)[None], 1e-4
    curvatures = []
    for way in (ways[..., 0], ways[..., -1]):
        gradient = known.client_gradients(everyone)
        change = gradient(step * way[None]) - gradient(-step * way[None])
        curvatures.append((change[0] * way).sum(-1) / (2 * step))
    assert float(curvatures[0].min()) == pytest.approx(known.constants.strong_convexity, rel=1e-6)
    assert float(curvatures[1].max()) == pytest.approx(known.constants.smoothness, rel=1e-6)


def test_a_regression_whose_minimum_cannot_be_found_is_refused() -> None:
    features = torch.full((2, 3, 1), float("nan"), dtype=torch.float64)
    for loss in (SQUARES, LOGISTIC):
        with pytest.raises(UserError, match="must be found to 1e-10"):
            _ = Regression(loss, features, torch.ones(2, 3, dtype=torch.float64), 0.1).optimum
    with pytest.raises(UserError, match="must be positive"):
        Regression(SQUARES, features, torch.ones(2, 3, dtype=torch.float64), 0.0)


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
    with pytest.raises(UserError, match="must"):
        Quadratics(**settings | changes)  # pyright: ignore[reportArgumentType]
