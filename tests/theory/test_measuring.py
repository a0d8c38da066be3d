"""What is measured is the theorem's error, at the grid's best step sizes, on replicates that did not choose them."""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from second_moments import Moments

from fedcm.algorithms import FedAvg, FedCM, Scaffold
from fedcm.theory.problems.draws import Draws
from fedcm.theory.problems.quadratics import Quadratics
from fedcm.theory.rates import measure as rates
from fedcm.theory.rates.measure import Walked, measure, rows_of, walked, with_log
from fedcm.theory.rates.plan import experiments
from fedcm.theory.rates.points import LABELS, Case, Experiment, Point, Replicates
from fedcm.theory.rates.step_grids import Grid, flattened, grids
from fedcm.theory.theorem.walk import StepSizes

PROBLEM = Quadratics(5, 3, 0.2, 1.0, noise=1.0, dissimilarity=1.0, spread=0.3)
POINT = Point(7, PROBLEM, rounds=7, steps=2, cohort=2, alpha=0.3, offset=0.5)


def experiment(case: Case = "strongly convex", **changes: object) -> Experiment:
    made = Experiment("made", case, "T", (POINT,), dict.fromkeys(LABELS, -1.0), replicates=Replicates(3, 4))
    return replace(made, **changes)  # pyright: ignore[reportArgumentType]


def literal_errors(case: Case, alpha: float, client_lr: float, global_lr: float, draws: Draws) -> list[float]:
    """The paper's pseudocode with loops, a replicate at a time; α = 1 is FedAvg."""
    optimum, curvatures, slopes = PROBLEM.optimum.numpy(), PROBLEM.curvatures.numpy(), PROBLEM.slopes.numpy()
    eigenvalues = PROBLEM.eigenvalues.numpy()
    drawn = list(draws.rounds(POINT.rounds))
    found = []
    for replicate in range(draws.replicates):
        x = before = optimum + 0.5
        momentum, auxiliaries = np.zeros(3), []
        for one in drawn:
            auxiliaries.append(x + (1 - alpha) / alpha * (x - before))
            directions = []
            for place, client in enumerate(one.cohort[replicate].tolist()):
                own = x
                for k in range(POINT.steps):
                    assert one.noise is not None
                    gradient = curvatures[client] * (own - optimum) + slopes[client]
                    gradient = gradient + one.noise[k, replicate, place].numpy()
                    own = own - client_lr * (alpha * gradient + (1 - alpha) * momentum)
                directions.append((x - own) / (client_lr * POINT.steps))
            momentum, before = np.mean(directions, axis=0), x
            x = x - global_lr * momentum
        if case == "not convex":
            found.append(float(np.mean([np.square(eigenvalues * (z - optimum)).sum() for z in auxiliaries])))
            continue
        q = 1 - 0.2 * global_lr / 2 if case == "strongly convex" else 1.0
        weights = np.array([q ** (-t - 1) for t in range(POINT.rounds)])
        mean = np.einsum("t,td->d", weights / weights.sum(), np.stack(auxiliaries))
        found.append(float(0.5 * (eigenvalues * np.square(mean - optimum)).sum()))
    return found


@pytest.mark.parametrize("case", ["strongly convex", "general convex", "not convex"])
def test_the_error_is_that_of_a_literal_loop(case: Case) -> None:
    draws = Draws(PROBLEM, 2, 2, 3, seed=4)
    sizes = StepSizes((0.05, 0.2), (0.3, 0.9))
    fedcm, fedavg = walked(case, POINT, [Grid(FedCM(0.3), sizes), Grid(FedAvg(), sizes)], draws)
    for number, (own, wide) in enumerate(zip(sizes.client_lr, sizes.global_lr, strict=True)):
        assert fedcm.errors[number].tolist() == pytest.approx(literal_errors(case, 0.3, own, wide, draws), rel=1e-10)
        assert fedavg.errors[number].tolist() == pytest.approx(literal_errors(case, 1.0, own, wide, draws), rel=1e-10)


def test_the_steepest_gradient_is_that_of_the_start_or_one_later_on_the_way() -> None:
    """Steps of 0, steps that come nearer to the optimum, and steps that are too long."""
    sizes = StepSizes((0.05, 0.05, 0.2), (1e-9, 0.3, 50.0))
    several = [Grid(FedCM(0.3), sizes), Grid(FedAvg(), sizes)]
    still = replace(POINT, problem=replace(PROBLEM, noise=0.0, dissimilarity=0.0))
    found = walked("not convex", still, several, Draws(still.problem, 2, 2, 3))
    start = float(PROBLEM.gradient(POINT.start).norm())
    assert found[0].steepest is not None
    assert found[0].steepest[:2].tolist() == pytest.approx([start, start], rel=1e-6)
    assert float(found[0].steepest[2]) > 1.1 * start
    assert found[1].steepest is None


def test_the_mean_of_measured_errors_is_the_exact_expectation() -> None:
    """Five standard errors, of ‖∇f(z_t)‖² over the rounds, at the step sizes that are reported as chosen."""
    made = experiment("not convex", replicates=Replicates(50, 2000), proven={"fedcm": -0.5})
    found = measure(made, 0)["fedcm"]
    moments = Moments(PROBLEM, 2, 2, 0.3, found.chosen.client_lr, found.chosen.global_lr)
    now, total = moments.start(POINT.start), 0.0
    for _ in range(POINT.rounds):
        total += moments.squared_gradient_at_z(now)
        now = moments.next(now)
    error = float(found.errors.std()) / math.sqrt(2000)
    assert abs(float(found.errors.mean()) - total / POINT.rounds) <= 5 * error
    assert error < 0.05 * total / POINT.rounds


