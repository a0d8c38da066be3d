"""FedAvg against FedCM: the intervals are of pairs, and the controls take away what they say and nothing else."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scenes import Answer

from fedcm.algorithms import FedAvg
from fedcm.theory.problems.draws import Draws
from fedcm.theory.problems.quadratics import Quadratics
from fedcm.theory.rates.measure import Found, Row
from fedcm.theory.rates.plan import experiments
from fedcm.theory.rates.points import Experiment
from fedcm.theory.rates.rates_markdown import markdown
from fedcm.theory.rates.ratios import compare, compute_ratio
from fedcm.theory.rates.slopes import Slope
from fedcm.theory.rates.step_grids import Candidate
from fedcm.theory.theorem.walk import StepSizes, Walk


def test_what_both_owe_to_chance_cancels_in_a_ratio() -> None:
    below = np.random.default_rng(0).gamma(1.0, 1.0, 20)
    assert compute_ratio(1.25 * below, below) == pytest.approx((1.25, 1.25, 1.25))
    other = compute_ratio(1.25 * np.random.default_rng(1).gamma(1.0, 1.0, 20), below)
    assert other.low < 1 < other.high, "of independent ones it would not"


def test_the_interval_of_a_ratio_covers_the_truth_about_19_times_in_20() -> None:
    """Of 400: 380 with a standard deviation of 4.4."""
    draw, covered = np.random.default_rng(0), 0
    for _ in range(400):
        common = draw.gamma(4.0, 0.25, 24)
        above, below = (common * draw.gamma(16.0, 1 / 16, 24) for _ in range(2))
        ratio = compute_ratio(1.3 * above, below)
        covered += ratio.low <= 1.3 <= ratio.high
    assert 362 <= covered <= 396


def row(experiment: Experiment, algorithm: str, errors: list[list[float]]) -> Row:
    found = [Found(np.array(own), Candidate(FedAvg(), 0.01, 0.1), (), 1.0) for own in errors]
    return Row(experiment, algorithm, found, Slope(0.0, 0.0, 0.0), experiment.proven[algorithm], None, "agrees")


def named(name: str) -> Experiment:
    return next(e for e in experiments() if e.name == name)


def test_both_are_compared_where_the_server_averages() -> None:
    own, tuned = named("momentum-biased"), named("strongly-convex-T")
    rows = [
        row(own, "fedcm", [[1.0, 2.0]] * 4),
        row(own, "fedavg", [[2.0, 4.0], [1.0, 2.0], [1.0, 2.0], [1.5, 3.0]]),
        row(named("clients-N"), "fedcm", [[1.0, 2.0]] * 3),
        row(tuned, "fedcm", [[1.0, 2.0]] * 5),
        row(tuned, "fedavg", [[1.0, 2.0]] * 5),
    ]
    (found,) = compare(rows)
    assert [ratio.value for ratio in found.ratios] == [2.0, 1.0, 1.0, 1.5]
    (line,) = [line for line in markdown(rows).splitlines() if "`momentum-biased`" in line]
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells[1] == "T = 125, 250, 500, 1000"
    assert cells[3].startswith("2.00 [2.00, 2.00], 1.00 [1.00, 1.00],")
    assert cells[4] == "–"


def problem_of(name: str) -> Quadratics:
    (problem,) = {point.problem for point in named(name).points}
    assert isinstance(problem, Quadratics)
    return problem


CONTROLS = ["momentum-unaligned", "momentum-no-spread", "momentum-equal-clients"]


def test_the_controls_have_the_same_f_start_and_steps() -> None:
    """Only the clients differ, and the biased problem is that of `clients-N`."""
    biased, whole = problem_of("momentum-biased"), named("momentum-biased")
    assert biased == replace(named("clients-N").points[1].problem, copies=10)  # pyright: ignore[reportArgumentType]
    x = torch.randn(5, 10, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for name in CONTROLS:
        assert torch.allclose(problem_of(name).value(x), biased.value(x))
        assert torch.allclose(problem_of(name).gradient(x), biased.gradient(x))
        other = named(name)
        assert (other.client_lrs, other.replicates) == (whole.client_lrs, whole.replicates)
        assert [replace(p, problem=biased) for p in other.points] == list(whole.points)
    assert problem_of("momentum-equal-clients").slopes.abs().max() == 0
    assert problem_of("momentum-no-spread").curvatures.std(0).max() < 1e-15
    slopes = problem_of("momentum-no-spread").slopes
    assert slopes.square().sum(1).mean() == pytest.approx(biased.slopes.square().sum(1).mean().item())


@pytest.mark.parametrize(("name", "away"), [("momentum-biased", True), *((name, False) for name in CONTROLS)])
def test_fedavg_with_everybody_and_no_noise_reaches_the_optimum_in_the_controls_alone(name: str, away: bool) -> None:
    """So it is bias of local steps that the controls lack."""
    problem = replace(problem_of(name), copies=1, noise=0.0)
    walk = Walk(FedAvg(), problem, StepSizes.averaging([0.04], 10), 10, torch.zeros(1, 10))
    for drawn in Draws(problem, 100, 10, 1).rounds(300):
        walk.round(drawn)
    distance = float((walk.server.params - problem.optimum).norm())
    assert (distance > 0.05) if away else (distance < 1e-6)


def test_the_command_tells_the_ratio_and_draws_it(fedcm: Callable[..., Answer], tmp_path: Path) -> None:
    answer = fedcm("theory", "rates", "--only", "momentum-equal-clients", "--quick", "-o", tmp_path)
    assert answer.code == 0, answer.err
    assert "momentum-equal-clients: FedAvg's error over FedCM's is " in answer.out
    fedcm_row, fedavg_row = json.loads((tmp_path / "theory-rates.json").read_text())
    assert fedcm_row["over_fedcm"] == []
    ratios = [above / below for above, below in zip(fedavg_row["errors"], fedcm_row["errors"], strict=True)]
    assert [value for value, _, _ in fedavg_row["over_fedcm"]] == pytest.approx(ratios)
    assert all(low <= value <= high for value, low, high in fedavg_row["over_fedcm"])
    assert (tmp_path / "theory-momentum.png").exists()
    assert not (tmp_path / "theory-rates.png").exists(), "nothing is proven of these"
    assert "÷ FedCM's" in (tmp_path / "theory-rates.md").read_text()
