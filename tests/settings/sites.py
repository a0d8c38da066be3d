"""Rows of a federation: how rounds run between sites, observed in the channel that carries their messages."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
import tomli_w
import torch
from bench import APART, Bench
from safetensors.torch import load_file
from secure_parties import write_identity
from sites_here import SITES, InProcessChannel, Spoil, make_experiment, write_kits

from fedcm.config.experiment import load_experiment_file, to_table
from fedcm.config.sections import Experiment, Link
from fedcm.errors import Stopped
from fedcm.federation.compression import unpack
from fedcm.federation.experiment import prepare_experiment
from fedcm.federation.frames import Arrays
from fedcm.federation.server.channel import Deadline, SiteAnswer
from fedcm.federation.server.run import RunRequest
from fedcm.federation.server.run import run_federation as run_at_server

HALVES: dict[Link, torch.dtype] = {"float16": torch.float16, "bfloat16": torch.bfloat16}


@dataclass
class RoundRequest:
    """The request of one round, and its timing."""

    sites: list[str]
    arrays: Arrays
    began: float  # seconds that were left when it was sent
    ended: float = 0.0  # seconds that were left after the last answer
    answers: list[SiteAnswer] = field(default_factory=list)


class RecordingChannel(InProcessChannel):
    """A channel that records every round."""

    def __init__(self, folder: Path, chosen: Experiment, spoil: Spoil | None = None) -> None:
        super().__init__(folder, chosen, spoil)
        self.rounds: list[RoundRequest] = []

    def ask(
        self, task: str, fields: Mapping[str, Any], arrays: Arrays, sites: Sequence[str], deadline: Deadline
    ) -> Iterator[SiteAnswer]:
        asked = RoundRequest(list(sites), dict(arrays), deadline.remaining)
        if task == "train":
            self.rounds.append(asked)
        for answer in super().ask(task, fields, arrays, sites, deadline):
            asked.answers.append(answer)
            yield answer
            asked.ended = deadline.remaining


@dataclass
class FederatedRun:
    folder: Path
    channel: RecordingChannel
    servers: list[Any]  # after every round, from its checkpoint

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.folder / "metrics.jsonl").read_text().splitlines()]

    @property
    def cohorts(self) -> list[int]:
        return [line["cohort"] for line in self.lines]

    @property
    def asked(self) -> list[int]:
        return [line["asked"] for line in self.lines]


def run_federation(
    bench: Bench,
    setting: str,
    value: Any,
    spoil: Spoil | None = None,
    rounds: int = 1,
    federation: Mapping[str, Any] = MappingProxyType({}),
    certificates: bool = False,
    **more: Any,
) -> FederatedRun:
    """Run a federation of three sites, with certificates if needed, from its TOML text; None leaves the setting out."""
    own = {"sites": SITES, **federation}
    own |= {} if value is None else {setting.removeprefix("federation."): value}
    path = bench.folder / "sites.toml"
    path.write_text(tomli_w.dumps(to_table(make_experiment(rounds=rounds, **more)) | {"federation": own}))
    chosen = prepare_experiment(load_experiment_file(path))
    folder = bench.folder / f"led-{len(list(bench.folder.glob('led-*')))}"
    folder.mkdir()
    channel = RecordingChannel(write_kits(load_experiment_file(path), folder), chosen, spoil)
    for site in SITES if certificates else ():
        write_identity(folder / site, site)
    request = RunRequest(folder / "server", "r", "run_federation@example.org", resume=False)
    run = FederatedRun(request.path, channel, [])
    for line in run_at_server(request, chosen, channel, lambda said: None, lambda: False, lambda: None):
        run.servers.append(load_file(request.path / "checkpoints" / f"round-{line['round'] + 1:06d}.safetensors"))
    return run


def silence(*sites: str) -> Spoil:
    return lambda site, fields, arrays: None if site in sites else (fields, arrays)


def uses_these_sites(bench: Bench, setting: str) -> None:
    """Clients are numbered in the order of the names."""
    for sites in (["c", "a"], ["b"]):
        run = run_federation(bench, setting, sites)
        assert run.channel.rounds[0].sites == sorted(sites)
        assert json.loads((run.folder / "federation.json").read_text())["sites"] == sorted(sites)
        assert run.lines[0]["clients"] == list(range(len(sites)))


def waits_until_the_deadline(bench: Bench, setting: str) -> None:
    for given, seconds in ((None, 600), (77, 77)):
        (asked,) = run_federation(bench, setting, given).channel.rounds
        assert seconds - 5 < asked.began <= seconds


def needs_a_quorum(bench: Bench, setting: str) -> None:
    """One of three sites is silent: two are enough for the default quorum of a half, but not for 90 %."""
    for given, counted in ((None, 2), (0.9, 0), (0.6, 2)):
        run = run_federation(bench, setting, given, silence("b"))
        assert run.cohorts == [counted]
        assert (run.lines[0]["update_norm"] > 0) == (counted > 0)


def waits_for_the_other_sites(bench: Bench, setting: str) -> None:
    """Two answers are the quorum; then the third site has this number of seconds."""
    for given, seconds in ((None, 60), (9, 9)):
        (asked,) = run_federation(bench, setting, given, silence("a")).channel.rounds
        assert asked.began > 500
        assert seconds - 5 < asked.ended <= seconds


def drops_sites_after_misses(bench: Bench, setting: str) -> None:
    for given, misses in ((None, 3), (1, 1)):
        run = run_federation(bench, setting, given, silence("b"), rounds=5)
        assert run.asked == [3] * misses + [2] * (5 - misses)


def retries_sites_after_rounds(bench: Bench, setting: str) -> None:
    for given, rounds in ((None, 10), (2, 2)):
        run = run_federation(bench, setting, given, silence("b"), rounds=rounds + 2, federation={"drop_after": 1})
        assert run.asked == [3] + [2] * rounds + [3]


def gives_up_after_rounds(bench: Bench, setting: str) -> None:
    for given, rounds in ((None, 5), (2, 2)):
        with pytest.raises(Stopped, match=f"^{rounds} rounds in a row"):
            run_federation(bench, setting, given, silence(*SITES), rounds=8, federation={"drop_after": 99})


def bounds_the_norm(bench: Bench, setting: str) -> None:
    """The bound is between the largest report and the others, so the largest does not count."""
    free = run_federation(bench, setting, None)
    norms = {own.site: float(np.linalg.norm(own.arrays["direction"])) for own in free.channel.rounds[0].answers}
    *_, second, first = sorted(norms.values())
    bounded = run_federation(bench, setting, (first + second) / 2)
    largest = max(norms, key=lambda site: norms[site])
    assert (free.lines[0]["missed"], bounded.lines[0]["missed"]) == ([], [largest])


def hides_single_reports(bench: Bench, setting: str) -> None:
    """The server gets no vectors with the answers to a round, and has the same parameters afterwards."""
    sizes = {False: 1, True: 0}
    runs = {given: run_federation(bench, setting, given, certificates=True) for given in (None, False, True)}
    for given, run in runs.items():
        assert {len(own.arrays) for own in run.channel.rounds[0].answers} == {sizes[bool(given)]}
        assert [task for task, _ in run.channel.asked].count("secure") == (5 if given else 0)
        assert torch.equal(run.servers[0]["server.params"], runs[None].servers[0]["server.params"])


def needs_this_many_sites_in_a_sum(bench: Bench, setting: str) -> None:
    """By default all of three sites are needed; with 2, one may be silent."""
    for given, counted in ((None, 0), (3, 0), (2, 2)):
        more = {"federation": {"secure_aggregation": True}, "certificates": True}
        assert run_federation(bench, setting, given, silence("b"), **more).cohorts == [counted]


def leaves_out_the_noise_of_some_sites(bench: Bench, setting: str) -> None:
    """Shares of three, two or one sites are all the noise; by default two, as each site knows its own share."""
    privacy = {"noise_multiplier": 2.0, "clip": 0.3, "delta": 1e-3}
    more = {"algorithm": "fedavg", "privacy": privacy, "client": {"steps": 1, "batch_size": 20, "lr": 0.1}}
    for given, variance in ((None, 1.5), (0, 1.0), (1, 1.5), (2, 3.0)):
        run = run_federation(bench, setting, given, federation={"secure_aggregation": True}, certificates=True, **more)
        noise = 2.0 * 0.3 / 3 * (variance * run.servers[0]["server.params"].numel()) ** 0.5
        assert run.lines[0]["update_norm"] == pytest.approx(noise, rel=0.15)


def rounds_the_broadcast(name: str) -> Callable[[Bench, str], None]:
    def row(bench: Bench, setting: str) -> None:
        """One of FedCM's two vectors alone, to half its bytes; sites start from the vectors that they received."""
        exact = run_federation(bench, setting, None, rounds=3)
        for link, dtype in HALVES.items():
            run = run_federation(bench, setting, link, rounds=3)
            for field_name, array in run.channel.rounds[2].arrays.items():
                held = run.servers[1][f"server.{field_name}"]
                if field_name == name:
                    assert torch.equal(unpack(array, link, torch.float32), held.to(dtype).float())
                    assert not torch.equal(held.to(dtype).float(), held)
                else:
                    assert torch.equal(torch.from_numpy(array), held)
            assert [4 * line["bytes_down"] for line in run.lines] == [3 * line["bytes_down"] for line in exact.lines]
            assert not torch.equal(run.servers[2]["server.momentum"], exact.servers[2]["server.momentum"])

    return row


