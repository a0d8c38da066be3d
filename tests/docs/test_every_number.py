"""Every measured number in the README and the docs is found in a generated file.

A number is checked if it is decimal, has a unit (%, s, MB, points, times, …) or is alone in a cell of a table. Such a
number must be one of these:

- in a part between `<!-- tables of NAME -->` and its end, which a script of docs/generate writes from recorded digests
  or from the page of a benchmark (other tests compare these parts), or equal to a number in such a part of the same
  section (`## …`);
- computed from digests, pages of benchmarks or constants of the code, at this place of this sentence: quotes_*.py;
- in a file that SOURCES in number_sources.py names for this page; lines that a command printed must be lines of it;
- an input: it occurs in a command, a file or inline code of the same page, in an experiment that the page names, or
  is a default of the code (known_numbers.py); 30 % is the input 0.3. A number with a unit of time or size, in points,
  or with a final 0, such as 0.80, is no input;
- the result of an equation that stands in the page and is right, or a term of it, such as `0.1·2 + 0.9·0.3 = 0.47`;
- what a paper says: in docs/algorithms and decision 1, in a paragraph that cites it. Other pages quote no paper;
- a confidence level (`95 % interval`), a bare power of ten, which is an order of magnitude, or the number of a row.

The sections in UNCHECKED (number_sources.py) are exempt: they cannot be measured here in minutes. They must name their
command and the day on which it ran.
"""

import importlib
import re
from pathlib import Path

import guide_tables
import hostile_table
import pytest
import results_tables
from known_numbers import is_known, list_wrong_equations
from number_sources import PRINTED, ROWS, SOURCES, UNCHECKED, Unchecked, find_section, read_sources
from page_numbers import ROOT, Number, Page, list_texts, read_page
from quotes import Quote

HERE = Path(__file__).parent
PAGES = ["README.md", *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md"))]
QUOTES: list[Quote] = [
    quote for path in sorted(HERE.glob("quotes_*.py")) for quote in importlib.import_module(path.stem).QUOTES
]
SCRIPTS = {"summary", "equations", "facts", "settings", "tables", "algorithms"}  # algorithm_pages.py, schema_tables.py
DAY = re.compile(r"\b\d{1,2} [A-Z][a-z]+ 20\d\d\b")
COMMAND = re.compile(r"^    (?:\w+=\S+ )*(?:fedcm|python|make) |`(?:python|make|fedcm) [^`]+`", re.MULTILINE)


def list_quoted(page: Page) -> set[int]:
    """Return the positions of the numbers in quotes."""
    found = [quote.find(page) for quote in QUOTES if quote.page == page.name]
    return {match.start(group) for match in found for group in range(1, len(match.groups()) + 1)}


def is_unchecked(page: Page, at: int) -> bool:
    """Return whether a position is in a section that is not checked."""
    sections = [find_section(page, part.title) for part in UNCHECKED if part.page == page.name]
    return any(begin <= at < end for begin, end in sections)


def is_in_source(number: Number, page: Page, texts: set[str], rows: set[str]) -> bool:
    """Return whether a number, or the row around it, is in a generated file."""
    return number.text in texts or page.text.splitlines()[number.line - 1] in rows


def find_unknown(page: Page) -> list[str]:
    """Return the numbers of a page that no generated file holds, with their lines."""
    quoted = list_quoted(page)
    texts = {text for source in read_sources(page.name) for text in list_texts(source)}
    rows = {line for path in ROWS.get(page.name, ()) for line in (ROOT / path).read_text("utf-8").splitlines()}
    return [
        f"{page.name}:{number.line}: {number.text} {number.unit}"
        for number in page.list_numbers()
        if number.start not in quoted
        and not is_unchecked(page, number.start)
        and number.text not in page.list_generated_near(number.start)
        and not is_in_source(number, page, texts, rows)
        and not is_known(number, page)
    ]


@pytest.mark.parametrize("name", PAGES)
def test_every_number_of_a_page_is_found(name: str) -> None:
    assert find_unknown(read_page(name)) == []


@pytest.mark.parametrize("quote", QUOTES, ids=lambda quote: f"{quote.page}: {quote.pattern[:50]}")
def test_a_quoted_number_is_the_computed_one(quote: Quote) -> None:
    assert quote.find_wrong(read_page(quote.page)) == []


@pytest.mark.parametrize("name", PAGES)
def test_equations_are_right(name: str) -> None:
    assert list_wrong_equations(read_page(name).text) == []


def squeeze(line: str) -> str:
    return " ".join(line.split())


def find_unrecorded(page: Page) -> list[str]:
    """Return the printed lines of a page that are in no recorded output; only those with a decimal number."""
    recorded = {squeeze(line) for source in read_sources(page.name) for line in source.splitlines()}
    shown = [line for line in page.printed if any("." in number for number in list_texts(line))]
    return [line for line in shown if squeeze(line) not in recorded]


@pytest.mark.parametrize("name", PAGES)
def test_what_a_command_printed_is_in_the_recorded_output(name: str) -> None:
    """A line without a decimal number may be an example of a file."""
    assert find_unrecorded(read_page(name)) == []


@pytest.mark.parametrize("name", PAGES)
def test_generated_parts_are_written_by_a_known_script(name: str) -> None:
    names = {part for parts in (*results_tables.PAGES.values(), *guide_tables.PAGES.values()) for part in parts}
    folders = {path.name for path in (ROOT / "results").glob("*-*")}
    parts = set(read_page(name).generated)
    assert {part for part in parts - names - folders - SCRIPTS if not part.startswith("hostile-sites")} == set()


@pytest.mark.parametrize("part", UNCHECKED, ids=lambda part: f"{part.page}: {part.title}")
def test_an_unchecked_part_names_its_command_and_its_day(part: Unchecked) -> None:
    page = read_page(part.page)
    begin, end = find_section(page, part.title)
    assert COMMAND.search(page.text[begin:end])
    assert DAY.search(page.text[begin:end]) or re.search(r"of commit \w{7}", page.text[begin:end])


def test_every_recorded_output_belongs_to_a_page() -> None:
    named = {source for sources in SOURCES.values() for source in sources if isinstance(source, str)}
    assert {f"{PRINTED}/{path.name}" for path in (ROOT / PRINTED).glob("*.txt")} <= named
    assert hostile_table.RESULTS.exists()


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("It takes 164 s, 94 % of 1,787 seconds.", ["164", "94", "1,787"]),
        ("FedCM ends ahead (52.6 % against 46.8 %).", ["52.6", "46.8"]),
        ("an error of 7.7·10⁻³ at T = 125, 40 rounds", ["7.7·10⁻³"]),
        ("| `ring` | 2 | −0.69 | 0.31 MB |\n", ["2", "0.69", "0.31"]),
        ("`lr = 0.1` in arXiv:1909.06335 and [here](a0.5.md)", []),
        ("\n\n    fedcm run demo --set client.lr=0.5\n", []),
        ("```text\nloss 0.229\n```", []),
    ],
)
def test_numbers_are_recognised(text: str, numbers: list[str]) -> None:
    assert [number.text for number in Page("page.md", text).list_numbers()] == numbers


