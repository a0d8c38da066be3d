"""Rows of robust means and attacks: one round of FedAvg, whose update is the mean of known reports."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import reference_means as reference
import torch
from bench import CLASSES, CLOSE, SIZES, Bench, Trained, assert_different, make_clients
from schema import put
from torch import Tensor
from trajectories import Row

from fedcm.core.aggregation import PlainSum
from fedcm.errors import UserError

BASE: dict[str, Any] = {"rounds": 1, "algorithm": {"name": "fedavg"}, "participation": {"kind": "everyone"}}
HOSTILE = [1, 4]
Expect = Callable[[np.ndarray], np.ndarray]


def collect_reports(bench: Bench, **changes: Any) -> np.ndarray:
    """The reports of all clients in round 0, from a run with the plain mean."""
    rows: dict[int, np.ndarray] = {}
    add = PlainSum.add_stack

    def record(self: PlainSum, clients: Sequence[int], report: Any, weights: Sequence[float]) -> None:
        rows[clients[0]] = report.moved.double().numpy().reshape(-1)
        add(self, clients, report, weights)

    with bench.monkeypatch.context() as patch:
        patch.setattr(PlainSum, "add_stack", record)
        bench.train(bench.table(**BASE | changes))
    return np.array([rows[client] for client in sorted(rows)])


def compute_update(trained: Trained) -> np.ndarray:
    start: Tensor = trained.run.setup.problem.initial_params
    return (start - trained.params).double().numpy()


def averages(**cases: tuple[dict[str, Any], Expect]) -> Row:
    """Each case has the options of the mean and the reference; all differ from each other and from the plain mean."""

    def row(bench: Bench, setting: str) -> None:
        reports, found = collect_reports(bench), []
        for options, expect in cases.values():
            table = bench.table(**BASE)
            put(table, f"server.mean.{setting.split('.')[2]}", None)
            table["server"]["mean"] |= options
            found.append(compute_update(bench.train(table)))
            np.testing.assert_allclose(found[-1], expect(reports), atol=CLOSE)
        for one, other in itertools.combinations([*found, reference.mean(reports)], 2):
            assert np.abs(one - other).max() > 1e-3

    return row


def averages_buckets(options: dict[str, Any], expect: Expect) -> Row:
    """The result is that of one of the fifteen ways to pair six reports."""

    def row(bench: Bench, setting: str) -> None:
        reports, table = collect_reports(bench), bench.table(**BASE)
        put(table, f"server.mean.{setting.split('.')[2]}", None)
        table["server"]["mean"] |= options | {"bucketing": 2}
        found = compute_update(bench.train(table))
        pairings = {
            frozenset(frozenset(order[k : k + 2]) for k in (0, 2, 4)) for order in itertools.permutations(range(6))
        }
        matches = [
            pairing
            for pairing in pairings
            if np.allclose(found, expect(np.array([reports[sorted(pair)].mean(0) for pair in pairing])), atol=CLOSE)
        ]
        assert len(pairings) == 15
        assert len(matches) == 1

    return row


def selects_and_trims(bench: Bench, setting: str) -> None:
    """Bulyan with one hostile client needs seven reports; without one it is the mean, of buckets if there are any."""
    source = bench.clients_folder("seven", make_clients((*SIZES, 7)))
    reports = collect_reports(bench, data={"source": source})

    def average(**options: Any) -> np.ndarray:
        mean = {"kind": "bulyan", **options}
        return compute_update(bench.train(bench.table(**BASE | {"data": {"source": source}}, server={"mean": mean})))

    one = average(hostile=1)
    np.testing.assert_allclose(one, reference.bulyan(reports, 1), atol=CLOSE)
    assert np.abs(one - reference.mean(reports)).max() > 1e-3
    np.testing.assert_allclose(average(hostile=0), reference.mean(reports), atol=CLOSE)
    halves = average(hostile=0, bucketing=2)  # three pairs and one client alone, which counts twice
    alone = [np.allclose(halves, (7 * reference.mean(reports) + own) / 8, atol=CLOSE) for own in reports]
    assert sum(alone) == 1
    with pytest.raises(UserError, match="needs at least 11 reports per round, got cohorts of 7"):
        average(hostile=2)


def chooses_the_mean(bench: Bench, setting: str) -> None:
    """A name, and a table with a kind, mean the same; another mean has another result."""
    tables = [bench.table(**BASE, server={"mean": mean}) for mean in ("median", {"kind": "median"}, "plain")]
    one, same, other = map(bench.train, tables)
    assert torch.equal(one.params, same.params)
    assert_different(one, other)


def is_the_plain_mean(bench: Bench, setting: str) -> None:
    reports = collect_reports(bench)
    table = bench.table(**BASE, server={"mean": "plain"})
    np.testing.assert_allclose(compute_update(bench.train(table)), reference.mean(reports), atol=CLOSE)


def _clip(rows: np.ndarray, ratio: float) -> np.ndarray:
    return reference.clipped(rows, ratio * float(np.median([reference.norm(row) for row in rows])))


def _centre(rows: np.ndarray, ratio: float, iterations: int) -> np.ndarray:
    centre = reference.median(rows)
    for _ in range(iterations):
        radius = ratio * float(np.median([reference.norm(row - centre) for row in rows]))
        centre = reference.centred_clipping(rows, centre, radius, 1)
    return centre


def _weiszfeld(rows: np.ndarray, iterations: int, smoothing: float) -> np.ndarray:
    centre = reference.median(rows)
    for _ in range(iterations):
        pulls = [1 / max(smoothing, reference.norm(row - centre)) for row in rows]
        centre = np.asarray(sum(pull * row for pull, row in zip(pulls, rows, strict=True))) / sum(pulls)
    return centre


MEAN_ROWS: dict[str, Row] = {
    "server.mean": chooses_the_mean,
    "server.mean.plain": is_the_plain_mean,
    "server.mean.clipped": averages(default=({}, lambda rows: _clip(rows, 1.0))),
    "server.mean.clipped.bound": averages(
        one=({"bound": 0.3}, lambda rows: reference.clipped(rows, 0.3)),
        other=({"bound": 0.1}, lambda rows: reference.clipped(rows, 0.1)),
    ),
    "server.mean.clipped.ratio": averages(one=({"ratio": 0.5}, lambda rows: _clip(rows, 0.5))),
    "server.mean.clipped.bucketing": averages_buckets({}, lambda rows: _clip(rows, 1.0)),
    "server.mean.centred-clipping": averages(default=({}, lambda rows: _centre(rows, 1.0, 3))),
    "server.mean.centred-clipping.radius": averages(
        one=(
            {"radius": 0.1},
            lambda rows: reference.centred_clipping(rows, reference.median(rows), 0.1, 3),
        ),
    ),
    "server.mean.centred-clipping.ratio": averages(one=({"ratio": 0.2}, lambda rows: _centre(rows, 0.2, 3))),
    "server.mean.centred-clipping.iterations": averages(
        one=({"iterations": 1, "ratio": 0.5}, lambda rows: _centre(rows, 0.5, 1)),
        other=({"iterations": 9, "ratio": 0.5}, lambda rows: _centre(rows, 0.5, 9)),
    ),
    "server.mean.centred-clipping.bucketing": averages_buckets({}, lambda rows: _centre(rows, 1.0, 3)),
    "server.mean.median": averages(default=({}, reference.median)),
    "server.mean.median.bucketing": averages_buckets({}, reference.median),
    "server.mean.trimmed": averages(default=({}, lambda rows: reference.trimmed(rows, 1))),
    "server.mean.trimmed.share": averages(
        one=({"share": 0.17}, lambda rows: reference.trimmed(rows, 1)),
        other=({"share": 0.4}, lambda rows: reference.trimmed(rows, 2)),
    ),
    "server.mean.trimmed.bucketing": averages_buckets({"share": 0.34}, lambda rows: reference.trimmed(rows, 1)),
    "server.mean.geometric-median": averages(default=({}, lambda rows: _weiszfeld(rows, 8, 1e-6))),
    "server.mean.geometric-median.iterations": averages(
        one=({"iterations": 1}, lambda rows: _weiszfeld(rows, 1, 1e-6))
    ),
    "server.mean.geometric-median.smoothing": averages(
        one=({"smoothing": 0.3}, lambda rows: _weiszfeld(rows, 8, 0.3)),
    ),
    "server.mean.geometric-median.bucketing": averages_buckets({}, lambda rows: _weiszfeld(rows, 8, 1e-6)),
    "server.mean.krum.hostile": averages(
        one=({"hostile": 0, "keep": 2}, lambda rows: reference.multi_krum(rows, 0, 2)),
    ),
    "server.mean.krum.keep": averages(
        one=({"hostile": 1}, lambda rows: reference.multi_krum(rows, 1, 1)),
        other=({"hostile": 1, "keep": 3}, lambda rows: reference.multi_krum(rows, 1, 3)),
    ),
    "server.mean.krum.bucketing": averages_buckets(
        {"hostile": 0, "keep": 2}, lambda rows: reference.multi_krum(rows, 0, 2)
    ),
    "server.mean.bulyan.hostile": selects_and_trims,
    "server.mean.bulyan.bucketing": selects_and_trims,
}


def attacks(*cases: tuple[dict[str, Any], Callable[[np.ndarray, np.ndarray], np.ndarray]]) -> Row:
    """Each case has options, and a function from the honest reports and a client's own to what it reports."""

    def row(bench: Bench, setting: str) -> None:
        reports, found = collect_reports(bench), []
        honest = np.delete(reports, HOSTILE, axis=0)
        for options, lie in cases:
            table = bench.table(**BASE, attack={"kind": setting.split(".")[1], "clients": HOSTILE, **options})
            trained = bench.train(table)
            assert trained.lines[0]["hostile"] == len(HOSTILE)
            rows = reports.copy()
            rows[HOSTILE] = [lie(honest, rows[client]) for client in HOSTILE]
            found.append(compute_update(trained))
            np.testing.assert_allclose(found[-1], reference.mean(rows), atol=CLOSE)
        for one, other in itertools.combinations([*found, reference.mean(reports)], 2):
            assert np.abs(one - other).max() > 1e-3

    return row


