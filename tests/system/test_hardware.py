"""The description of the CPU, as far as the system provides it."""

import re
from pathlib import Path

import pytest

from fedcm.system.hardware import describe_cpu, has_bfloat16_instructions

CPUINFO = """
processor\t: 0
cpu family\t: 6
model\t\t: 85
model name\t: Some CPU @ 2.00GHz

processor\t: 1
model name\t: B
"""


def test_the_cpu_model_is_that_of_the_first_core_with_its_numbers(tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text(CPUINFO.lstrip())
    assert describe_cpu(tmp_path / "cpuinfo")["model"] == "Some CPU @ 2.00GHz, family 6, model 85"


def test_a_cpu_description_exists_without_cpuinfo(tmp_path: Path) -> None:
    description = describe_cpu(tmp_path / "none")
    assert description["model"]
    assert re.fullmatch(r"DEFAULT|AVX2|AVX512|VSX|Z VECTOR|NEON|SVE\d*", description["capability"])


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("flags\t: fpu avx512f avx512_bf16", True),
        ("flags\t: fpu amx_bf16", True),
        ("Features\t: fp asimd bf16", True),
        ("flags\t: fpu avx512f", False),
        ("flags\t: fpu not_avx512_bf16", False),
        ("model\t: 1", None),
    ],
)
def test_a_cpu_multiplies_in_bfloat16_if_its_flags_say_so(line: str, expected: bool | None, tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text(f"processor\t: 0\n{line}\n\nprocessor\t: 1\nflags\t: amx_bf16\n")
    assert has_bfloat16_instructions(tmp_path / "cpuinfo") is expected
    assert has_bfloat16_instructions(tmp_path / "none") is None
