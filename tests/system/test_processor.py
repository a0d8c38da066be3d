"""Which CPU a run was made on is written down, as far as the system tells."""

import re
from pathlib import Path

from fedcm.system.processor import describe_cpu

SAID = """
processor\t: 0
cpu family\t: 6
model\t\t: 85
model name\t: Some CPU @ 2.00GHz

processor\t: 1
model name\t: B
"""


def test_the_model_is_that_of_the_first_core_with_its_numbers(tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text(SAID.lstrip())
    assert describe_cpu(tmp_path / "cpuinfo")["model"] == "Some CPU @ 2.00GHz, family 6, model 85"


def test_a_system_that_does_not_tell_still_has_an_answer(tmp_path: Path) -> None:
    found = describe_cpu(tmp_path / "none")
    assert found["model"]
    assert re.fullmatch(r"DEFAULT|AVX2|AVX512|VSX|Z VECTOR|NEON|SVE\d*", found["capability"])
