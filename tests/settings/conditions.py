"""Rows of unequal work, stragglers and availability: the literal draws decide who trains, and for how many steps."""

from collections import Counter
from typing import Any

import literal
import numpy as np
from bench import APART, SIZES, Bench, Trained, assert_different, assert_literal_trajectory
from schema import put
from trajectories import Row, draw_fixed

STRAGGLERS: dict[str, Any] = {"deadline": 5.0, "spread": 0.8, "jitter": 0.4}
CLIENTS = range(len(SIZES))


def takes_unequal_work(changes: dict[str, Any]) -> Row:
    """Steps and trajectories are the literal ones, and another value changes both."""

    def row(bench: Bench, setting: str) -> None:
        unit, *_ = setting.removeprefix("client.").split(".")
        usual = {"kind": "uniform", "low": 1, "high": 5}
        one, other = (_train_with_work(bench, unit, usual | more) for more in ({}, changes))
        assert_different(one, other)

    return row


def _train_with_work(bench: Bench, unit: str, work: dict[str, Any]) -> Trained:
    table = bench.table(client={unit: work, "batch_size": 4, "lr": 0.3}, participation={"kind": "everyone"})
    trained = bench.train(table)
    for round, line in enumerate(trained.lines):
        steps = [literal.count_steps(table, round, number, SIZES[number]) for number in CLIENTS]
        assert line["steps"] == np.mean(steps)
        ends = {"steps_least": min(steps), "steps_most": max(steps)} if min(steps) < max(steps) else {}
        assert {key: line[key] for key in line if key in ("steps_least", "steps_most")} == ends
        expected = sorted(map(list, Counter(steps).items())) if ends else None
        assert line.get("steps_clients") == expected
    assert_literal_trajectory(trained, bench.clients)
    return trained


def reads_the_work(bench: Bench, setting: str) -> None:
    """A row for a round wins over one for all rounds; clients without a row have the default."""
    unit = setting.split(".")[1]
    file = bench.folder / "work.csv"
    file.write_text(f"client,round,{unit}\n0,,3\n1,,1\n2,,2\n2,1,4\n4,,2\n5,,1\n")
    one, other = (
        _train_with_work(bench, unit, {"kind": "file", "path": str(file), "default": default}) for default in (1, 5)
    )
    assert_different(one, other)
    file.write_text(f"{unit},client\n" + "".join(f"{6 - number},{number}\n" for number in CLIENTS))
    _train_with_work(bench, unit, {"kind": "file", "path": str(file)})


# stragglers


def _train_with_stragglers(bench: Bench, **changes: Any) -> Trained:
    """Train, and check who reports, the simulated time, the bytes and the trajectory."""
    given = STRAGGLERS | changes
    table = bench.table(stragglers={key: value for key, value in given.items() if value is not None})
    trained = bench.train(table)
    deadline, partial = table["stragglers"]["deadline"], table["stragglers"].get("policy") == "partial"
    missed, total = 0, 0.0
    for round, line in enumerate(trained.lines):
        asked = draw_fixed(table["seed"], round, 3)
        seconds = {number: literal.step_seconds(table, round, number) for number in asked}
        steps = {number: literal.count_steps(table, round, number, SIZES[number]) for number in asked}
        in_time = [number for number in asked if seconds[number] * (1 if partial else steps[number]) <= deadline]
        assert line["clients"] == in_time
        assert line["missed"] == 3 - len(in_time)
        slowest = max(seconds[number] * steps[number] for number in asked)
        np.testing.assert_allclose(line["simulated_seconds"], min(deadline, slowest), rtol=1e-12)
        if in_time:
            assert line["bytes_down"] * len(in_time) == 2 * line["bytes_up"] * 3, "the broadcast has two vectors"
        missed, total = missed + line["missed"], total + line["simulated_seconds"]
    assert trained.summary["missed_reports"] == missed
    np.testing.assert_allclose(trained.summary["simulated_seconds"], total, atol=1e-3)
    nonempty = [round for round, line in enumerate(trained.lines) if line["clients"]]
    if len(nonempty) == len(trained.lines):  # the literal run has no empty rounds
        assert_literal_trajectory(trained, bench.clients)
    return trained


