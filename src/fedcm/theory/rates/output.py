"""Write the results of `fedcm theory rates`: tables, numbers and figures."""

import json
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryFile

from fedcm.errors import UserError
from fedcm.system.files import write_text
from fedcm.theory.rates.figures import draw_rates, draw_ratios
from fedcm.theory.rates.markdown import make_markdown
from fedcm.theory.rates.measurement import RateRow
from fedcm.theory.rates.ratios import compare_algorithms
from fedcm.theory.rates.tables import make_sheet, row_to_json


def create_folder(output: str) -> Path:
    """Create the output folder and check that it is writable, before minutes are spent on measuring.

    Raises:
        UserError: If the folder cannot be created or written to.
    """
    if not output:
        raise UserError("-o needs the name of a folder, got ''; use -o . for the current folder")
    folder = Path(output)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder) as file:
            file.write(b"test")
    except OSError as error:
        reason = error.strerror or str(error)
        raise UserError(f"-o needs a writable folder, got {output} ({reason}); choose another") from None
    return folder


def format_json(rows: Sequence[RateRow]) -> str:
    """Return all rows as one JSON list."""
    comparisons = compare_algorithms(rows)
    records = [row_to_json(row, comparisons) for row in rows]
    return json.dumps(records, indent=1, ensure_ascii=False, allow_nan=False)


def write_tables(rows: Sequence[RateRow], folder: Path) -> Path:
    """Write theory-rates.json, .md, .csv and .tex, and return the path of the Markdown file."""
    sheet = make_sheet(rows)
    texts = {
        "json": format_json(rows) + "\n",
        "md": make_markdown(rows),
        "csv": sheet.to_csv(),
        "tex": sheet.to_latex(),
    }
    for suffix, text in texts.items():
        write_text(folder / f"theory-rates.{suffix}", text)
    return folder / "theory-rates.md"


def draw_figures(rows: Sequence[RateRow], folder: Path) -> list[Path]:
    """Draw the figures that the rows have data for, and return their paths."""
    groups = {
        "theory-rates": [row for row in rows if row.experiment.steps != "averaging"],
        "theory-clients": [row for row in rows if row.experiment.varied == "N"],
    }
    paths = [path for name, group in groups.items() if group for path in draw_rates(group, folder, name)]
    by_horizon = [each for each in compare_algorithms(rows) if each.fedcm.experiment.varied == "T"]
    return paths + (draw_ratios(by_horizon, folder, "theory-momentum") if by_horizon else [])
