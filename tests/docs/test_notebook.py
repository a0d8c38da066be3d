"""The notebook runs, and has the cells of the get-started page."""

from pathlib import Path

import nbformat
from get_started_notebook import make_notebook, run_notebook

DOCS = Path(__file__).parents[2] / "docs"


def test_notebook_has_the_cells_of_the_page() -> None:
    committed = nbformat.read(DOCS / "get-started.ipynb", as_version=4)
    made = make_notebook((DOCS / "get-started.md").read_text())
    assert [(cell.cell_type, cell.source) for cell in committed.cells] == [
        (cell.cell_type, cell.source) for cell in made.cells
    ], "run `python docs/generate/get_started_notebook.py`"


def test_notebook_runs(tmp_path: Path) -> None:
    notebook = nbformat.read(DOCS / "get-started.ipynb", as_version=4)
    done = run_notebook(notebook, tmp_path)
    printed = "".join(
        output.get("text", "") for cell in done.cells for output in cell.get("outputs", ()) if "text" in output
    )
    assert "50 clients" in printed
    assert "after 100 rounds" in printed
    assert (tmp_path / "first-plot.png").exists()
    assert (tmp_path / "mine.npz").exists()
