"""Privacy with secure aggregation: sites add shares of the noise, and the server sees only noisy sums."""

import json
import math
import random
import stat
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sites_here import SITES, InProcessChannel, make_experiment, make_federated
from test_private_federation import NOISY, STEPS, load_initial, load_params, simulate_with_secret
from test_secure_rounds import STEP_KEYS, losing, name_step, write_all_kits
from test_server import metrics, parameters, run_all

from fedcm.algorithms import FedAvg
from fedcm.core.aggregation import PrivateMean
from fedcm.core.algorithm import Round, get_message_types
from fedcm.core.participation import Everyone
from fedcm.core.privacy.noise_shares import LEAST_SHARE, compute_least_noise, compute_share
from fedcm.errors import Stopped, UserError
from fedcm.federation.frames import Arrays
from fedcm.federation.private.noisy_report import NoisyReport
from fedcm.privacy import key_file
from fedcm.privacy.accountant import Accountant, Sampling
from fedcm.privacy.key_file import FILE

Answer = tuple[Mapping[str, Any], Arrays]
SIZE = 20_000
GRID = 2**20


def noisy(algorithm: str = "fedcm", rounds: int = 3, noise: float = 1.0, **federation: Any) -> Any:
    return make_experiment(
        algorithm,
        rounds,
        client=STEPS,
        participation={"kind": "everyone"},
        privacy=NOISY | {"noise_multiplier": noise},
        federation={"secure_aggregation": True, **federation},
    )


def make_report(
    vector: torch.Tensor, folder: Path, shares: int = 3, noise: float = 1.0, clip: float = 1.0, round: int = 0
) -> NoisyReport:
    mean, messages = PrivateMean(FedAvg(), noise, (clip,), 3.0, 2.0, bytes(32)), get_message_types(FedAvg)
    sent, context = messages.broadcast(torch.zeros(len(vector))), Round(round, 0.1, 1.0, 0, 3, math.nan)
    return NoisyReport(mean, sent, messages.report(vector), context, shares, 9, folder)


def read_integers(report: NoisyReport) -> np.ndarray:
    return report.encode().view(np.int64)


@pytest.mark.parametrize(("shares", "noise"), [(2, 1.0), (3, 0.3), (7, 40.0)])
def test_the_shares_of_a_smallest_sum_have_the_variance_of_all_the_noise(
    shares: int, noise: float, tmp_path: Path
) -> None:
    """The relative error of a variance of 20000 samples is 1 %; one share more or less would change it by 14 %."""
    zero = torch.zeros(SIZE)
    drawn = [read_integers(make_report(zero, tmp_path / str(site), shares, noise)) for site in range(shares)]
    total = np.sum(drawn, axis=0).astype(np.float64)
    assert np.var(total) == pytest.approx((noise * GRID) ** 2, rel=0.05)
    assert abs(total.mean()) < 5 * noise * GRID / math.sqrt(SIZE)
    assert abs(np.corrcoef(drawn[0], drawn[1])[0, 1]) < 5 / math.sqrt(SIZE)


def test_shares_of_different_rounds_are_independent(tmp_path: Path) -> None:
    drawn = [read_integers(make_report(torch.zeros(SIZE), tmp_path, round=index)) for index in range(2)]
    assert abs(np.corrcoef(drawn[0], drawn[1])[0, 1]) < 5 / math.sqrt(SIZE)


def test_the_least_noise_gives_shares_of_enough_steps() -> None:
    """Kairouz, Liu & Steinke (2021), theorem 1: τ bounds by how much a sum of shares differs from a Gaussian."""
    for shares in (1, 3, 100):
        assert compute_share(compute_least_noise(shares), 20, shares) == LEAST_SHARE
        terms = [math.pi**2 * 2 * LEAST_SHARE**2 * k / (k + 1) for k in range(1, shares)]
        assert all(term > 2500 for term in terms)  # τ = 10 Σ exp(−term)


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.floats(-1e6, 1e6, width=32), min_size=4, max_size=4),
    st.floats(0.01, 50),
)
def test_one_report_changes_the_sum_by_at_most_the_threshold(
    tmp_path_factory: pytest.TempPathFactory, entries: list[float], clip: float
) -> None:
    """The same key with and without the report: what is left has no noise, and at most 2^20 steps."""
    key, folders = tmp_path_factory.mktemp("key"), [tmp_path_factory.mktemp("site") for _ in range(2)]
    make_report(torch.zeros(4), key).encode()
    for folder in folders:
        (folder / FILE).write_bytes((key / FILE).read_bytes())
        (folder / FILE).chmod(0o600)
    with_report = read_integers(make_report(torch.tensor(entries), folders[0], clip=clip))
    without = read_integers(make_report(torch.zeros(4), folders[1], clip=clip))
    own = [int(number) for number in with_report - without]
    assert sum(number**2 for number in own) <= GRID**2
    if np.linalg.norm(entries) > clip:
        assert math.sqrt(sum(number**2 for number in own)) > 0.999 * GRID


