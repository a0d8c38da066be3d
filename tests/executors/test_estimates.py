"""Estimates are unbiased: their exact expectation over all samples is the quantity of the population.

Nothing here is random. Clients, their order, their minibatches and the chosen steps are enumerated, each with its
probability, and the estimate of a diagnosis is averaged over all of them.
"""

import math
from collections.abc import Iterator
from itertools import combinations, permutations, product
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fedcm.algorithms.averaging.fedavg import FedAvg
from fedcm.core.algorithm import Round
from fedcm.core.problem import Problem
from fedcm.data.batches import LocalWork
from fedcm.data.dataset import Dataset, Examples
from fedcm.data.federated import ArrayData
from fedcm.executors import diagnosis
from fedcm.executors.client_runner import ClientRunner
from fedcm.executors.client_states import ClientStatesInMemory
from fedcm.executors.estimates import (
    compute_noise_share,
    estimate_round_variance,
    estimate_square_of_mean,
    estimate_variance,
)


def squared_error(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return (outputs.squeeze(1) - labels).square().mean()


PARAMS = torch.tensor([0.3, -1.0], dtype=torch.float64)


def make_runner(sizes: list[int], work: LocalWork) -> ClientRunner:
    """Least squares in two dimensions, f_i(w) = mean (x·w − y)², on clients of these sizes."""
    draw = np.random.default_rng(3)
    features = torch.from_numpy(draw.standard_normal((sum(sizes), 2)).astype(np.float32))
    labels = torch.from_numpy(draw.standard_normal(sum(sizes)).astype(np.float32))
    parts = np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1])
    data = ArrayData(Dataset("made", Examples(features, labels), None, None), parts)
    problem = Problem(nn.Linear(2, 1, bias=False).double(), squared_error)
    return ClientRunner(FedAvg(), problem, data.prepare_for(torch.float64, torch.device("cpu")), work, seed=1)


def compute_example_gradients(own: ClientRunner, client: int) -> np.ndarray:
    """∇(x·w − y)² of every example, in closed form; their mean is ∇f_i."""
    x, y = own.data.client(client)
    return (2 * x * (x @ PARAMS - y)[:, None]).numpy()


def compute_client_gradients(own: ClientRunner) -> np.ndarray:
    return np.stack([compute_example_gradients(own, client).mean(0) for client in range(own.data.population)])


def compute_square(vector: np.ndarray) -> float:
    return float(np.square(vector).sum())


def diagnose_runner(own: ClientRunner, **settings: Any) -> dict[str, Any]:
    next_round = Round(0, 0.05, 1.0, 0, own.data.population, math.nan)
    states, server = ClientStatesInMemory(own.algorithm.init_client(PARAMS)), own.algorithm.init_server(PARAMS)
    return diagnosis.diagnose(own, states, server, next_round, **settings)


# ---- clients ----