def draws_hostile_clients(bench: Bench, setting: str) -> None:
    """A share of a half makes three of six hostile, all their lives; a list names them; the rest stays honest."""
    kind = setting.split(".")[1]
    clients = make_images() if kind == "backdoor" else bench.clients
    if kind == "backdoor":
        bench.tested = make_clients(sizes=(20,), seed=1, shape=IMAGE)[0]
    source = bench.clients_folder("attacked", clients)
    base: dict[str, Any] = BASE | {"rounds": 3, "data": {"source": source}}
    share, listed, honest = [
        bench.train(bench.table(**base, **({"attack": {"kind": kind, "clients": own}} if own else {})))
        for own in (0.5, [0, 2, 4, 5], None)
    ]
    assert [line["hostile"] for line in share.lines] == [3, 3, 3]
    assert [line["hostile"] for line in listed.lines] == [4, 4, 4]
    assert all("hostile" not in line for line in honest.lines)
    if kind == "alie":  # six reports are so few that nothing can hide among them: z is 0
        return
    assert_different(share, honest)
    assert_different(listed, honest)


def adds_noise(bench: Bench, setting: str) -> None:
    """The noise of two clients has the norm `factor` times that of their reports, and is theirs alone."""
    reports = collect_reports(bench)
    for factor in (None, 3.0):
        attack = {"kind": "noise", "clients": HOSTILE} | ({} if factor is None else {"factor": factor})
        moved = compute_update(bench.train(bench.table(**BASE, attack=attack)))
        noise = len(reports) * (moved - reference.mean(reports))
        expected = (factor or 10.0) * float(np.sqrt(sum(reference.norm(reports[client]) ** 2 for client in HOSTILE)))
        assert 0.5 * expected < reference.norm(noise) < 1.5 * expected