@pytest.mark.parametrize("algorithm", ["fedcm", "fedavg", "scaffold"])
def test_with_little_noise_the_run_is_that_of_the_simulation(
    algorithm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = random.Random(1)  # keys of the noise, which are secret otherwise: so the test has one result
    monkeypatch.setattr(key_file, "secrets", SimpleNamespace(token_bytes=drawn.randbytes))
    chosen = noisy(algorithm, noise=4e-5)
    run = run_all(InProcessChannel(write_all_kits(chosen, tmp_path), make_federated(chosen)), chosen)
    quiet = chosen.model_copy(update={"federation": chosen.federation.model_copy(update={"secure_aggregation": False})})
    simulated = simulate_with_secret(quiet, tmp_path)
    ours, theirs, start = load_params(run, 3), load_params(simulated, 3), load_initial(chosen, tmp_path)
    assert float((ours - theirs).norm()) < 0.02 * float((theirs - start).norm())
    assert [line["clients"] for line in metrics(run)] == [[0, 1, 2]] * 3


class Listener(InProcessChannel):
    """Keeps what sites would mask, by round and site, and what the server receives."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.integers: dict[tuple[int, str], np.ndarray] = {}
        self.received: list[tuple[str, Mapping[str, Any], Arrays]] = []

    def _answer(self, task: str, fields: dict[str, Any], arrays: Arrays, site: str) -> Answer | None:
        if task == "secure" and fields["step"] == "mask":
            rounds = self.sites[site].secure
            assert rounds._trained is not None
            self.integers[fields["round"], site] = rounds._encode(rounds._trained)
        answer = super()._answer(task, fields, arrays, site)
        if answer is not None:
            self.received.append((site, *answer))
        return answer


def test_the_server_divides_the_noisy_sum_by_all_sites_and_adds_no_noise(tmp_path: Path) -> None:
    """FedAvg's update is the negative sum of what the sites masked, in steps of clip · 2^−20 / 3."""
    chosen = noisy("fedavg", rounds=1, threshold=2, colluding=0)
    channel = Listener(write_all_kits(chosen, tmp_path), make_federated(chosen), losing("b", "mask", round=0))
    run = run_all(channel, chosen)
    total = sum(channel.integers[0, site].view(np.int64) for site in ("a", "c"))
    expected = load_initial(chosen, tmp_path) - torch.from_numpy(np.asarray(total)).double() * 0.3 / GRID / 3
    assert torch.allclose(load_params(run, 1), expected, rtol=0, atol=1e-6)
    assert not (run / FILE).exists()
    for site in SITES:
        (key,) = (tmp_path / site / "state").rglob(FILE)
        assert stat.S_IMODE(key.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("federation", "shares"),
    [({}, 2), ({"colluding": 0}, 3), ({"threshold": 2, "colluding": 0}, 2), ({"colluding": 2}, 1)],
)
def test_sites_add_shares_for_the_smallest_sum_of_honest_sites(
    federation: dict[str, Any], shares: int, tmp_path: Path
) -> None:
    chosen = noisy(rounds=1, **federation)
    channel = Listener(write_all_kits(chosen, tmp_path), make_federated(chosen))
    run_all(channel, chosen)
    for integers in channel.integers.values():  # 602 numbers: the noise is much larger than the reports
        deviation = integers.view(np.int64).astype(np.float64).std()
        assert deviation == pytest.approx(GRID / math.sqrt(shares), rel=0.15)


def test_losses_are_not_sent(tmp_path: Path) -> None:
    chosen = noisy(rounds=2)
    channel = Listener(write_all_kits(chosen, tmp_path), make_federated(chosen))
    run = run_all(channel, chosen)
    size = len(load_params(run, 1))
    assert {array.shape for _, _, arrays in channel.received for array in arrays.values()} == {(size,)}
    keys = {key for _, fields, arrays in channel.received for key in fields if "shape" not in fields}
    assert keys == {"run", "round", "steps", "examples", "seconds", *STEP_KEYS}
    assert [line["loss"] for line in metrics(run)] == [None, None]
    assert json.loads((run / "summary.json").read_text())["train_loss"] is None


def test_epsilon_is_in_every_round_and_in_the_summary(tmp_path: Path) -> None:
    chosen = noisy(rounds=2)
    run = run_all(InProcessChannel(write_all_kits(chosen, tmp_path), make_federated(chosen)), chosen)
    accountant = Accountant(Sampling.of(Everyone()), 1.0, 1e-3)
    assert [line["epsilon"] for line in metrics(run)] == [accountant.compute_epsilon(count) for count in (1, 2)]
    assert json.loads((run / "summary.json").read_text())["privacy"]["epsilon"] == accountant.compute_epsilon(2)


@pytest.mark.parametrize("at", ["mask", "unmask"])
@pytest.mark.parametrize("algorithm", ["fedcm", "scaffold"])
def test_a_repeated_round_has_the_same_bytes(algorithm: str, at: str, tmp_path: Path) -> None:
    """The server and all sites restart in between."""
    chosen = noisy(algorithm, rounds=2)
    folder = write_all_kits(chosen, tmp_path)

    def die(site: str, fields: dict[str, Any], arrays: Arrays) -> Answer:
        if fields["round"] == 1 and site == "a" and name_step(fields, arrays) == at:  # the last to answer
            raise Stopped
        return fields, arrays

    first, second = (Listener(folder, make_federated(chosen), spoil) for spoil in (die, None))
    with pytest.raises(Stopped):
        run_all(first, chosen)
    run = run_all(second, chosen, resume=True)
    assert [line["clients"] for line in metrics(run)] == [[0, 1, 2]] * 2
    for site in SITES:
        assert (first.integers[1, site] == second.integers[1, site]).all()
    masked = [
        {arrays["masked"].tobytes() for _, fields, arrays in channel.received if arrays and fields["round"] == 1}
        for channel in (first, second)
    ]
    assert not masked[0] & masked[1]  # the masks are fresh


def test_a_site_masks_one_report_per_round(tmp_path: Path) -> None:
    """A server that repeats a round with another model would get two reports with the same noise."""
    chosen, lines = noisy(rounds=1, give_up_after=9), list[str]()
    folder = write_all_kits(chosen, tmp_path)

    class Moved(InProcessChannel):
        def _answer(self, task: str, fields: dict[str, Any], arrays: Arrays, site: str) -> Answer | None:
            if task == "train":
                arrays = {name: array + np.float32(1e-3) for name, array in arrays.items()}
            return super()._answer(task, fields, arrays, site)

    def die(site: str, fields: dict[str, Any], arrays: Arrays) -> Answer:
        if name_step(fields, arrays) == "mask" and site == "a":
            raise Stopped
        return fields, arrays

    with pytest.raises(Stopped):
        run_all(InProcessChannel(folder, make_federated(chosen), die), chosen)
    run = run_all(Moved(folder, make_federated(chosen)), chosen, lines, resume=True)
    assert [line["clients"] for line in metrics(run)] == [[]]
    assert sum("this site has masked another report of round 0" in line for line in lines) == 3


def test_a_noisy_round_is_never_summed_over_two_sets_of_sites(tmp_path: Path) -> None:
    """The difference of two sums would be a single report with a third of the noise."""
    chosen, lines = noisy(rounds=1, threshold=2, colluding=0), list[str]()
    folder = write_all_kits(chosen, tmp_path)

    def die(site: str, fields: dict[str, Any], arrays: Arrays) -> Answer:
        if site == "a" and name_step(fields, arrays) == "unmask":
            raise Stopped
        return fields, arrays

    with pytest.raises(Stopped):
        run_all(InProcessChannel(folder, make_federated(chosen), die), chosen)
    run = run_all(
        InProcessChannel(folder, make_federated(chosen), losing("b", "mask", round=0)), chosen, lines, resume=True
    )
    assert [line["clients"] for line in metrics(run)] == [[]]
    assert [line for line in lines if "round 0 has no sum" in line]


def test_a_site_that_lost_its_key_does_not_repeat_a_round(tmp_path: Path) -> None:
    first = make_report(torch.ones(5), tmp_path)
    assert (first.encode() == first.encode()).all()
    (tmp_path / FILE).unlink()
    with pytest.raises(UserError, match="has masked another report of round 0"):
        first.encode()
    assert len(make_report(torch.ones(5), tmp_path, round=1).encode()) == 5


def test_a_report_that_is_not_finite_is_not_masked(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not finite"):
        make_report(torch.tensor([1.0, math.nan]), tmp_path).encode()
    assert not (tmp_path / "masked.json").exists()


def test_two_runs_have_other_noise(tmp_path: Path) -> None:
    """Each at sites with kits of their own, because a site masks a training in one run only."""
    chosen, runs = noisy(rounds=1), []
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        channel = InProcessChannel(write_all_kits(chosen, tmp_path / name), make_federated(chosen))
        runs.append(run_all(channel, chosen))
    assert parameters(runs[0]) != parameters(runs[1])


def test_a_noisy_training_is_masked_in_one_run_only(tmp_path: Path) -> None:
    """A server that starts the same run again under another id would get the same reports with other noise."""
    chosen, lines = noisy(rounds=2), list[str]()
    folder = write_all_kits(chosen, tmp_path)
    first = run_all(InProcessChannel(folder, make_federated(chosen)), chosen, name="one")
    again = Listener(folder, make_federated(chosen))
    second = run_all(again, chosen, lines, name="other")
    assert [line["clients"] for line in metrics(first)] == [[0, 1, 2]] * 2
    assert [line["clients"] for line in metrics(second)] == [[], [0, 1, 2]]  # only round 0 is lost
    assert not [fields for _, fields, arrays in again.received if arrays and fields["round"] == 0]
    assert sum("with other noise; start a new run with another seed" in line for line in lines) == 3
    for site in SITES:
        assert stat.S_IMODE((folder / site / "state" / "masked.json").stat().st_mode) == 0o600
