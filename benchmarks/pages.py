"""Write the result pages of benchmarks, one section at a time; other sections stay unchanged."""

import os
import platform
import re
import shlex
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

HERE = Path(__file__).parent

RESULTS = """# Measured

Written by `make bench`; each section names its command. The contestants take turns in one run; ratios come first."""

ROUNDING = """# What rounding changes

Each section was written by the command that it names. Accuracies are on the test data; with several seeds they are
mean ± standard deviation."""


def write_section(name: str, head: str, section: str) -> None:
    """Replace the section with the same title in the page, or append it."""
    path, title = HERE / name, section.split("\n")[0]
    old = path.read_text().split("\n## ")[1:] if path.exists() else []
    sections = {f"## {text}".split("\n")[0]: f"## {text}".strip() for text in old} | {title: section.strip()}
    path.write_text("\n\n".join([head, *sections.values()]) + "\n")


def describe_machine() -> str:
    """Return one sentence about the CPU, the memory and the versions."""
    match = re.search(r"^model name\s*:\s*(.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    model = match.group(1) if match else platform.machine()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    hardware = f"{model}, {os.cpu_count()} cores, {memory:.0f} GiB"
    return f"Machine: {hardware}; torch {version('torch')}, Python {platform.python_version()}."


def get_command() -> str:
    """Return the command that runs now, as it can be repeated."""
    words = (Path(sys.argv[0]).name, *sys.argv[1:])
    return f"python benchmarks/{shlex.join(words)}".replace("'", '"')


def write_rounding(section: str, lines: Sequence[str], *, work: str, rounds: int, seeds: int) -> None:
    """Write a section of ROUNDING.md.

    Args:
        section: The text above the rows, with fields for the command, the machine and the arguments below.
        lines: The rows of its table.
        work: The workload.
        rounds: The rounds of a run.
        seeds: The number of seeds, which begin at 1.
    """
    described = "one seed" if seeds == 1 else f"seeds 1 to {seeds}"
    fields = {"command": get_command(), "machine": describe_machine()}
    text = section.format(work=work, rounds=rounds, seeds=described, **fields)
    write_section("ROUNDING.md", ROUNDING, text + "\n".join(lines))
