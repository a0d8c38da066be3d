"""Freed memory is kept: a process that frees a large block and allocates again causes no page faults."""

import platform
import subprocess
import sys

import pytest

CODE = """
import resource, sys
from fedcm.system.memory import keep_freed_memory
if sys.argv[1] == "keep":
    keep_freed_memory()
import torch
def count():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        torch.ones(5_000_000), torch.ones(10_000_000)  # 20 and 40 MB
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
count()
print(count())
"""


def count_page_faults(mode: str) -> int:
    done = subprocess.run([sys.executable, "-c", CODE, mode], capture_output=True, text=True, check=True)
    return int(done.stdout)


@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="mallopt is glibc's")
def test_a_freed_block_is_reused_without_page_faults() -> None:
    assert 5 * count_page_faults("keep") < count_page_faults("default")