def test_the_chosen_step_sizes_have_the_least_mean_and_others_measure_them() -> None:
    """Of the point of number 1, so that draws are its own too."""
    made = experiment(points=(POINT, POINT))
    found = measure(made, 1, seed=2)
    for name in LABELS:
        own = grids(made, POINT, name)
        tried = walked(made.case, POINT, own, Draws(PROBLEM, 2, 2, 3, seed=2, stream=2))
        means = torch.cat([one.errors for one in tried]).mean(1)
        assert len(set(means.tolist())) == len(means) > 2
        best = flattened(own)[min(range(len(means)), key=lambda k: float(means[k]))]
        assert found[name].chosen == best
        (alone,) = walked(made.case, POINT, [best.alone], Draws(PROBLEM, 2, 2, 4, seed=2, stream=3))
        assert found[name].errors.tolist() == alone.errors[0].tolist()


def test_choosing_and_measuring_see_other_replicates(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second of four is best where it is chosen, and the one that is neither a number nor finite is not."""
    asked = []

    def told(case: Case, point: Point, several: Sequence[Grid], draws: Draws) -> list[Walked]:
        (grid,) = several
        asked.append((grid.sizes.global_lr, draws.replicates, draws.stream))
        errors = torch.tensor([[7.0, 7.0, 7.0], [6.0, 7.0, 6.0], [math.nan, 1.0, 1.0], [1.0, math.inf, 1.0]])
        return [Walked(errors if len(asked) == 1 else torch.full((1, 4), 9.0), None)]

    monkeypatch.setattr(rates, "walked", told)
    made = experiment(proven={"fedavg": -1.0}, times=(0.1, 0.2, 0.3, 0.4))
    found = measure(made, 0)["fedavg"]
    assert found.errors.tolist() == [9, 9, 9, 9]
    assert found.chosen == flattened(grids(made, POINT, "fedavg"))[1]
    (all_of_them, few, first), (chosen, many, second) = asked
    assert chosen == all_of_them[1:2]
    assert (few, many) == (3, 4)
    assert first != second


def test_a_replicate_that_diverged_stays_infinite(monkeypatch: pytest.MonkeyPatch) -> None:
    def diverged(case: Case, point: Point, several: Sequence[Grid], draws: Draws) -> list[Walked]:
        sizes = (len(several[0].sizes.global_lr), draws.replicates)
        return [Walked(torch.ones(sizes, dtype=torch.float64).index_fill(1, torch.tensor([2]), math.inf), None)]

    monkeypatch.setattr(rates, "walked", diverged)
    made = experiment(proven={"fedavg": -1.0}, points=(POINT, replace(POINT, value=14)))
    (row,) = rows_of(made, [measure(made, number) for number in range(2)])
    assert row.errors == [math.inf, math.inf]
    assert row.verdict == "diverged"


def test_the_logarithms_exponent_is_that_of_the_noise_times_the_step() -> None:
    """σ_l² = 9, KS = 20 and 40, N = 100: v = 9/20 and 9/40; m = μ/2 = 0.05, D = 10, T = 1000; η = log(m²DT/v)/(mT)."""
    problem = Quadratics(100, 10, 0.1, 1.0, noise=3.0)
    points = tuple(Point(k, problem, rounds=1000, steps=k) for k in (2, 4))
    terms = [9 / (10 * k) * math.log(0.05**2 * 10 * 1000 / (9 / (10 * k))) / 50 for k in (2, 4)]
    expected = math.log(terms[1] / terms[0]) / math.log(2)
    assert with_log(experiment(points=points, varied="K")) == pytest.approx(expected)
    assert -0.9 < expected < -0.7
    assert with_log(experiment("general convex", points=points)) is None
    assert with_log(experiment(points=points, varied="1/α")) is None


def test_the_same_seed_measures_the_same_and_another_does_not() -> None:
    def errors(seed: int, number: int = 0) -> list[float]:
        return [x for found in measure(experiment(points=(POINT, POINT)), number, seed).values() for x in found.errors]

    assert errors(0) == errors(0)
    assert errors(0) != errors(1)
    assert not set(errors(0)) & set(errors(0, number=1))  # points are independent


def test_of_equal_clients_without_noise_fedavg_and_scaffold_are_the_same_walk() -> None:
    point = Point(1, Quadratics(4, 3, 0.1, 1.0), rounds=20, steps=3, cohort=4)
    found = measure(experiment(points=(point,)), 0)
    assert found["fedavg"].errors == pytest.approx(found["scaffold"].errors, rel=1e-9)
    assert found["fedavg"].errors != pytest.approx(found["fedcm"].errors, rel=1e-3)


def test_all_algorithms_of_a_point_see_the_same_draws() -> None:
    """One local step from x_0: SCAFFOLD's controls are still 0, so its first round is FedAvg's."""
    point, sizes = replace(POINT, rounds=2, steps=1), StepSizes((0.1,), (0.1,))
    fedavg, scaffold = walked(
        "general convex", point, [Grid(FedAvg(), sizes), Grid(Scaffold(), sizes)], Draws(PROBLEM, 2, 1, 3)
    )
    assert torch.equal(fedavg.errors, scaffold.errors)


def test_the_clients_experiments_hold_everything_but_the_number_of_clients() -> None:
    found = [e for e in experiments() if e.varied == "N"]
    assert found
    for one in found:
        assert [point.problem.clients for point in one.points] == [100, 1000, 10000]
        assert {point.cohort for point in one.points} == {10}
        assert len({(p.setting().constants, p.rounds, p.steps, p.alpha) for p in one.points}) == 1
        assert set(one.proven) == set(LABELS)