def rounds_the_reports(bench: Bench, setting: str) -> None:
    """The new momentum is the mean of the reports, which are rounded to half their bytes."""
    exact = run_federation(bench, setting, None)
    reports = [torch.from_numpy(own.arrays["direction"]).double() for own in exact.channel.rounds[0].answers]
    for link, dtype in HALVES.items():
        run = run_federation(bench, setting, link)
        mean = torch.stack([report.to(dtype).double() for report in reports]).mean(0)
        found = run.servers[0]["server.momentum"].double()
        torch.testing.assert_close(found, mean, rtol=1e-6, atol=1e-9)
        assert not torch.allclose(found, torch.stack(reports).mean(0), rtol=1e-6, atol=1e-9)
        assert 2 * run.lines[0]["bytes_up"] == exact.lines[0]["bytes_up"]


def has_this_number_of_classes(bench: Bench, setting: str) -> None:
    for given, classes in ((None, 10), (12, 12)):
        run = run_federation(bench, setting, given, model={"name": "linear"})
        assert run.servers[0]["server.params"].numel() == classes * (64 + 1)


def normalises_bytes(one: list[float], other: list[float]) -> Callable[[Bench, str], None]:
    def row(bench: Bench, setting: str) -> None:
        """Sites and the server's evaluation agree with a simulation on normalised bytes."""
        draw = np.random.default_rng(3)
        x, y = draw.integers(0, 256, (90, 1, 3, 4), dtype=np.uint8), draw.integers(0, 4, 90)
        whole = bench.folder / "bytes.npz"
        np.savez(whole, x_train=x[:60], y_train=y[:60], x_test=x[60:], y_test=y[60:])
        table: dict[str, Any] = {"data": {"source": str(whole)}, "model": {"name": "linear"}}
        ends = []
        for value in (one, other):
            given = {"mean": [0.4], "std": [0.3]} | {setting.removeprefix("federation."): value}
            run = run_federation(bench, setting, value, federation=given, **table)
            by_hand = ((x / 255 - given["mean"][0]) / given["std"][0]).astype(np.float32)
            np.savez(
                bench.folder / "floats.npz", x_train=by_hand[:60], y_train=y[:60], x_test=by_hand[60:], y_test=y[60:]
            )
            floats: dict[str, Any] = table | {"data": {"source": str(bench.folder / "floats.npz")}}
            simulated = bench.train(to_table(make_experiment(rounds=1, **floats)))
            torch.testing.assert_close(run.servers[0]["server.params"], simulated.params, rtol=1e-5, atol=1e-6)
            assert run.lines[0]["test_loss"] == pytest.approx(simulated.lines[0]["test_loss"], rel=1e-5)
            ends.append(run.servers[0]["server.params"])
        assert (ends[0] - ends[1]).abs().max() > APART

    return row


