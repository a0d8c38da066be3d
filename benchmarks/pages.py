"""The pages that benchmarks write: a section at a time, the others stay as they were measured."""

import os
import platform
import re
from importlib.metadata import version
from pathlib import Path

HERE = Path(__file__).parent

RESULTS = """# Measured

Written by `make bench`, a section by the command that it names: the contestants take turns in one run, ratios first."""


def write_section(name: str, head: str, section: str) -> None:
    """Into its place in the page, which is known by its title; a new one goes to the end."""
    path, title = HERE / name, section.split("\n")[0]
    old = path.read_text().split("\n## ")[1:] if path.exists() else []
    sections = {f"## {text}".split("\n")[0]: f"## {text}".strip() for text in old} | {title: section.strip()}
    path.write_text("\n\n".join([head, *sections.values()]) + "\n")


def machine() -> str:
    found = re.search(r"^model name\s*:\s*(.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    kind = found.group(1) if found else platform.machine()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    cores = f"{kind}, {os.cpu_count()} cores, {memory:.0f} GiB"
    return f"Machine: {cores}; torch {version('torch')}, Python {platform.python_version()}."