def flips_labels(bench: Bench, setting: str) -> None:
    """As if the files of the hostile clients had other labels."""
    flipped = [(x, CLASSES - 1 - y) if client in HOSTILE else (x, y) for client, (x, y) in enumerate(bench.clients)]
    attacked = bench.train(bench.table(**BASE, attack={"kind": "label-flip", "clients": HOSTILE}))
    source = bench.clients_folder("flipped", flipped)
    expected = bench.train(bench.table(**BASE | {"data": {"source": source}}))
    assert torch.allclose(attacked.params, expected.params, atol=1e-7)


IMAGE = (1, 4, 4)


def make_images() -> list[tuple[Tensor, Tensor]]:
    return make_clients(shape=IMAGE)


def plants_a_backdoor(**options: Any) -> Row:
    """With a share of 1 it is as if the files of the hostile clients had bright corners and the target as label."""

    def row(bench: Bench, setting: str) -> None:
        clients = make_images()
        bench.tested = make_clients(sizes=(40,), seed=1, shape=IMAGE)[0]
        own = {"share": 1.0, "target": 0, "size": 2, "boost": 1.0} | options
        bright, marked = clients[0][0].max(), []
        for client, (x, y) in enumerate(clients):
            if client in HOSTILE:
                x, y = x.clone(), torch.full_like(y, own["target"])
                x[..., -own["size"] :, -own["size"] :] = bright
            marked.append((x, y))
        source = bench.clients_folder("images", clients)
        attack = {"kind": "backdoor", "clients": HOSTILE, **own}
        attacked = bench.train(bench.table(**BASE | {"data": {"source": source}}, attack=attack))
        assert 0 <= attacked.lines[-1]["backdoor_success"] <= 1
        if own["share"] < 1:
            whole = bench.table(**BASE | {"data": {"source": source}}, attack=attack | {"share": 1.0})
            return assert_different(attacked, bench.train(whole))
        if own["boost"] != 1:
            plain = bench.table(**BASE | {"data": {"source": source}}, attack=attack | {"boost": 1.0})
            return assert_different(attacked, bench.train(plain))
        files = bench.clients_folder("marked", marked)
        expected = bench.train(bench.table(**BASE | {"data": {"source": files}}))
        assert torch.allclose(attacked.params, expected.params, atol=1e-6)
        return None

    return row


