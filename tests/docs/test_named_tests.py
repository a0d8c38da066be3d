"""Tests that the documentation names exist."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
THREATS = ROOT / "docs" / "guides" / "federation-threats.md"
FOLDERS = ("tests/federation", "tests/integration/federation")


def list_named_tests() -> Iterator[tuple[str, str]]:
    """Yield the file and the name of every `tests/…py::test_…` in the documentation."""
    for page in sorted((ROOT / "docs").rglob("*.md")):
        yield from re.findall(r"(tests/[\w/]+\.py)::(test_\w+)", page.read_text(encoding="utf-8"))


def list_threat_rows() -> Iterator[list[str]]:
    """Yield the cells of all rows of the threat page with a column for tests."""
    for line in THREATS.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split(" |")] if line.startswith("| ") else []
        if len(cells) == 4 and cells[2] != "shown by":
            yield cells


@pytest.mark.parametrize(("file", "name"), sorted(set(list_named_tests())))
def test_a_test_named_by_its_path_exists(file: str, name: str) -> None:
    assert f"\ndef {name}(" in (ROOT / file).read_text(encoding="utf-8")


@pytest.mark.parametrize("row", list(list_threat_rows()), ids=lambda row: row[0][:60])
def test_every_threat_names_tests_that_exist_or_says_that_there_is_none(row: list[str]) -> None:
    if row[2].startswith("no test"):
        return
    for reference in row[2].split("; "):
        stem, _, sentence = reference.partition(": ")
        name = "test_" + sentence.replace(" ", "_")
        files = [ROOT / folder / f"test_{stem}.py" for folder in FOLDERS]
        texts = [file.read_text(encoding="utf-8") for file in files if file.exists()]
        assert any(f"\ndef {name}(" in text for text in texts), reference


def test_threats_have_many_rows() -> None:
    assert len(list(list_threat_rows())) > 30
