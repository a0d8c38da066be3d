"""FedAvg against FedCM: intervals are paired, and each control removes exactly one cause."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scenes import Answer

from fedcm.algorithms import FedAvg
from fedcm.theory.problems.quadratics import Quadratics
from fedcm.theory.problems.sampling import RoundSampler
from fedcm.theory.rates.experiment import RateExperiment
from fedcm.theory.rates.markdown import make_markdown
from fedcm.theory.rates.measurement import PointResult, RateRow
from fedcm.theory.rates.plan import list_experiments
from fedcm.theory.rates.ratios import compare_algorithms, compute_ratio
from fedcm.theory.rates.slopes import Slope
from fedcm.theory.rates.step_grids import StepCandidate
from fedcm.theory.theorem.simulation import Simulation, StepSizes


def test_common_chance_cancels_in_a_ratio() -> None:
    below = np.random.default_rng(0).gamma(1.0, 1.0, 20)
    assert compute_ratio(1.25 * below, below) == pytest.approx((1.25, 1.25, 1.25))
    other = compute_ratio(1.25 * np.random.default_rng(1).gamma(1.0, 1.0, 20), below)
    assert other.low < 1 < other.high, "independent errors do not cancel"


def test_interval_of_a_ratio_covers_the_truth_about_19_times_in_20() -> None:
    """380 of 400 expected, with a standard deviation of 4.4."""
    draw, covered = np.random.default_rng(0), 0
    for _ in range(400):
        common = draw.gamma(4.0, 0.25, 24)
        above, below = (common * draw.gamma(16.0, 1 / 16, 24) for _ in range(2))
        ratio = compute_ratio(1.3 * above, below)
        covered += ratio.low <= 1.3 <= ratio.high
    assert 362 <= covered <= 396


def make_row(experiment: RateExperiment, algorithm: str, errors: list[list[float]]) -> RateRow:
    results = [PointResult(np.array(own), StepCandidate(FedAvg(), 0.01, 0.1), (), 1.0) for own in errors]
    return RateRow(experiment, algorithm, results, Slope(0.0, 0.0, 0.0), experiment.proven[algorithm], None, "agrees")


def find_experiment(name: str) -> RateExperiment:
    return next(e for e in list_experiments() if e.name == name)


def test_algorithms_are_compared_where_the_server_averages() -> None:
    own, tuned = find_experiment("momentum-biased"), find_experiment("strongly-convex-T")
    rows = [
        make_row(own, "fedcm", [[1.0, 2.0]] * 4),
        make_row(own, "fedavg", [[2.0, 4.0], [1.0, 2.0], [1.0, 2.0], [1.5, 3.0]]),
        make_row(find_experiment("clients-N"), "fedcm", [[1.0, 2.0]] * 3),
        make_row(tuned, "fedcm", [[1.0, 2.0]] * 5),
        make_row(tuned, "fedavg", [[1.0, 2.0]] * 5),
    ]
    (comparison,) = compare_algorithms(rows)
    assert [ratio.value for ratio in comparison.ratios] == [2.0, 1.0, 1.0, 1.5]
    (line,) = [line for line in make_markdown(rows).splitlines() if "`momentum-biased`" in line]
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells[1] == "T = 125, 250, 500, 1000"
    assert cells[3].startswith("2.00 [2.00, 2.00], 1.00 [1.00, 1.00],")
    assert cells[4] == "–"


def find_problem(name: str) -> Quadratics:
    (problem,) = {point.problem for point in find_experiment(name).points}
    assert isinstance(problem, Quadratics)
    return problem


CONTROLS = ["momentum-unaligned", "momentum-no-spread", "momentum-equal-clients"]


def test_controls_have_the_same_f_start_and_steps() -> None:
    """Only the clients differ; the biased problem is the one of `clients-N`."""
    biased, whole = find_problem("momentum-biased"), find_experiment("momentum-biased")
    assert biased == replace(find_experiment("clients-N").points[1].problem, copies=10)  # pyright: ignore[reportArgumentType]
    x = torch.randn(5, 10, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for name in CONTROLS:
        assert torch.allclose(find_problem(name).value(x), biased.value(x))
        assert torch.allclose(find_problem(name).gradient(x), biased.gradient(x))
        other = find_experiment(name)
        assert (other.client_lrs, other.replicates) == (whole.client_lrs, whole.replicates)
        assert [replace(p, problem=biased) for p in other.points] == list(whole.points)
    assert find_problem("momentum-equal-clients").slopes.abs().max() == 0
    assert find_problem("momentum-no-spread").curvatures.std(0).max() < 1e-15
    slopes = find_problem("momentum-no-spread").slopes
    assert slopes.square().sum(1).mean() == pytest.approx(biased.slopes.square().sum(1).mean().item())


@pytest.mark.parametrize(("name", "biased"), [("momentum-biased", True), *((name, False) for name in CONTROLS)])
def test_fedavg_reaches_the_optimum_only_in_the_controls(name: str, biased: bool) -> None:
    """With all clients and no noise: the controls lack the bias of local steps."""
    problem = replace(find_problem(name), copies=1, noise=0.0)
    simulation = Simulation(FedAvg(), problem, StepSizes.for_averaging([0.04], 10), 10, torch.zeros(1, 10))
    for sample in RoundSampler(problem, 100, 10, 1).sample_rounds(300):
        simulation.run_round(sample)
    distance = float((simulation.server.params - problem.optimum).norm())
    assert (distance > 0.05) if biased else (distance < 1e-6)


@pytest.mark.slow
def test_command_prints_and_draws_the_ratio(fedcm: Callable[..., Answer], tmp_path: Path) -> None:
    answer = fedcm("theory", "rates", "--only", "momentum-equal-clients", "--quick", "-o", tmp_path)
    assert answer.code == 0, answer.err
    assert "momentum-equal-clients: FedAvg's error divided by FedCM's is " in answer.out
    fedcm_row, fedavg_row = json.loads((tmp_path / "theory-rates.json").read_text())
    assert fedcm_row["over_fedcm"] == []
    ratios = [above / below for above, below in zip(fedavg_row["errors"], fedcm_row["errors"], strict=True)]
    assert [value for value, _, _ in fedavg_row["over_fedcm"]] == pytest.approx(ratios)
    assert all(low <= value <= high for value, low, high in fedavg_row["over_fedcm"])
    assert (tmp_path / "theory-momentum.png").exists()
    assert not (tmp_path / "theory-rates.png").exists(), "nothing is proven about these"
    assert "÷ FedCM's" in (tmp_path / "theory-rates.md").read_text()
