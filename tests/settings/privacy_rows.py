"""Rows of `[privacy]`."""

import math
import stat
from typing import Any

import torch
from bench import SIZES, Bench, Trained, assert_different, assert_literal_trajectory
from schema import put

from fedcm.core.participation import Everyone
from fedcm.core.privacy.discrete_gaussian import sample_discrete_gaussian
from fedcm.core.privacy.keystream import derive_key
from fedcm.privacy.accountant import Accountant, Sampling

WIDE = {"noise_multiplier": 1e-6, "clip": 1000.0, "delta": 1e-3}


def train(bench: Bench, setting: str = "", value: Any = None, rounds: int = 3, **privacy: Any) -> Trained:
    """Train FedAvg with everyone, so that the accounting has a closed form."""
    table = bench.table(
        rounds=rounds,
        algorithm={"name": "fedavg"},
        participation={"kind": "everyone"},
        client={"steps": 2, "batch_size": 4, "lr": 0.3},
        privacy=WIDE | privacy,
    )
    table["privacy"] = {key: given for key, given in table["privacy"].items() if given is not None}
    if setting:
        put(table, setting, value)
    return bench.train(table)


def get_first_update(trained: Trained) -> torch.Tensor:
    start = trained.run.setup.problem.initial_params
    return (start - trained.servers[0].params).double()


def stays_within_the_budget(bench: Bench, setting: str) -> None:
    loose, tight = (train(bench, setting, value, noise_multiplier=None, clip=0.5) for value in (20.0, 1.0))
    for trained, budget in ((loose, 20.0), (tight, 1.0)):
        assert 0.98 * budget < trained.summary["privacy"]["epsilon"] <= budget
        assert [line["epsilon"] for line in trained.lines] == sorted(line["epsilon"] for line in trained.lines)
    assert_different(loose, tight)
    short = train(bench, setting, 1.0, rounds=9, noise_multiplier=5.0, clip=0.5)
    accountant = Accountant(Sampling.of(Everyone()), 5.0, 1e-3)
    paid = accountant.count_rounds(1.0, 9)
    assert 0 < paid < 9
    assert len(short.lines) == paid
    assert short.summary["stopped_early"]["reason"].startswith("the privacy budget is spent: epsilon is ")


def accounts_for_this_delta(bench: Bench, setting: str) -> None:
    for value, used in ((None, 1e-5), (0.01, 0.01)):
        trained = train(bench, setting, value, noise_multiplier=4.0, clip=0.5)
        accountant = Accountant(Sampling.of(Everyone()), 4.0, used)
        assert [line["epsilon"] for line in trained.lines] == [accountant.compute_epsilon(k) for k in (1, 2, 3)]


def adds_this_noise(bench: Bench, setting: str) -> None:
    """The first updates of two runs differ by the noise that the key gives, over the number of clients."""
    quiet, clip = train(bench, clip=0.5), 0.5
    for multiplier in (2.0, 8.0):
        noisy = train(bench, setting, multiplier, clip=clip)
        drawn = [
            sample_discrete_gaussian(math.ceil(own * 2**20), quiet.params.numel(), derive_key(11), 0, 0)
            for own in (multiplier, 1e-6)
        ]
        expected = torch.from_numpy(drawn[0] - drawn[1]).double() * clip * 2.0**-20 / len(SIZES)
        assert torch.allclose(get_first_update(noisy) - get_first_update(quiet), expected, atol=1e-6)


def clips_the_reports(bench: Bench, setting: str) -> None:
    assert_literal_trajectory(train(bench, setting, 1000.0), bench.clients, close=2e-3)  # wide: steps of 0.001
    for value in (0.05, 0.001):
        assert 0.2 * value < get_first_update(train(bench, setting, value)).norm() <= value
    by_field = train(bench, setting, {"moved": 0.05})
    assert torch.equal(by_field.params, train(bench, setting, 0.05).params)


def follows_the_quantile(bench: Bench, setting: str) -> None:
    fixed = train(bench, clip=0.001)
    assert not any("clip_factor" in line for line in fixed.lines)
    low, high = (train(bench, setting, value, rounds=8, noise_multiplier=0.1, clip=0.3) for value in (0.05, 0.95))
    assert low.lines[0]["clip_factor"] == high.lines[0]["clip_factor"] == 1.0
    assert low.lines[-1]["clip_factor"] < high.lines[-1]["clip_factor"]
    for trained, quantile in ((low, 0.05), (high, 0.95)):
        for line, following in zip(trained.lines, trained.lines[1:], strict=False):
            expected = line["clip_factor"] * math.exp(-0.2 * (line["below_clip"] - quantile))
            assert math.isclose(following["clip_factor"], expected, rel_tol=1e-12)


def keeps_the_key_secret(bench: Bench, setting: str) -> None:
    known = [train(bench, setting, value, noise_multiplier=5.0, clip=0.5) for value in (None, False)]
    assert torch.equal(known[0].params, known[1].params)
    assert not (known[0].folder / "noise.key").exists()
    secret = [train(bench, setting, True, noise_multiplier=5.0, clip=0.5) for _ in range(2)]
    assert_different(*secret)
    key = secret[0].folder / "noise.key"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert len(key.read_bytes()) == 32
    assert key.read_bytes() != (secret[1].folder / "noise.key").read_bytes()
