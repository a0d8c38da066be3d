"""The generated tables of guides and decisions are those of the recorded digests and of the benchmarks' pages."""

from pathlib import Path

import guide_tables
import hostile_table
import privacy_table
import pytest
import robustness_table
from marked_text import replace_marked

ROOT = Path(__file__).parents[2]
TABLES = {
    "privacy": (privacy_table.GUIDE, privacy_table.write_table),
    "robust": (
        robustness_table.GUIDE,
        lambda folder: robustness_table.write_tables(robustness_table.read_cells(folder)),
    ),
}
DIGESTS = sorted(folder.name for kind in TABLES for folder in (ROOT / "results").glob(f"{kind}-*"))


def test_there_are_digests_of_both_kinds() -> None:
    assert {"privacy-digits", "privacy-cifar10", "robust-digits"} <= set(DIGESTS)


@pytest.mark.parametrize("name", DIGESTS)
def test_the_guide_has_the_tables_of_the_digests(name: str) -> None:
    guide, write = TABLES[name.partition("-")[0]]
    page = guide.read_text(encoding="utf-8")
    script = f"docs/generate/{'privacy' if name.startswith('privacy') else 'robustness'}_table.py"
    assert page == replace_marked(page, name, write(ROOT / "results" / name)), (
        f"run `python {script} results/{name} --update`"
    )


@pytest.mark.parametrize("name", guide_tables.PAGES)
def test_a_page_has_the_tables_of_its_digests_and_benchmarks(name: str) -> None:
    page = (ROOT / "docs" / name).read_text(encoding="utf-8")
    assert page == guide_tables.fill_page(name), "run `python docs/generate/guide_tables.py`"


def test_the_tables_of_the_theory_are_those_of_its_command() -> None:
    """`fedcm theory rates --output results/theory` writes the tables that docs/theory.md shows."""
    written = set((ROOT / "results/theory/theory-rates.md").read_text(encoding="utf-8").splitlines())
    page = (ROOT / "docs/theory.md").read_text(encoding="utf-8")
    tables = [block for block in page.split("\n\n") if block.startswith("| `fedcm theory rates --only …` |")]
    shown = [line for table in tables for line in table.splitlines()]
    assert len(shown) > 30
    assert [line for line in shown if line not in written] == []


def test_the_guide_has_the_recorded_accuracies_with_a_hostile_site() -> None:
    page = hostile_table.GUIDE.read_text(encoding="utf-8")
    assert page == hostile_table.fill_page(page), "run `python docs/generate/hostile_table.py`"


def test_a_page_without_the_comments_is_an_error() -> None:
    with pytest.raises(ValueError, match="must have"):
        replace_marked("a page", "robust-digits", "tables")
    assert replace_marked("a <!-- tables of x -->old<!-- end of x --> b", "x", "new") == (
        "a <!-- tables of x -->\n\nnew\n\n<!-- end of x --> b"
    )
