"""Make docs/get-started.ipynb from the Python part of docs/get-started.md, and run it.

`python docs/generate/get_started_notebook.py` writes the notebook with its outputs. tests/docs/test_notebook.py checks
that page and notebook have the same cells.
"""

import re
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

DOCS = Path(__file__).parents[1]
BEGIN, END = "## Your own model in Python", "## Where to go next"
_PYTHON = re.compile(r"^```python\n(.*?)^```\n", re.MULTILINE | re.DOTALL)


def make_notebook(page: str) -> Any:
    """Return the notebook without outputs: code blocks are cells, and so is the text between them."""
    text = page[page.index(BEGIN) : page.index(END)]
    text = re.sub(r"^The rest of this page is also a notebook.*\n", "", text, flags=re.MULTILINE)
    text = re.sub(r"^!\[.*\n", "", text, flags=re.MULTILINE)  # the notebook draws the picture itself
    text = re.sub(r"\]\((?!http)([\w/-]+)\.md", r"](https://github.com/fedcm/fedcm/blob/main/docs/\1.md", text)
    cells = [nbformat.v4.new_markdown_cell("# Get started with fedcm")]
    for number, part in enumerate(_PYTHON.split(text)):
        if part.strip():
            make = nbformat.v4.new_code_cell if number % 2 else nbformat.v4.new_markdown_cell
            cells.append(make(part.strip()))
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"  # the same in every version
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": kernel})


def run_notebook(notebook: Any, folder: Path) -> Any:
    """Run all cells in the folder; an exception in a cell is raised here."""
    return NotebookClient(
        notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
    ).execute()


def main() -> None:
    notebook = make_notebook((DOCS / "get-started.md").read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as folder:
        run_notebook(notebook, Path(folder))
        (DOCS / "first-plot.png").write_bytes((Path(folder) / "first-plot.png").read_bytes())
    for cell in notebook.cells:
        cell.get("metadata", {}).pop("execution", None)  # times of the cells
    nbformat.write(notebook, DOCS / "get-started.ipynb")


if __name__ == "__main__":
    main()
