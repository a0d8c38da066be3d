"""Numbers in sentences that follow from a generated file, a digest or a constant of the code, and how."""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from known_numbers import evaluate
from page_numbers import ROOT, Page, to_float

from fedcm.reports.digest import Digest, read_digest


@dataclass(frozen=True)
class Quote:
    """A sentence of a page, as a pattern whose groups are numbers, and what these numbers must be."""

    page: str
    pattern: str
    compute: Callable[[], float | Sequence[float]]

    def find(self, page: Page) -> re.Match[str]:
        """Return where the page says it; a space of the pattern is any white space."""
        found = re.search(self.pattern.replace(" ", r"\s+"), page.text)
        assert found, f"{page.name} no longer says what the pattern {self.pattern!r} looks for"
        return found

    def find_wrong(self, page: Page) -> list[str]:
        """Return the numbers that are not the computed ones, rounded as in the page."""
        found, values = self.find(page), self.compute()
        values = [values] if isinstance(values, int | float) else list(values)
        assert len(found.groups()) == len(values), self.pattern
        wrong = []
        for place, value in enumerate(values, start=1):
            text, has_minus = found[place], found.string[found.start(place) - 1] == "−"
            if not is_rounded(text, -value if has_minus else value):
                wrong.append(f"{text} instead of {value:.6g}")
        return wrong


def is_rounded(text: str, value: float) -> bool:
    """Return whether a number in a page is a value, rounded to the digits that the page has."""
    mantissa = re.match(r"[\d,.]+", text)
    assert mantissa, text
    unit = to_float(text) / to_float(mantissa[0]) if to_float(mantissa[0]) else 1.0
    digits = len(mantissa[0].partition(".")[2])
    return abs(value - to_float(text)) <= 0.5001 * unit * 10.0**-digits


def read_code(path: str, pattern: str) -> float:
    """Return the number in a module of fedcm or in a test that a pattern finds."""
    folder = ROOT if path.startswith("tests/") else ROOT / "src" / "fedcm"
    found = re.search(pattern, (folder / path).read_text(encoding="utf-8"))
    assert found, f"{path} no longer has {pattern}"
    text = found[1].replace("_", "").rstrip(",")
    return float(text) if "e" in text else evaluate(text)


def read_run(path: str) -> Digest:
    """Return a digest of results/."""
    return read_digest(ROOT / "results" / f"{path}.json")


def read_json(path: str) -> Any:
    """Return the contents of a JSON file of results/."""
    return json.loads((ROOT / "results" / path).read_text(encoding="utf-8"))


def read_row(page: str, title: str, row: str, column: int) -> list[float]:
    """Return the numbers in a cell of a generated page, by the title of its section and the beginning of its row."""
    text = (ROOT / page).read_text(encoding="utf-8")
    section = text.partition(f"## {title}\n")[2].partition("\n## ")[0] if title else text
    line = next(line for line in section.splitlines() if line.startswith(f"| {row}"))
    cell = line.strip("| ").split(" | ")[column]
    return [float(number) for number in re.findall(r"\d+(?:\.\d+)?", cell.replace(",", ""))]