def has_a_deadline(bench: Bench, setting: str) -> None:
    late = [_train_with_stragglers(bench, deadline=deadline) for deadline in (4.0, 1e9)]
    missed = [sum(line["missed"] for line in trained.lines) for trained in late]
    assert missed[0] > 0 == missed[1]


def has_unequal_speeds(value: float) -> Row:
    def row(bench: Bench, setting: str) -> None:
        name = setting.split(".")[1]
        one, other = (_train_with_stragglers(bench, deadline=6.0, **{name: given}) for given in (None, value))
        times = [[line["simulated_seconds"] for line in trained.lines] for trained in (one, other)]
        assert times[0] != times[1]

    return row


def reads_the_speeds(bench: Bench, setting: str) -> None:
    """Client 3 is not in the file and has `seconds_per_step`."""
    file = bench.folder / "speeds.csv"
    file.write_text("client,seconds_per_step\n0,0.5\n1,2.5\n2,0.1\n4,1.0\n5,3.0\n")
    trained = _train_with_stragglers(bench, spread=None, file=str(file), seconds_per_step=1.7)
    assert any(line["missed"] for line in trained.lines)


def keeps_or_drops_slow_clients(bench: Bench, setting: str) -> None:
    default, drop, partial = (_train_with_stragglers(bench, policy=policy) for policy in (None, "drop", "partial"))
    assert default.cohorts == drop.cohorts
    assert [len(own) for own in drop.cohorts] < [len(own) for own in partial.cohorts]
    assert float((drop.params - partial.params).abs().max()) >= APART


# availability


def _train_when_available(bench: Bench, availability: dict[str, Any], masks: list[list[bool]]) -> Trained:
    """Train, and check that everybody who is available trains, and that a fixed cohort is drawn among them."""
    everyone = {"kind": "everyone"}
    for participation in ({"kind": "fixed", "clients": 2}, everyone):
        table = bench.table(rounds=len(masks), participation=participation, availability=availability)
        trained = bench.train(table)
        for round, (mask, line) in enumerate(zip(masks, trained.lines, strict=True)):
            available = [number for number in CLIENTS if mask[number]]
            assert line["available"] == len(available)
            draw = literal.generator(table["seed"], literal.COHORT, round)
            count = len(available) if participation is everyone else min(2, len(available))
            drawn = draw.choice(len(available), count, replace=False, shuffle=False) if available else []
            assert line["clients"] == sorted(available[k] for k in drawn)
    return trained


def reads_the_trace(bench: Bench, setting: str) -> None:
    file = bench.folder / "trace.csv"
    file.write_text("client,start,stop\n0,0,2\n0,3,4\n1,0,9\n2,1,2\n5,2,4\n")
    times = {0: (0, 1, 3), 1: range(9), 2: (1,), 5: (2, 3)}
    masks = [[round in times.get(number, ()) for number in CLIENTS] for round in range(10)]
    _train_when_available(bench, {"kind": "trace", "file": str(file)}, masks)


def repeats_the_trace(bench: Bench, setting: str) -> None:
    file = bench.folder / "trace.csv"
    file.write_text("client,start,stop\n0,0,2\n1,2,4\n")
    masks = [[number == (0 if round % 4 < 2 else 1) for number in CLIENTS] for round in range(10)]
    _train_when_available(bench, {"kind": "trace", "file": str(file), "period": 4}, masks)


def sleeps_for_a_share_of_the_day(**changes: Any) -> Row:
    def row(bench: Bench, setting: str) -> None:
        for day in ({"period": 8, "share": 0.5}, {"period": 8, "share": 0.5} | changes):
            phases = literal.generator(11, literal.AVAILABILITY).random(len(SIZES))
            masks = [((round / day["period"] + phases) % 1 < day["share"]).tolist() for round in range(10)]
            _train_when_available(bench, {"kind": "day-night"} | day, masks)

    return row


def has_time_zones(bench: Bench, setting: str) -> None:
    zones = (literal.generator(11, literal.AVAILABILITY).random(len(SIZES)) * 2).astype(int)
    assert set(zones) == {0, 1}
    masks = [[(round % 4 < 2) == (zone == 0) for zone in zones] for round in range(8)]
    table = {"kind": "day-night", "period": 4, "share": 0.5}
    put(whole := {"availability": table}, setting, 2)
    _train_when_available(bench, whole["availability"], masks)
