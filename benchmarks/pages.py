"""The pages that benchmarks write: a section at a time, the others stay as they were measured."""

import multiprocessing
import platform
from pathlib import Path

import torch

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
    cores = f"{platform.processor() or platform.machine()}, {multiprocessing.cpu_count()} cores"
    return f"Machine: {cores}; torch {torch.__version__}, Python {platform.python_version()}."
