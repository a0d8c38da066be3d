"""Every golden run reproduces its recorded numbers and, on a recorded kind of CPU, its bits.

If you change the arithmetic or a random stream on purpose, `make anchors` records the new results and prints what
changed.
"""

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from golden_runs import RUNS, TOLERANCE, Result, describe_machine, read_record
from play import run_golden

RECORDED = read_record()


@cache
def run_once(name: str) -> Result:
    with TemporaryDirectory(prefix="golden-") as folder:
        return run_golden(RUNS[name], Path(folder))


def test_record_has_exactly_the_golden_runs() -> None:
    assert set(RECORDED) == set(RUNS)


@pytest.mark.parametrize("name", RUNS)
def test_golden_run_matches_its_record(name: str) -> None:
    result, recorded = run_once(name), RECORDED[name]
    assert set(result.numbers) == set(recorded["numbers"])
    for metric, value in result.numbers.items():
        assert value == pytest.approx(recorded["numbers"][metric], rel=TOLERANCE, abs=1e-12), metric
    assert result.bits == recorded["bits"].get(describe_machine(), result.bits)


def test_this_kind_of_cpu_is_recorded() -> None:
    if not all(describe_machine() in recorded["bits"] for recorded in RECORDED.values()):
        pytest.skip(
            f"no bits are recorded for {describe_machine()}; only numbers were compared; `make anchors` adds the bits"
        )


@pytest.mark.parametrize(
    ("name", "twin"), [("scaffold, resumed", "scaffold-II"), ("fedcm, two workers", "fedcm")], ids=["resume", "workers"]
)
def test_resume_and_workers_give_the_same_bits(name: str, twin: str) -> None:
    assert run_once(name).bits == run_once(twin).bits
