"""Write the tables of one hostile site in docs/guides/robustness.md from results/hostile-sites.json.

    python docs/generate/hostile_table.py

`tests/federation/hostile_sites.py` measures them.
"""

import json
from pathlib import Path
from typing import Any

from marked_text import replace_marked

GUIDE = Path(__file__).parents[1] / "guides" / "robustness.md"
RESULTS = Path(__file__).parents[2] / "results" / "hostile-sites.json"


def write_table(rows: list[dict[str, Any]]) -> str:
    """Return a Markdown table with two decimals."""
    lines = [f"| {' | '.join(rows[0])} |", "|---" * len(rows[0]) + "|"]
    for row in rows:
        cells = [f"{value:.2f}" if isinstance(value, float) else value for value in row.values()]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def fill_page(page: str) -> str:
    """Return the page with the recorded tables."""
    for name, rows in json.loads(RESULTS.read_text(encoding="utf-8")).items():
        page = replace_marked(page, name, write_table(rows))
    return page


def update_guide() -> None:
    """Put the recorded tables into the guide."""
    GUIDE.write_text(fill_page(GUIDE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    update_guide()
