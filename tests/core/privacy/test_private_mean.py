"""The private mean: sensitivity, post-processing, the expected cohort, and thresholds that move."""

import math
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fedcm.algorithms import ALGORITHMS, FedAvg, FedCM, Scaffold
from fedcm.core.aggregation import PrivateMean
from fedcm.core.aggregation import private as private_module
from fedcm.core.algorithm import Algorithm, LocalRun, Round, Step, has_survey, is_decentralised
from fedcm.core.exact_mean import OutOfRange
from fedcm.core.privacy.discrete_gaussian import sample_discrete_gaussian
from fedcm.core.privacy.keystream import derive_key
from fedcm.core.privacy.quantile import ClipQuantile

SIZE, STEPS, RATE = 6, 5, 0.1
ROUND = Round(3, RATE, 1.0, 2, 40, math.nan)


def private_mean(algorithm: Any, clip: tuple[float, ...] = (1.0,), noise: float = 1.0, **more: Any) -> PrivateMean:
    return PrivateMean(algorithm, noise, clip, expected_cohort=8.0, steps=STEPS, key=derive_key(0), **more)


def make_broadcast(algorithm: Any, seed: int = 0) -> tuple[Any, Any]:
    """A server state of random numbers, and its broadcast."""
    generator = torch.Generator().manual_seed(seed)
    start = algorithm.init_server(torch.zeros(SIZE))
    server = type(start)(*[torch.rand(field.shape, generator=generator) + 0.1 for field in start])
    if "rounds" in server._fields:
        server = server._replace(rounds=torch.full((1,), 100.0))
    return server, algorithm.broadcast(server)


def report_without_gradients(algorithm: Any, sent: Any) -> Any:
    """What a client reports whose gradients are 0 and that never took part before."""

    def gradient(params: Tensor) -> Tensor:
        return torch.zeros_like(params)

    kept = algorithm.init_client(torch.zeros(SIZE))
    start, local = algorithm.start(sent, kept), algorithm.init_local(gradient, sent, kept)
    params, total, count = start, torch.zeros(SIZE), torch.full((1,), float(STEPS))
    for index in range(STEPS):
        step = Step(index, count, RATE, (torch.Size([SIZE]),))
        direction, local = algorithm.step(gradient, params, sent, kept, local, step)
        total, params = total + direction, params - RATE * direction
    return algorithm.report(LocalRun(start, params, total, count, RATE, gradient, local), sent, kept)[0]


STATES_PUBLIC_PART = sorted(name for name, kind in ALGORITHMS.items() if kind.public_part is not Algorithm.public_part)


def test_these_algorithms_state_a_public_part() -> None:
    assert {
        "fedcm",
        "fedcm-anytime",
        "scaffold",
        "mofedsam",
        "mimelite",
        "ghbm",
        "mfl",
        "fedlada",
        "fednova",
        "fedac",
        "fedmuon",
    } <= set(STATES_PUBLIC_PART)
    assert not {"fedavg", "fedadam", "feddyn"} & set(STATES_PUBLIC_PART)


@pytest.mark.parametrize("name", STATES_PUBLIC_PART)
def test_the_public_part_is_the_report_without_gradients(name: str) -> None:
    algorithm: Any = ALGORITHMS[name]()
    assert not has_survey(algorithm)
    assert not is_decentralised(algorithm)
    _, sent = make_broadcast(algorithm)
    public = algorithm.public_part(sent, replace(ROUND, steps=float(STEPS)))
    for stated, found in zip(public, report_without_gradients(algorithm, sent), strict=True):
        assert torch.allclose(stated, found, atol=1e-6)
    assert any(field.abs().sum() > 0 for field in public)


class Pair(NamedTuple):
    """A report with two fields."""

    one: Tensor
    two: Tensor


ENTRIES = st.lists(st.floats(-(2.0**127), 2.0**127, width=32), min_size=5, max_size=5)