@pytest.mark.parametrize("sampled", [2, 3, 4, 5])
def test_a_sample_of_clients_estimates_gradient_and_dissimilarity_without_bias(
    sampled: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Average the estimates of ‖∇f‖², σ_g² and the variance of losses over all samples of 5 clients."""
    own = make_runner([3] * 5, LocalWork(3))
    gradients = compute_client_gradients(own)
    mean = gradients.mean(0)
    losses = [float((x @ PARAMS - y).square().mean()) for x, y in map(own.data.client, range(5))]
    diagnosed = []
    for clients in combinations(range(5), sampled):
        monkeypatch.setattr(diagnosis, "_draw_clients", lambda *given, clients=clients, **named: np.array(clients))
        diagnosed.append(diagnose_runner(own))
    expectation = {name: np.mean([each[name] for each in diagnosed]) for name in ("gradient_square", "dissimilarity")}
    assert expectation["gradient_square"] == pytest.approx(compute_square(mean), rel=1e-7)
    assert expectation["dissimilarity"] == pytest.approx(
        np.mean([compute_square(g - mean) for g in gradients]), rel=1e-7
    )
    spread = np.mean([each["client_loss_deviation"] ** 2 for each in diagnosed])
    assert spread == pytest.approx(np.var(losses), rel=1e-7)
    assert np.mean([each["client_loss"] for each in diagnosed]) == pytest.approx(np.mean(losses), rel=1e-7)


def test_the_norm_is_the_root_of_the_estimate_or_0(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two clients that nearly cancel, of four whose gradients are ±a: ‖ḡ‖² is 0, and its variance is not."""
    own = make_runner([1, 1, 1, 1], LocalWork(1))
    ways = torch.tensor([1.0, -1.0, 1.0, -1.0], dtype=torch.float64)

    def made(params: Any, data: Any) -> Any:
        client = next(k for k in range(4) if torch.equal(own.data.client(k).features, data.features))
        return ways[client] * torch.tensor([3.0, 0.0], dtype=torch.float64), 1.0

    monkeypatch.setattr(own.problem, "full_gradient_and_loss", made)
    signs = {}
    for clients in combinations(range(4), 2):
        monkeypatch.setattr(diagnosis, "_draw_clients", lambda *given, clients=clients, **named: np.array(clients))
        diagnosed = diagnose_runner(own)
        signs[clients] = diagnosed["gradient_square"]
        assert diagnosed["gradient_norm"] == pytest.approx(math.sqrt(max(diagnosed["gradient_square"], 0.0)))
    assert signs[0, 1] == pytest.approx(-4.5)  # 0 − (4 − 2)/(4 − 1)·(9·2·3/4)/2
    assert signs[0, 2] == pytest.approx(9.0)
    assert np.mean(list(signs.values())) == pytest.approx(0.0, abs=1e-12)


def test_a_sample_of_one_client_has_no_variance_unless_it_is_the_population(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    diagnosed = diagnose_runner(make_runner([3] * 5, LocalWork(3)), max_gradients=1)
    for name in ("gradient_square", "gradient_norm", "dissimilarity", "client_loss_deviation"):
        assert diagnosed[name] is None, name
    alone = make_runner([3], LocalWork(3))
    diagnosed = diagnose_runner(alone)
    assert diagnosed["gradient_square"] == pytest.approx(compute_square(compute_client_gradients(alone)[0]), rel=1e-7)
    assert (diagnosed["dissimilarity"], diagnosed["client_loss_deviation"]) == (0.0, 0.0)


def test_samples_of_clients_are_uniform_and_without_replacement() -> None:
    """The expectations above assume that all samples are equally likely."""
    draws = [diagnosis._draw_clients(seed, Round(0, 0.1, 1.0, 0, 4, math.nan), 2) for seed in range(3000)]
    counts = [sum(tuple(draw) == pair for draw in draws) for pair in combinations(range(4), 2)]
    assert sum(counts) == 3000
    assert np.abs(np.array(counts) - 500).max() < 5 * math.sqrt(3000 / 6 * 5 / 6)


# ---- minibatches ----


class Orders:
    """Replaces a generator: returns given permutations, one per pass."""

    def __init__(self, orders: tuple[tuple[int, ...], ...]) -> None:
        self.orders = iter(orders)

    def permutation(self, examples: int) -> np.ndarray:
        return np.array(next(self.orders))


def list_sizes(work: LocalWork, examples: int) -> list[list[int]]:
    return work.list_batch_sizes(examples, work.count_steps(examples, 0, 0, 0))


def list_rounds(work: LocalWork, examples: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[list[int]]]:
    """Yield the minibatches of a round for every order of every pass; while it is yielded, `work` draws that order."""
    for orders in product(permutations(range(examples)), repeat=len(list_sizes(work, examples))):
        monkeypatch.setattr("fedcm.data.batches.make_generator", lambda *given, orders=orders: Orders(orders))
        yield [index.tolist() for index in work.draw_indices(examples, 1, 0, 0)]


WORKS = {
    "a whole pass of equal minibatches": (LocalWork(2), 4),
    "a whole pass with a smaller last one": (LocalWork(3), 4),
    "two passes with a smaller last one": (LocalWork(2, epochs=2), 3),
    "less than a pass": (LocalWork(1, steps=2), 4),
    "one pass and a third": (LocalWork(1, steps=4), 3),
    "two passes, the second cut short, with a smaller last one": (LocalWork(2, steps=3), 3),
    "one example at a time": (LocalWork(1), 4),
    "all examples at once": (LocalWork(3, epochs=2), 3),
    "one minibatch": (LocalWork(3, steps=1), 4),
}


@pytest.mark.parametrize(("work", "examples"), WORKS.values(), ids=WORKS)
def test_the_noise_of_minibatches_and_rounds_is_exact_over_every_order(
    work: LocalWork, examples: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = make_runner([examples], work)
    each = compute_example_gradients(own, 0)
    single, of_mean, diagnosed = [], [], []
    for batches in list_rounds(work, examples, monkeypatch):
        gradients = np.stack([each[batch].mean(0) for batch in batches]) - each.mean(0)
        single.append(np.mean([compute_square(gradient) for gradient in gradients]))
        of_mean.append(compute_square(gradients.mean(0)))
        diagnosed.append(diagnose_runner(own))
    assert np.mean([one["noise"] for one in diagnosed]) == pytest.approx(np.mean(single), rel=1e-7, abs=1e-15)
    assert np.mean([one["round_noise"] for one in diagnosed]) == pytest.approx(np.mean(of_mean), rel=1e-7, abs=1e-15)


def test_minibatches_are_sampled_from_the_whole_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of the three minibatches of a pass over 5 examples, sizes 2, 2 and 1: over every choice of two and every
    order. The first two alone would miss the small one, which is the noisiest."""
    work = LocalWork(2)
    own = make_runner([5], work)
    each = compute_example_gradients(own, 0)
    monkeypatch.setattr(diagnosis, "_BATCHES", 2)
    requests: list[tuple[int, int]] = []

    class Chosen:
        def __init__(self, steps: tuple[int, ...]) -> None:
            self.steps = steps

        def choice(self, steps: int, count: int, **named: Any) -> np.ndarray:
            requests.append((steps, count))
            return np.array(self.steps)

    single, diagnosed = [], []
    for batches in list_rounds(work, 5, monkeypatch):
        gradients = [each[batch].mean(0) - each.mean(0) for batch in batches]
        single.append(np.mean([compute_square(gradient) for gradient in gradients]))
        for steps in combinations(range(3), 2):
            monkeypatch.setattr(diagnosis, "make_generator", lambda *given, steps=steps: Chosen(steps))
            diagnosed.append(diagnose_runner(own)["noise"])
    assert set(requests) == {(3, 2)}
    assert np.mean(diagnosed) == pytest.approx(np.mean(single), rel=1e-7)


def test_whole_passes_as_in_the_paper_leave_no_noise() -> None:
    """500 or 100 examples in minibatches of 50, as in the paper: whole passes use each example equally often."""
    for examples in (500, 100):
        assert compute_noise_share(list_sizes(LocalWork(50, epochs=5), examples), examples) == 0
    assert compute_noise_share(list_sizes(LocalWork(50, epochs=5), 120), 120) > 0, "its last minibatch is smaller"


def test_noise_of_full_batches_is_averaged_over_the_steps() -> None:
    """With all examples in every minibatch, only dropout and the like are left, with a new draw in each of K steps."""
    assert compute_noise_share(list_sizes(LocalWork(4, epochs=2), 4), 4) == 1 / 2


# ---- rounds ----


def cohorts(kind: str) -> dict[tuple[int, ...], float]:
    """Every cohort of 3 clients with its probability, among those that are not empty."""
    subsets = [clients for size in (1, 2, 3) for clients in combinations(range(3), size)]
    if kind == "everyone":
        return {(0, 1, 2): 1.0}
    if kind == "fixed":
        return {clients: 1 / 3 for clients in subsets if len(clients) == 2}
    chances = {clients: 0.4 ** len(clients) * 0.6 ** (3 - len(clients)) for clients in subsets}
    return {clients: chance / sum(chances.values()) for clients, chance in chances.items()}


@pytest.mark.parametrize("kind", ["everyone", "fixed", "independent"])
@pytest.mark.parametrize("work", [LocalWork(2), LocalWork(2, steps=3), LocalWork(4)], ids=str)
def test_the_variance_of_a_rounds_mean_gradient_over_every_cohort_and_every_order(
    work: LocalWork, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """E‖mean over the cohort of each client's mean minibatch gradient − ∇f‖², with clients of 3, 3 and 2 examples."""
    own = make_runner([3, 3, 2], work)
    gradients = compute_client_gradients(own)
    rounds = []  # of each client: its mean gradient for every order of its passes
    for client, examples in enumerate((3, 3, 2)):
        each = compute_example_gradients(own, client)
        means = [
            np.mean([each[batch].mean(0) for batch in batches], axis=0)
            for batches in list_rounds(work, examples, monkeypatch)
        ]
        rounds.append(np.stack(means))
    exact, inverse = 0.0, 0.0
    for clients, chance in cohorts(kind).items():
        count = [len(rounds[client]) for client in clients]
        total = sum(
            np.expand_dims(rounds[client], [axis for axis in range(len(clients)) if axis != place])
            for place, client in enumerate(clients)
        )
        deviations = np.square(np.asarray(total) / len(clients) - gradients.mean(0)).sum(-1)
        assert deviations.shape == tuple(count), "every combination of orders"
        exact += chance * float(deviations.mean())
        inverse += chance / len(clients)
    noise = np.mean(
        [np.square(own_rounds - own_mean).sum(1).mean() for own_rounds, own_mean in zip(rounds, gradients, strict=True)]
    )
    dissimilarity = np.square(gradients - gradients.mean(0)).sum(1).mean()
    estimate = estimate_round_variance(float(noise), float(dissimilarity), inverse, 3)
    assert estimate == pytest.approx(exact, rel=1e-9, abs=1e-15)


def test_one_client_has_no_sampling_variance() -> None:
    assert estimate_round_variance(2.0, 0.0, 1.0, 1) == 2.0
    assert estimate_variance(0.0, 1, 1) == 0.0
    assert estimate_square_of_mean(3.0, 0.0, 1, 1) == 3.0
