"""The notebooks run, and have the cells of their pages."""

from pathlib import Path

import nbformat
import pytest
from notebooks import PAGES, make_notebook, run_notebook

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("page", PAGES)
def test_notebook_has_the_cells_of_the_page(page: str) -> None:
    committed = nbformat.read(DOCS / f"{page}.ipynb", as_version=4)
    assert [(cell.cell_type, cell.source) for cell in committed.cells] == [
        (cell.cell_type, cell.source) for cell in make_notebook(page).cells
    ], "run `python docs/generate/notebooks.py`"


def run_and_read(page: str, folder: Path) -> str:
    """Run a notebook and return what it printed."""
    done = run_notebook(nbformat.read(DOCS / f"{page}.ipynb", as_version=4), folder)
    return "".join(
        output.get("text", "") for cell in done.cells for output in cell.get("outputs", ()) if "text" in output
    )


def test_get_started_runs(tmp_path: Path) -> None:
    printed = run_and_read("get-started", tmp_path)
    assert "50 clients" in printed
    assert "after 100 rounds" in printed
    assert (tmp_path / "first-plot.png").exists()
    assert (tmp_path / "mine.npz").exists()


@pytest.mark.slow
def test_a_whole_training_of_your_own_runs(tmp_path: Path) -> None:
    printed = run_and_read("guides/own-training", tmp_path)
    assert "early end: True" in printed
    assert "accuracy over 20 clients: mean" in printed
    assert "best round on the validation data: " in printed