@settings(deadline=None, max_examples=60)
@given(ENTRIES, st.lists(st.floats(-1, 1, width=32), min_size=5, max_size=5), st.floats(1e-3, 1e3))
def test_one_client_changes_the_sum_by_at_most_the_sensitivity(
    hostile: list[float], honest: list[float], threshold: float
) -> None:
    mean, template = private_mean(FedAvg(), (threshold, 10 * threshold)), Pair(torch.zeros(2), torch.zeros(3))
    sums = []
    for reports in ([honest], [honest, hostile]):
        total = mean.start_round(template, FedAvg().init_server(torch.zeros(2)), np.arange(2), ROUND)
        for client, values in enumerate(reports):
            row = torch.tensor([values])
            total.add_stack([client], Pair(row[:, :2], row[:, 2:]), [1.0])
        sums.append([limb.clone() for limb in total.sum.units])
    change = sum(int((b - a).square().sum()) for a, b in zip(*sums, strict=True))
    assert change <= 4**20


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_report_that_is_not_finite_is_an_error_and_adds_nothing(bad: float) -> None:
    template = FedAvg().report(_run(torch.zeros(3)), None, ())[0]  # pyright: ignore[reportArgumentType]
    total = private_mean(FedAvg()).start_round(template, None, np.arange(2), ROUND)
    with pytest.raises(OutOfRange, match="client 7"):
        total.add_stack([4, 7], type(template)(torch.tensor([[1.0, 1, 1], [1, bad, 1]])), [1.0, 1.0])
    assert not any(limb.any() for limb in total.sum.units)


def _run(moved: Tensor) -> LocalRun:
    return LocalRun(moved, moved, moved, torch.ones(1), 1.0, lambda params: params)


def test_the_momentum_of_fedcm_is_post_processing() -> None:
    """Δ_{t+1} = (1 − α)·Δ_t + the noisy mean of the clipped α·g: Δ is added after the noise, and costs nothing."""
    algorithm, alpha, clip, noise = FedCM(alpha=0.25), 0.25, 0.7, 1.3
    server, sent = make_broadcast(algorithm)
    gradients = torch.tensor([[3.0, 4, 0, 0, 0, 0], [0.1, 0, 0.2, 0, 0, 0.3]])
    reports = (1 - alpha) * sent.momentum + alpha * gradients
    template = type(algorithm.public_part(sent, ROUND))(torch.zeros(SIZE))
    total = private_mean(algorithm, (clip,), noise).start_round(template, sent, np.arange(2), ROUND)
    total.add_stack([0, 1], type(template)(reports), [1.0, 1.0])
    after = algorithm.update(server, total.compute(np.arange(2), np.ones(2)), replace(ROUND, steps=STEPS))

    own = alpha * gradients.double()
    clipped = own * (clip / own.norm(dim=1, keepdim=True)).clamp(max=1)
    step = clip * 2.0**-20
    drawn = sample_discrete_gaussian(math.ceil(noise * 2**20), SIZE, derive_key(0), ROUND.index, 0) * step
    expected = (1 - alpha) * server.momentum + (clipped.sum(0) + torch.from_numpy(drawn)) / 8.0
    assert torch.allclose(after.momentum.double(), expected, atol=1e-6)
    assert not torch.allclose(own, clipped)


def test_the_public_part_needs_no_room_within_the_threshold() -> None:
    """A momentum that is a thousand times as long as the threshold changes neither the clipping nor the noise."""
    algorithm = FedCM(alpha=0.5)
    means = []
    for length in (0.0, 1000.0):
        sent = algorithm.broadcast(algorithm.init_server(torch.zeros(SIZE)))._replace(
            momentum=torch.full((SIZE,), length)
        )
        template = algorithm.public_part(sent, ROUND)
        total = private_mean(algorithm, (0.1,)).start_round(template, sent, np.arange(1), ROUND)
        total.add_stack([0], type(template)(0.5 * sent.momentum[None] + torch.full((1, SIZE), 0.01)), [1.0])
        means.append(total.compute(np.arange(1), np.ones(1)).direction - 0.5 * length)
    assert torch.allclose(means[0], means[1], atol=1e-4)


