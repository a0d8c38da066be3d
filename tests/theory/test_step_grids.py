"""The step grids match hand calculations, and edges of a grid are detected."""

import math
from dataclasses import replace

import pytest

from fedcm.algorithms import FedDyn
from fedcm.errors import UserError
from fedcm.theory.problems.quadratics import Quadratics
from fedcm.theory.problems.saturating import Saturating
from fedcm.theory.rates.experiment import LABELS, RateExperiment, RatePoint
from fedcm.theory.rates.step_grids import (
    StepCandidate,
    compute_proof_global_lr,
    estimate_global_lr,
    find_edges,
    list_candidates,
    make_grids,
)

POINT = RatePoint(1, Quadratics(100, 10, 0.1, 1.0, noise=3.0, dissimilarity=1.0), rounds=1000, steps=5, cohort_size=10)
TUNED = RateExperiment("made", "strongly convex", "T", (POINT,), dict.fromkeys(LABELS, -1.0))
NOISE = 9 / 50 + 90 / (10 * 99)  # σ_l²/(KS) + (N − S)/(S(N − 1))·σ_g²


def list_global_lrs(experiment: RateExperiment, name: str) -> list[float]:
    return [candidate.global_lr for candidate in list_candidates(make_grids(experiment, experiment.points[0], name))]


def test_tuned_grid_is_the_lemmas_step_times_a_quarter_to_four() -> None:
    """D = 10, m = μ/2 = 0.05: η_g = log(m²·D·T/v)/(m·T)."""
    middle = math.log(0.05**2 * 10 * 1000 / NOISE) / 50
    assert middle == pytest.approx(0.0905, abs=1e-4)
    for name in ("fedcm", "fedavg"):
        assert list_global_lrs(TUNED, name) == pytest.approx([middle * t for t in (0.25, 0.5, 1, 2, 4)])
    client_lrs = [candidate.client_lr for candidate in list_candidates(make_grids(TUNED, POINT, "fedcm"))]
    # min( η_g/(8K), 1/(8LK), 1/(8LSK²) )
    assert client_lrs == pytest.approx([min(lr / 40, 1 / 40, 1 / 2000) for lr in list_global_lrs(TUNED, "fedcm")])


@pytest.mark.parametrize("name", ["scaffold", "feddyn"])
def test_grid_of_stateful_algorithms_ignores_dissimilarity(name: str) -> None:
    middle = math.log(0.05**2 * 10 * 1000 / (9 / 50)) / 50
    assert list_global_lrs(TUNED, name) == pytest.approx([middle * t for t in (0.25, 0.5, 1, 2, 4)])


def test_feddyn_averages_with_penalty_one_over_step() -> None:
    for algorithm, sizes in make_grids(TUNED, POINT, "feddyn"):
        assert isinstance(algorithm, FedDyn)
        assert sizes.global_lr[0] == pytest.approx(5 * sizes.client_lr[0])
        assert algorithm.alpha == pytest.approx(1 / sizes.global_lr[0])


def test_other_cases_use_the_other_lemma() -> None:
    assert estimate_global_lr("general convex", POINT) == pytest.approx(math.sqrt(10 / (NOISE * 1000)))
    point = replace(POINT, problem=Saturating(100, 10, noise=3.0, dissimilarity=1.0))
    # F = 10·½ and L = 2
    assert estimate_global_lr("not convex", point) == pytest.approx(math.sqrt(5 / (2 * NOISE * 1000)))


def test_steps_are_at_most_1_over_l_without_duplicates() -> None:
    short = replace(TUNED, points=(replace(POINT, rounds=20),))
    tried = list_global_lrs(short, "fedavg")
    assert max(tried) == 1.0
    assert len(set(tried)) == len(tried) < 5


@pytest.mark.parametrize(("alpha", "rounds", "by_second"), [(0.5, 10, False), (0.01, 10, True)])
def test_proof_step_matches_hand_calculation(alpha: float, rounds: int, by_second: bool) -> None:
    """σ_l = σ_g = 0, d = 1, so G² = 27/64; L = 2, F = ½, S = N = 2, K = 1."""
    squared = 27 / 64
    c1, c2 = 10 * 2 * squared, alpha * 6 * squared
    v = 16 * c1 / 2 + 480 * 4 / 32**2 * c2  # at η_l = 1/(8LSK²) = 1/32
    first, second = 2 * v, 2 * 2 * (c2 + v) / alpha**2
    lrs = math.sqrt(0.5 / (first * rounds)), math.cbrt(0.5 / (second * rounds))
    assert min(lrs) == lrs[by_second]
    assert compute_proof_global_lr(RatePoint(1, Saturating(2, 1), rounds, 1, 2, alpha)) == pytest.approx(lrs[by_second])
    with pytest.raises(UserError, match="bounded everywhere"):
        compute_proof_global_lr(POINT)


def make_feddyn(penalty: float, lr: float) -> StepCandidate:
    return StepCandidate(FedDyn(penalty), lr / 2, lr)


def test_edges_of_step_and_penalty_are_found() -> None:
    grid = [make_feddyn(a, lr) for a in (0.3, 1.0, 3.0) for lr in (1.0, 2.0, 4.0)]
    assert find_edges(make_feddyn(1.0, 2.0), grid, None) == ()
    assert find_edges(make_feddyn(1.0, 1.0), grid, None) == ("smallest η",)
    assert find_edges(make_feddyn(3.0, 4.0), grid, None) == ("largest η", "largest a")
    assert find_edges(make_feddyn(0.3, 2.0), grid, None) == ("smallest a",)
    assert find_edges(make_feddyn(1.0, 4.0), grid, longest=4.0) == ("η = 1/L",)


def test_penalty_tied_to_the_step_has_no_edge() -> None:
    tied = [make_feddyn(1 / lr, lr) for lr in (1.0, 2.0, 4.0)]
    assert find_edges(tied[1], tied, None) == ()
    assert find_edges(tied[2], tied, None) == ("largest η",)
    assert find_edges(tied[0], tied[:1], None) == ()
