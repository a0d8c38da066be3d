"""`fedcm theory rates`: what it measures is what it says, and the command writes it down."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scenes import Answer

from fedcm.refusal import Refused
from fedcm.theory.plan import LABELS, Experiment, Point, Replicates, experiments
from fedcm.theory.quadratics import Quadratics
from fedcm.theory.rates import Measurement, chosen, measure, setting_of


def small(name: str = "strongly-convex-T", rounds: tuple[int, ...] = (20, 40)) -> Experiment:
    found = next(e for e in experiments() if e.name == name)
    points = tuple(replace(found.points[0], value=t, rounds=t) for t in rounds)
    return replace(found, points=points, replicates=Replicates(2, 3))


def test_the_same_seed_measures_the_same_and_another_does_not() -> None:
    def errors(seed: int) -> np.ndarray:
        measurement = Measurement(small(), seed)
        list(measurement)
        return np.stack([found.errors for row in measurement.rows() for found in row.found])

    assert np.array_equal(errors(0), errors(0))
    assert not np.array_equal(errors(0), errors(1))


def test_choosing_step_sizes_takes_no_part_in_measuring() -> None:
    experiment = small()
    found = measure(experiment, experiment.points[0], Replicates(2, 5), seed=0)
    assert set(found) == set(LABELS)
    assert all(one.errors.shape == (5,) for one in found.values())


def test_of_equal_clients_without_noise_fedavg_and_scaffold_are_the_same_walk() -> None:
    point = Point(1, Quadratics(4, 3, 0.1, 1.0), rounds=20, steps=3, cohort=4)
    experiment = replace(small(), points=(point,))
    found = measure(experiment, point, Replicates(1, 1), seed=0)
    assert found["fedavg"].errors == pytest.approx(found["scaffold"].errors, rel=1e-9)
    assert found["fedavg"].errors != pytest.approx(found["fedcm"].errors, rel=1e-3)


def test_the_clients_experiments_hold_everything_but_the_number_of_clients() -> None:
    found = [e for e in experiments() if e.varied == "N"]
    assert found
    for experiment in found:
        assert [point.problem.clients for point in experiment.points] == [100, 1000, 10000]
        assert {point.cohort for point in experiment.points} == {10}
        assert len({(setting_of(p).constants, p.rounds, p.steps, p.alpha) for p in experiment.points}) == 1
        assert set(experiment.proven) == set(LABELS)


def test_a_name_chooses_what_begins_with_it_and_an_unknown_one_is_refused() -> None:
    assert [e.name for e in chosen(["nonconvex"], quick=False)] == ["nonconvex-T", "nonconvex-K", "nonconvex-S"]
    assert len(chosen([], quick=True)) == len(experiments())
    with pytest.raises(Refused, match="did you mean 'noise-free'"):
        chosen(["noisefree"], quick=False)


def test_the_command_writes_table_figures_and_numbers(fedcm: Callable[..., Answer], tmp_path: Path) -> None:
    answer = fedcm("theory", "rates", "--only", "noise-free", "--quick", "-o", tmp_path, "--json")
    assert answer.code == 0, answer.err
    rows = json.loads(answer.out)
    assert [row["algorithm"] for row in rows] == list(LABELS)
    assert rows[0]["verdict"] == "faster than proven"
    assert rows[0]["errors"][-1] < 1e-2 * rows[0]["errors"][0]
    assert {path.name for path in tmp_path.iterdir()} == {
        f"theory-rates.{suffix}" for suffix in ("png", "pdf", "md", "csv", "tex", "json")
    }
    assert "fedcm theory rates --only noise-free" in (tmp_path / "theory-rates.md").read_text()


def test_the_command_refuses_an_unknown_experiment_in_a_sentence(fedcm: Callable[..., Answer], tmp_path: Path) -> None:
    answer = fedcm("theory", "rates", "--only", "nonsense", "-o", tmp_path)
    assert answer.code == 2
    assert "there is no experiment 'nonsense'" in answer.err
