"""Each problem has the constants, the minimum and the gradients that it states."""

import math

import numpy as np
import pytest
import torch
from random_problems import KINDS, random_problem, random_quadratics

from fedcm.errors import UserError
from fedcm.theory.problems.known_problem import KnownProblem, compute_dissimilarity
from fedcm.theory.problems.losses import LOGISTIC, SQUARES
from fedcm.theory.problems.quadratics import Quadratics
from fedcm.theory.problems.regression import Regression, make_digits_logistic, make_digits_ridge
from fedcm.theory.problems.saturating import Saturating


def compute_client_gradients(known: KnownProblem, points: torch.Tensor) -> torch.Tensor:
    """Return the gradients of all clients, (R, N, d), at points (R, d)."""
    everyone = torch.arange(known.clients).expand(len(points), -1)
    return known.client_gradients(everyone)(points.unsqueeze(-2).expand(-1, known.clients, -1))


def random_points(known: KnownProblem, generator: np.random.Generator, count: int = 10) -> torch.Tensor:
    return known.optimum + 2 * torch.from_numpy(generator.normal(size=(count, known.dimension)))


@pytest.mark.parametrize("kind", KINDS)
def test_gradient_matches_autograd_and_the_mean_of_clients(kind: str) -> None:
    for number in range(30):
        generator = np.random.default_rng([1, number])
        known = random_problem(kind, generator)
        points = random_points(known, generator).requires_grad_()
        (slopes,) = torch.autograd.grad(known.value(points).sum(), points)
        assert torch.allclose(known.gradient(points.detach()), slopes, rtol=1e-10, atol=1e-12)
        assert torch.allclose(compute_client_gradients(known, points.detach()).mean(1), slopes, rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("kind", KINDS)
def test_every_client_has_the_stated_smoothness_and_convexity(kind: str) -> None:
    for number in range(30):
        generator = np.random.default_rng([2, number])
        known = random_problem(kind, generator)
        x, y = random_points(known, generator, 50), random_points(known, generator, 50)
        change = compute_client_gradients(known, x) - compute_client_gradients(known, y)
        direction = (x - y).unsqueeze(1)
        assert bool((change.norm(dim=-1) <= known.constants.smoothness * direction.norm(dim=-1) * (1 + 1e-9)).all())
        convex = (change * direction).sum(-1) - known.constants.strong_convexity * direction.square().sum(-1)
        assert kind == "saturating" or bool((convex >= -1e-9 * direction.square().sum(-1)).all())


@pytest.mark.parametrize("kind", KINDS)
def test_stated_optimum_is_a_minimum(kind: str) -> None:
    for number in range(30):
        generator = np.random.default_rng([3, number])
        known = random_problem(kind, generator)
        assert float(known.gradient(known.optimum).norm()) <= 1e-10 * (known.constants.strong_convexity or 1)
        assert abs(float(known.value(known.optimum)) - known.minimum) <= 1e-12
        assert bool((known.value(random_points(known, generator, 50)) >= known.minimum).all())


@pytest.mark.parametrize("known", [make_digits_ridge(), make_digits_logistic()], ids=["ridge", "logistic"])
def test_optimum_of_digits_is_exact_to_1e_minus_10(known: Regression) -> None:
    """‖x − x*‖ ≤ ‖∇f(x)‖/μ."""
    mean = compute_client_gradients(known, known.optimum[None])[0].mean(0)
    for slope in (known.gradient(known.optimum), mean):
        assert float(slope.norm()) / known.constants.strong_convexity <= 1e-10
    assert known.constants.dissimilarity > 0.05  # clients with different labels differ


@pytest.mark.parametrize("known", [make_digits_ridge(), make_digits_logistic()], ids=["ridge", "logistic"])
def test_constants_of_digits_are_sharp(known: Regression) -> None:
    """Some client reaches them at 0, where the logistic loss is most curved, along an eigenvector of its features."""
    # eigenvectors are in columns, from the least to the most curved
    _, directions = torch.linalg.eigh(known.features.mT @ known.features)
    everyone, step = torch.arange(known.clients)[None], 1e-4
    curvatures = []
    for direction in (directions[..., 0], directions[..., -1]):
        gradient = known.client_gradients(everyone)
        change = gradient(step * direction[None]) - gradient(-step * direction[None])
        curvatures.append((change[0] * direction).sum(-1) / (2 * step))
    assert float(curvatures[0].min()) == pytest.approx(known.constants.strong_convexity, rel=1e-6)
    assert float(curvatures[1].max()) == pytest.approx(known.constants.smoothness, rel=1e-6)


def test_regression_without_a_minimum_raises() -> None:
    features = torch.full((2, 3, 1), float("nan"), dtype=torch.float64)
    for loss in (SQUARES, LOGISTIC):
        with pytest.raises(UserError, match="must be found to 1e-10"):
            _ = Regression(loss, features, torch.ones(2, 3, dtype=torch.float64), 0.1).optimum
    with pytest.raises(UserError, match="must be above 0"):
        Regression(SQUARES, features, torch.ones(2, 3, dtype=torch.float64), 0.0)


def test_quadratics_have_exactly_the_chosen_constants() -> None:
    for number in range(50):
        known = random_quadratics(np.random.default_rng([4, number]))
        assert float(known.curvatures.min()) == pytest.approx(known.strong_convexity, rel=1e-12)
        assert float(known.curvatures.max()) == pytest.approx(known.smoothness, rel=1e-12)
        assert float(compute_dissimilarity(known, known.optimum[None])) == pytest.approx(known.dissimilarity, rel=1e-9)
        assert torch.allclose(known.curvatures.mean(0), known.eigenvalues, rtol=1e-12)


def test_dissimilarity_is_constant_only_without_spread() -> None:
    points = torch.tensor([[0.0, 0.0, 0.0], [9.0, -5.0, 2.0]], dtype=torch.float64)
    even, spread = (Quadratics(8, 3, 0.1, 1.0, dissimilarity=1.5, spread=s) for s in (0.0, 0.4))
    assert compute_dissimilarity(even, points).tolist() == pytest.approx([1.5, 1.5], rel=1e-12)
    assert float(compute_dissimilarity(spread, points)[1]) > 1.6


def test_alignment_makes_local_steps_biased() -> None:
    def bias(alignment: float) -> float:
        problem = Quadratics(100, 4, 0.1, 1.0, dissimilarity=1.0, spread=0.5, alignment=alignment)
        return float((problem.curvatures * problem.slopes).mean(0).norm())

    assert bias(0.0) < 1e-12
    assert bias(0.5) == pytest.approx(bias(1.0) / 2, rel=1e-9)


def test_copies_change_only_the_number_of_clients() -> None:
    one = Quadratics(8, 3, 0.1, 1.0, dissimilarity=1.5, spread=0.3)
    many = Quadratics(8, 3, 0.1, 1.0, dissimilarity=1.5, spread=0.3, copies=5)
    points = torch.randn(4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert many.clients == 40
    assert torch.equal(compute_client_gradients(many, points)[:, :8], compute_client_gradients(one, points))
    assert torch.equal(compute_client_gradients(many, points)[:, 32:], compute_client_gradients(one, points))
    assert torch.equal(one.value(points), many.value(points))


def test_gradient_bound_of_saturating_is_sharp() -> None:
    known = Saturating(3, 2, dissimilarity=1.0)
    points = torch.linspace(-20, 20, 4001, dtype=torch.float64)[:, None].expand(-1, 2)
    assert float(known.gradient(points).norm(dim=-1).max()) <= known.gradient_bound
    steepest = torch.full((1, 2), 1 / math.sqrt(3), dtype=torch.float64)
    assert float(known.gradient(steepest).norm()) == pytest.approx(known.gradient_bound, rel=1e-12)
    assert compute_dissimilarity(known, points[::1000]).tolist() == pytest.approx([1.0] * 5, rel=1e-9)
    curvature = torch.autograd.functional.hessian(lambda x: known.value(x), points[2700])
    assert float(torch.linalg.eigvalsh(torch.as_tensor(curvature)).min()) < 0  # it is not convex


@pytest.mark.parametrize(
    "changes",
    [{"distinct": 2}, {"spread": 1.0}, {"spread": 0.9}, {"strong_convexity": 2.0}, {"noise": -1.0}, {"dimension": 1}],
    ids=str,
)
def test_impossible_quadratics_raise(changes: dict[str, float]) -> None:
    settings = {"distinct": 8, "dimension": 3, "strong_convexity": 0.1, "smoothness": 1.0, "dissimilarity": 1.0}
    with pytest.raises(UserError, match="must"):
        Quadratics(**settings | changes)  # pyright: ignore[reportArgumentType]
