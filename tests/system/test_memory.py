"""Freed memory stays: a process that frees a large block and asks again gets it without a page fault."""

import platform
import subprocess
import sys

import pytest

CODE = """
import resource, sys
from fedcm.system.memory import keep_freed_memory
if sys.argv[1] == "kept":
    keep_freed_memory()
import torch
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        torch.ones(5_000_000), torch.ones(10_000_000)  # 20 and 40 MB
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
faults()
print(faults())
"""


def faults(how: str) -> int:
    done = subprocess.run([sys.executable, "-c", CODE, how], capture_output=True, text=True, check=True)
    return int(done.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="mallopt is glibc's")
def test_a_block_that_was_freed_is_had_again_without_page_faults() -> None:
    assert 5 * faults("kept") < faults("given back")