def _hide(honest: np.ndarray, z: float) -> np.ndarray:
    return honest.mean(0) - z * honest.std(0)


ATTACK_ROWS: dict[str, Row] = {
    "attack.sign-flip": attacks(({}, lambda honest, own: -own)),
    "attack.sign-flip.factor": attacks(({"factor": 3.0}, lambda honest, own: -3.0 * own)),
    "attack.scaled": attacks(({}, lambda honest, own: 10.0 * own)),
    "attack.scaled.factor": attacks(({"factor": 4.0}, lambda honest, own: 4.0 * own)),
    "attack.noise": adds_noise,
    "attack.noise.factor": adds_noise,
    "attack.label-flip": flips_labels,
    "attack.alie": attacks(({}, lambda honest, own: _hide(honest, 0.0))),
    "attack.alie.z": attacks(
        ({"z": 1.5}, lambda honest, own: _hide(honest, 1.5)), ({"z": 0.5}, lambda honest, own: _hide(honest, 0.5))
    ),
    "attack.ipm": attacks(({}, lambda honest, own: -0.5 * honest.mean(0))),
    "attack.ipm.epsilon": attacks(({"epsilon": 2.0}, lambda honest, own: -2.0 * honest.mean(0))),
    "attack.backdoor": plants_a_backdoor(),
    "attack.backdoor.target": plants_a_backdoor(target=2),
    "attack.backdoor.size": plants_a_backdoor(size=1),
    "attack.backdoor.share": plants_a_backdoor(share=0.3),
    "attack.backdoor.boost": plants_a_backdoor(boost=3.0),
    **{
        f"attack.{kind}.clients": draws_hostile_clients
        for kind in ("sign-flip", "scaled", "noise", "label-flip", "alie", "ipm", "backdoor")
    },
}
