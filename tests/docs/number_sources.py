"""Which generated files hold the numbers of which page, and which parts of pages are not checked."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from page_numbers import ROOT, Page

from fedcm.reports.digest import Digest, read_digest
from fedcm.system.formatting import format_bytes, format_duration

PRINTED = "results/printed"
TARGETS = ("0.8", "0.9")


def list_demo_rows() -> str:
    """Return the table that `make demo` and `fedcm run experiments/demo.toml` print, from the recorded digests."""
    runs = [read_digest(path) for path in (ROOT / "results" / "demo").glob("*.json")]
    head = " ".join(f"to {100 * float(target):.0f}%" for target in TARGETS)
    return "\n".join([head, *(f"{name} {write_demo_row(run)}" for run in runs for name in (run.algorithm, run.name))])


def write_demo_row(run: Digest) -> str:
    """Return the columns of a run."""
    assert run.accuracy
    cells = [f"{100 * run.accuracy[key]:.2f}%" for key in ("last", "mean_last", "best")]
    cells += [str(run.summary["rounds_to_accuracy"][target]) for target in TARGETS]
    cells += [format_bytes(run.summary[key]) for key in ("bytes_down", "bytes_up")]
    return " ".join([*cells, format_duration(run.summary["seconds"])])


# Files whose lines and numbers a page may repeat. Numbers in sentences are computed in quotes_*.py if the file has so
# many numbers that nearly any other would be found in it, too.
SOURCES: Mapping[str, tuple[str | Callable[[], str], ...]] = {
    "README.md": (list_demo_rows,),
    "docs/get-started.md": (list_demo_rows,),
    "docs/decisions/0001-where-the-paper-is-silent.md": ("src/fedcm/data/sources/cifar.py",),
    "docs/guides/evaluation.md": (f"{PRINTED}/evaluation.txt",),
    "docs/guides/fine-tuning.md": (f"{PRINTED}/fine-tuning.txt",),
    "docs/guides/local-training.md": (f"{PRINTED}/local-training.txt",),
    "docs/guides/own-loss.md": (f"{PRINTED}/own-loss.txt",),
    "docs/guides/secure-aggregation.md": ("benchmarks/SECURE_AGGREGATION.md",),
    "docs/guides/tuning.md": (f"{PRINTED}/tuning.txt",),
}
# Files of which a page may repeat whole table rows only.
ROWS: Mapping[str, tuple[str, ...]] = {"docs/theory.md": ("results/theory/theory-rates.md",)}


@dataclass(frozen=True)
class Unchecked:
    """A part of a page whose measured numbers are in no generated file; it says how and when they were measured."""

    page: str
    title: str  # of the section
    reason: str


UNCHECKED = [
    Unchecked("docs/guides/diagnosis.md", "How often it is right", "the benchmark takes hours"),
    Unchecked("docs/testing.md", "Mutation testing", "an hour or more, on an earlier tree"),
]


def read_sources(page: str) -> Iterator[str]:
    """Yield the texts of the files that a page may repeat."""
    for source in SOURCES.get(page, ()):
        yield (ROOT / source).read_text(encoding="utf-8") if isinstance(source, str) else source()


def find_section(page: Page, title: str) -> tuple[int, int]:
    """Return where a section begins and ends."""
    found = re.search(rf"^(#+) {re.escape(title)}$", page.text, re.MULTILINE)
    assert found, f"{page.name} has no section {title!r}"
    following = re.search(rf"^#{{1,{len(found[1])}}} ", page.text[found.end() :], re.MULTILINE)
    return found.start(), found.end() + following.start() if following else len(page.text)
