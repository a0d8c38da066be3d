"""Numbers that the prose quotes from benchmarks and measurements are those of the files that a command wrote."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def read_cell(page: str, title: str, row: str, column: int) -> str:
    """Return the first number of a cell in a table of a generated page, by the title of its section."""
    _, _, after = (ROOT / page).read_text(encoding="utf-8").partition(f"## {title}\n")
    section = after.partition("\n## ")[0]
    line = next(line for line in section.splitlines() if line.startswith(f"| {row} |"))
    found = re.match(r"[\d.]+", line.strip("| ").split(" | ")[column])
    assert found, line
    return found[0]


def to_percent(ratio: str) -> str:
    return f"{100 * (float(ratio) - 1):.0f}"


def read_bare_loop(model: str) -> str:
    return read_cell("benchmarks/RESULTS.md", "Against the bare loop", model, 1)


def read_overhead(model: str) -> str:
    """Return by how many percent a round of FedCM takes longer."""
    return to_percent(read_cell("benchmarks/RESULTS.md", "FedCM's overhead", model, 1))


def read_augmentation() -> str:
    title = "Augmentation, structured batches and local optimisers"
    return to_percent(read_cell("benchmarks/RESULTS.md", title, "crop + flip", 1))


def read_federation(row: str) -> str:
    lines = (ROOT / "benchmarks/FEDERATION.md").read_text(encoding="utf-8").splitlines()
    line = next(line for line in lines if line.startswith(f"| {row}"))
    return line.strip("| ").split(" | ")[3].split()[0]


QUOTES: dict[str, tuple[str, str, Callable[[], str]]] = {
    "the CNN": ("README.md", r"takes ([\d.]+) of the time for a 64-channel CNN", lambda: read_bare_loop("cnn")),
    "LeNet": ("README.md", r"CNN, ([\d.]+) for LeNet", lambda: read_bare_loop("lenet")),
    "softmax regression": ("README.md", r"LeNet and ([\d.]+) for softmax", lambda: read_bare_loop("linear")),
    "FedCM": ("README.md", r"FedCM costs about (\d+) % more", lambda: read_overhead("lenet")),
    "augmentation": ("docs/guides/cifar-augmentation.md", r"Crops and flips add (\d+) %", read_augmentation),
    "a tiny model": (
        "docs/guides/federation.md",
        r"work, ([\d.]+) s for a tiny model",
        lambda: read_federation("softmax"),
    ),
    "ResNet-18": (
        "docs/guides/federation.md",
        r"model, ([\d.]+) s for ResNet-18",
        lambda: read_federation("ResNet-18, 11.2"),
    ),
    "ResNet-18 in bfloat16": (
        "docs/guides/federation.md",
        r"and ([\d.]+) s with all links in bfloat16",
        lambda: read_federation("ResNet-18, all links"),
    ),
}


@pytest.mark.parametrize("name", QUOTES)
def test_a_quoted_number_is_the_measured_one(name: str) -> None:
    page, pattern, read = QUOTES[name]
    found = re.search(pattern, (ROOT / page).read_text(encoding="utf-8"))
    assert found, f"{page} no longer says what the pattern {pattern!r} looks for"
    assert found[1] == read()


def test_the_tables_of_the_theory_are_those_of_its_command() -> None:
    """`fedcm theory rates --output results/theory` writes the tables that docs/theory.md shows."""
    written = set((ROOT / "results/theory/theory-rates.md").read_text(encoding="utf-8").splitlines())
    page = (ROOT / "docs/theory.md").read_text(encoding="utf-8")
    tables = [block for block in page.split("\n\n") if block.startswith("| `fedcm theory rates --only …` |")]
    shown = [line for table in tables for line in table.splitlines()]
    assert len(shown) > 30
    assert [line for line in shown if line not in written] == []