def test_what_is_typed_is_no_output() -> None:
    page = Page("page.md", "\n\n    fedcm run demo --set client.lr=0.5\n    fedcm     96.94%\n    lr = 0.1\n\n")
    assert page.printed == ["    fedcm     96.94%"]


@pytest.mark.parametrize(
    ("name", "pattern"),
    [
        ("README.md", r"([\d.]+) for LeNet"),
        ("README.md", r"fedcm +[\d.]+%  ([\d.]+)%"),
        ("docs/decisions/0006-rounded-client-states.md", r"(\d+) GB"),
        ("docs/guides/diagnosis.md", r"([\d.]+) against [\d.]+ \(means"),
        ("docs/guides/own-loss.md", r"'test_mae': ([\d.]+)"),
        ("docs/guides/privacy.md", r"it loses ([\d.]+) points"),
        ("docs/guides/robustness.md", r"falls from (\d+) %"),
        ("docs/guides/tuning.md", r"([\d.]+) % against"),
        ("docs/results.md", r"by ([\d.]+) points on CIFAR-10"),
        ("docs/theory.md", r"−0.72 and −(\d\.\d+)"),
    ],
)
def test_another_number_is_noticed(name: str, pattern: str) -> None:
    text = read_page(name).text
    found = re.search(pattern, text)
    assert found
    end = found.end(1)
    other = Page(name, f"{text[: end - 1]}{(int(text[end - 1]) + 1) % 10}{text[end:]}")
    assert notices(other)


def test_a_made_up_number_is_noticed() -> None:
    page = read_page("docs/guides/decentralised.md")
    assert page.text.count("sends a quarter as much") == 1
    assert notices(Page(page.name, page.text.replace("sends a quarter as much", "sends 0.27 as much")))


def notices(page: Page) -> bool:
    """Return whether a test of a page fails."""
    wrong = [quote.find_wrong(page) for quote in QUOTES if quote.page == page.name]
    return bool(find_unknown(page) or any(wrong) or find_unrecorded(page))


def test_only_right_equations_explain_a_number() -> None:
    page = read_page("docs/decisions/0001-where-the-paper-is-silent.md")
    changed = page.text.replace("0.9·0.3 = 0.47", "0.9·0.3 = 0.48")
    assert find_unknown(Page(page.name, changed)) != []
    assert list_wrong_equations(changed) == ["0.1·2 + 0.9·0.3 = 0.48"]
