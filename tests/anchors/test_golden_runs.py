"""Every golden run gives the numbers on record, and on a kind of CPU that is on record, the same bits.

If a change of the arithmetic or of a random stream is intended, `make anchors` records the new results and says what
changed.
"""

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from golden_runs import RUNS, TOLERANCE, Result, machine_kind, read_record
from play import play

RECORDED = read_record()


@cache
def played(name: str) -> Result:
    with TemporaryDirectory(prefix="golden-") as folder:
        return play(RUNS[name], Path(folder))


def test_the_record_has_every_golden_run_and_no_other() -> None:
    assert set(RECORDED) == set(RUNS)


@pytest.mark.parametrize("name", RUNS)
def test_a_golden_run_gives_what_is_on_record(name: str) -> None:
    found, recorded = played(name), RECORDED[name]
    assert set(found.numbers) == set(recorded["numbers"])
    for metric, value in found.numbers.items():
        assert value == pytest.approx(recorded["numbers"][metric], rel=TOLERANCE, abs=1e-12), metric
    assert found.bits == recorded["bits"].get(machine_kind(), found.bits)


def test_this_kind_of_cpu_is_on_record() -> None:
    if not all(machine_kind() in recorded["bits"] for recorded in RECORDED.values()):
        pytest.skip(f"no bits on record for {machine_kind()}: only numbers were compared; `make anchors` adds them")


@pytest.mark.parametrize(
    ("name", "twin"), [("scaffold, resumed", "scaffold-II"), ("fedcm, two workers", "fedcm")], ids=["resume", "workers"]
)
def test_two_ways_to_one_result_have_the_same_bits_on_any_machine(name: str, twin: str) -> None:
    assert played(name).bits == played(twin).bits