def test_the_sum_is_divided_by_the_expected_cohort_whoever_came(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(private_module, "sample_discrete_gaussian", lambda sigma, size, *_: np.zeros(size, np.int64))
    template = FedAvg().report(_run(torch.zeros(3)), None, ())[0]  # pyright: ignore[reportArgumentType]
    for clients in (0, 1, 3):
        total = private_mean(FedAvg()).start_round(template, None, np.arange(clients), ROUND)
        for client in range(clients):
            total.add_stack([client], type(template)(torch.full((1, 3), 0.25)), [1.0])
        found = total.compute(np.arange(clients), np.ones(clients)).moved
        assert torch.allclose(found, torch.full((3,), clients * 0.25 / 8.0), atol=1e-6)
        assert total.expected_size == 8.0


@pytest.mark.parametrize("multiplier", [0.5, 4.0])
def test_the_noise_of_the_mean_has_the_stated_size(multiplier: float) -> None:
    size = 20_000
    template = Pair(torch.zeros(size), torch.zeros(size))
    total = private_mean(FedAvg(), (0.5, 20.0), multiplier).start_round(template, None, np.arange(0), ROUND)
    one, two = total.compute(np.arange(0), np.ones(0))
    assert one.std().item() == pytest.approx(multiplier * 0.5 / 8.0, rel=0.03)
    assert two.std().item() == pytest.approx(multiplier * 20.0 / 8.0, rel=0.03)
    assert abs(np.corrcoef(one, two)[0, 1]) < 0.03


def test_scaffold_moves_by_its_control_at_no_cost() -> None:
    algorithm = Scaffold()
    server, sent = make_broadcast(algorithm)
    report = report_without_gradients(algorithm, sent)
    template = type(report)(torch.zeros(SIZE), torch.zeros(SIZE))
    total = private_mean(algorithm, (1e-6, 1e-6)).start_round(template, sent, np.arange(1), ROUND)
    total.add_stack([0], type(report)(*[field[None] for field in report]), [1.0])
    mean = total.compute(np.arange(1), np.ones(1))
    assert torch.allclose(mean.moved, RATE * STEPS * server.control, atol=1e-5)
    assert torch.allclose(mean.control_change, torch.zeros(SIZE), atol=1e-5)


def test_thresholds_find_the_quantile_of_the_norms() -> None:
    """Norms from 0.5 to 1.5: from ten times too small and too large, the threshold comes to their 0.3-quantile."""
    template = FedAvg().report(_run(torch.zeros(2)), None, ())[0]  # pyright: ignore[reportArgumentType]
    norms = torch.linspace(0.5, 1.5, 200)
    for start in (0.08, 8.0):
        rule = ClipQuantile(0.3, expected_cohort=200.0)
        mean = PrivateMean(FedAvg(), 2.0, (start,), 200.0, STEPS, derive_key(1), rule)
        line = None
        for index in range(100):
            factor = rule.compute_factor(line)
            total = mean.start_round(template, None, np.arange(200), replace(ROUND, index=index, clip_factor=factor))
            rows = torch.stack([norms, torch.zeros(200)], 1)
            total.add_stack(range(200), type(template)(rows), [1.0] * 200)
            total.compute(np.arange(200), np.ones(200))
            line = total.describe()
        assert start * rule.compute_factor(line) == pytest.approx(0.8, abs=0.06)


def test_the_noise_of_the_share_is_paid_for() -> None:
    """1/z² = 1/z_reports² + 1/z_share²: together they cost as much as the stated noise."""
    rule, stated = ClipQuantile(0.5, 60.0), 2.0
    split = rule.split_noise(stated)
    assert split is not None
    assert split**-2 + rule.noise_multiplier**-2 == pytest.approx(stated**-2)
    template = FedAvg().report(_run(torch.zeros(20_000)), None, ())[0]  # pyright: ignore[reportArgumentType]
    mean = PrivateMean(FedAvg(), stated, (1.0,), 60.0, STEPS, derive_key(0), rule)
    shares = []
    for index in range(300):
        total = mean.start_round(template, None, np.arange(0), replace(ROUND, index=index))
        if index == 0:
            assert total.compute(np.arange(0), np.ones(0)).moved.std().item() * 60 == pytest.approx(split, rel=0.03)
        else:
            small = mean.start_round(type(template)(torch.zeros(1)), None, np.arange(0), replace(ROUND, index=index))
            small.compute(np.arange(0), np.ones(0))
            shares.append(small.describe()["below_clip"])
    assert np.std(shares) * 60 == pytest.approx(rule.noise_multiplier / 2, rel=0.15)
    assert np.mean(shares) == pytest.approx(0.5, abs=0.02)
