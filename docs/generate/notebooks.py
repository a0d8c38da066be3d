"""Make the notebooks from pages of the docs, and run them.

`python docs/generate/notebooks.py` writes each with its outputs beside its page. tests/docs/test_notebook.py checks
that page and notebook have the same cells.
"""

import re
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

DOCS = Path(__file__).parents[1]

# by page: the notebook's title, and where its part of the page begins and ends
PAGES = {
    "get-started": ("Get started with fedcm", "## Your own model in Python", "## Where to go next"),
    "guides/own-training": ("A whole training of your own with fedcm", "## Model and data", None),
}
_ADDRESS = "https://github.com/fedcm/fedcm/blob/main/docs/"
_PYTHON = re.compile(r"^```python\n(.*?)^```\n", re.MULTILINE | re.DOTALL)


def make_notebook(page: str) -> Any:
    """Return the notebook of a page without outputs: code blocks are cells, and so is the text between them."""
    title, begin, end = PAGES[page]
    text = (DOCS / f"{page}.md").read_text(encoding="utf-8")
    text = text[text.index(begin) : None if end is None else text.index(end)]
    text = re.sub(r"^The rest of this page is also a notebook.*\n", "", text, flags=re.MULTILINE)
    text = re.sub(r"^!\[.*\n", "", text, flags=re.MULTILINE)  # the notebook draws the picture itself
    folder = f"{page.rpartition('/')[0]}/".removeprefix("/")
    text = re.sub(r"\]\((?!http)([\w/-]+)\.md", rf"]({_ADDRESS}{folder}\1.md", text)
    cells = [nbformat.v4.new_markdown_cell(f"# {title}")]
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
    for page in PAGES:
        notebook = make_notebook(page)
        with tempfile.TemporaryDirectory() as folder:
            run_notebook(notebook, Path(folder))
            for picture in Path(folder).glob("*.png"):
                (DOCS / picture.name).write_bytes(picture.read_bytes())
        for cell in notebook.cells:
            cell.get("metadata", {}).pop("execution", None)  # times of the cells
            if "outputs" in cell:  # warnings of libraries name the machine's folders
                cell["outputs"] = [output for output in cell["outputs"] if output.get("name") != "stderr"]
        nbformat.write(notebook, DOCS / f"{page}.ipynb")


if __name__ == "__main__":
    main()
