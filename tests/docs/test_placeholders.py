"""No page has a placeholder in the place of a result."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_line_is_one_word_in_capitals(page: Path) -> None:
    text = re.sub(r"^(```|~~~).*?^\1", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    assert re.findall(r"^(?:[A-Z]{3,}|.*\b(?:TODO|TBD|FIXME)\b.*)$", text, flags=re.MULTILINE) == []
