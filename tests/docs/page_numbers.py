"""Find the numbers of a page that someone measured, or that a reader may take for measured ones.

A page is split into what a reader types (commands, files, inline code), what a command printed, and text. In text,
these count as numbers: decimal numbers, powers of ten, whole numbers with a unit, and table cells that hold only a
number.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).parents[2]
UNITS = "%|ms|µs|s|seconds?|minutes?|hours?|points?|bytes|[kMG]B|[MG]iB|times"
SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")
POWER = r"10[⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+"
DIGITS = r"\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?(?:e[+-]?\d+)?"
NUMBER = re.compile(rf"(?<![\w.,^/⁻])(?:{POWER}|(?:{DIGITS})(?:·{POWER})?)(?!\d|[.,]\d|[\w·^/]*[A-Za-z_])")
UNIT = re.compile(rf"[ \u00a0]?({UNITS})(?![\w/])")
COMMANDS = r"(?:\$ |[A-Z_]+=\S+ )*(?:(?:fedcm|python|pip|make|torchrun|cp|head) [-\w./]|runs/)"
FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"(?:(?<=\n\n)|\A)(?:^    .*\n|^    .*\Z|^\n(?=    ))+", re.MULTILINE)
GENERATED = re.compile(r"<!-- (tables of|begin) ([^>]+) -->(.*?)<!-- (end of|end) \2 -->", re.DOTALL)
TYPED = {"python", "toml", "bash", "console"}


@dataclass(frozen=True)
class Number:
    """A number of a page, with the paragraph, the list item or the table row around it."""

    text: str
    unit: str
    start: int
    line: int
    around: str

    @property
    def value(self) -> float:
        return to_float(self.text)


def to_float(text: str) -> float:
    """Return the value of a number such as 1,787, 7.7·10⁻³ or 10⁴."""
    mantissa, found, exponent = text.replace(",", "").rpartition("10") if re.search(POWER, text) else (text, "", "")
    if not found:
        return float(text.replace(",", ""))
    return float(mantissa.rstrip("·") or 1) * 10.0 ** int(exponent.translate(SUPERSCRIPTS))


def list_texts(text: str) -> set[str]:
    """Return all numbers of a text, whole ones too, as they are written."""
    return {found[0] for found in NUMBER.finditer(text)}


@dataclass(frozen=True)
class Page:
    """A Markdown page and its parts."""

    name: str
    text: str

    @cached_property
    def generated(self) -> dict[str, str]:
        """The parts that a script of docs/generate writes, by name."""
        return {found[2]: found[3] for found in GENERATED.finditer(self.text)}

    @cached_property
    def _parts(self) -> tuple[str, list[str], list[str]]:
        typed: list[str] = []
        printed: list[str] = []

        def take_fence(found: re.Match[str]) -> str:
            (typed if found[2] in TYPED else printed).append(found[3])
            return _blank(found)

        def take_indented(found: re.Match[str]) -> str:
            for line in found[0].splitlines():
                is_typed = re.match(rf"\s*(?:{COMMANDS}|\[|\w+ = )", line)
                (typed if is_typed else printed).append(line)
            return _blank(found)

        def take_code(found: re.Match[str]) -> str:
            typed.append(found[2])
            return _blank(found)

        text = GENERATED.sub(_blank, self.text)
        text = FENCE.sub(take_fence, text)
        text = INDENTED.sub(take_indented, text)
        text = re.sub(r"(`+)(.+?)\1", take_code, text)
        text = re.sub(r"\]\([^)]*\)|https?://[^ )>]+|<!--.*?-->|arXiv:\d+\.\d+|TLS 1\.\d|Apache-2\.0", _blank, text)
        return text, typed, printed

    @property
    def typed(self) -> str:
        """What a reader types: commands, files and inline code."""
        return "\n".join(self._parts[1])

    @property
    def printed(self) -> list[str]:
        """The lines that a command printed."""
        return [line for block in self._parts[2] for line in block.splitlines()]

    def list_numbers(self) -> Iterator[Number]:
        """Yield the numbers of the text, in order."""
        text = self._parts[0]
        for found in NUMBER.finditer(text):
            unit = UNIT.match(text, found.end())
            is_measured = unit or re.search(r"[.·⁻]|10[⁰¹²³⁴⁵⁶⁷⁸⁹]", found[0]) or _is_alone_in_cell(text, found)
            if is_measured:
                yield Number(
                    found[0],
                    unit[1] if unit else "",
                    found.start(),
                    text.count("\n", 0, found.start()) + 1,
                    get_paragraph(self.text, found.start()),
                )

    def list_generated_near(self, at: int) -> set[str]:
        """Return the numbers in the generated parts of the section at a position."""
        titles = [found.start() for found in re.finditer(r"^## ", self.text, re.MULTILINE)]
        begin = max((title for title in titles if title <= at), default=0)
        end = min((title for title in titles if title > at), default=len(self.text))
        parts = [found for found in GENERATED.finditer(self.text) if found.start() < end and found.end() > begin]
        return {number for part in parts for number in list_texts(part[3])}


def read_page(name: str) -> Page:
    """Return a page of the repository."""
    return Page(name, (ROOT / name).read_text(encoding="utf-8"))


def get_paragraph(text: str, at: int) -> str:
    """Return the paragraph, the list item or the table row at a position."""
    starts = [found.start() for found in re.finditer(r"^(?= *(?:[-*]|\d+\.) )|^(?=\|)|\n\n", text, re.MULTILINE)]
    begin = max((start for start in starts if start <= at), default=0)
    end = min((start for start in starts if start > at), default=len(text))
    return text[begin:end]


def _blank(found: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", found[0])


def _is_alone_in_cell(text: str, found: re.Match[str]) -> bool:
    line = text[text.rfind("\n", 0, found.start()) + 1 :].partition("\n")[0]
    before = text[text.rfind("|", 0, found.start()) + 1 : found.start()]
    after = text[found.end() :].partition("|")[0]
    return line.startswith("|") and not re.search(r"[^\s*+−±]", before + after)