def bounds_the_norm_by_the_median(bench: Bench, setting: str) -> None:
    """One site reports eight times its vector, which is shortened: above five times the median, below twelve times."""

    def shout(site: str, fields: dict[str, Any], arrays: Arrays) -> tuple[Mapping[str, Any], Arrays]:
        return fields, {name: 8 * array if site == "b" else array for name, array in arrays.items()}

    models = []
    for value, shortened in ((None, [["b"]]), (12.0, [[]]), (0.0, [[]])):
        run = run_federation(bench, setting, value, shout)
        assert [line.get("shortened", []) for line in run.lines] == shortened
        models.append(run.servers[-1]["server.params"])
    assert torch.equal(models[1], models[2])
    assert float((models[0] - models[1]).abs().max()) >= APART


def bounds_the_cosine_with_the_median(bench: Bench, setting: str) -> None:
    """One site reports its vector with the opposite sign."""

    def flip(site: str, fields: dict[str, Any], arrays: Arrays) -> tuple[Mapping[str, Any], Arrays]:
        return fields, {name: -array if site == "b" else array for name, array in arrays.items()}

    more: dict[str, Any] = {"algorithm": "fedavg", "split": {"kind": "iid", "clients": 3}}
    for value, missed in ((None, [["b"]]), (-0.999, [[]]), (-1.0, [[]])):
        run = run_federation(bench, setting, value, flip, **more)
        assert [line["missed"] for line in run.lines] == missed


def bounds_the_weight_of_a_site(bench: Bench, setting: str) -> None:
    """With a bound of one example all sites weigh the same."""
    split = {"kind": "dirichlet-by-label", "clients": 3, "concentration": 0.6}
    more: dict[str, Any] = {"algorithm": "fedavg", "split": split}
    by_examples, bounded = (
        run_federation(bench, setting, value, server={"weights": "examples"}, **more) for value in (None, 1)
    )
    equal = run_federation(bench, setting, None, server={"weights": "clients"}, **more)
    assert torch.equal(bounded.servers[-1]["server.params"], equal.servers[-1]["server.params"])
    assert float((by_examples.servers[-1]["server.params"] - equal.servers[-1]["server.params"]).abs().max()) >= APART
