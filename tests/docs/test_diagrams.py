"""The diagrams are those that the generator draws, and show the packages that exist."""

from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest
from diagrams import DIAGRAMS, FOLDER, LAYERS

SOURCE = Path(__file__).parents[2] / "src" / "fedcm"


@pytest.mark.parametrize("name", DIAGRAMS)
def test_diagram_is_up_to_date(name: str) -> None:
    assert (FOLDER / name).read_text() == DIAGRAMS[name](), "run `python docs/generate/diagrams.py`"


@pytest.mark.parametrize("name", DIAGRAMS)
def test_diagram_is_described_for_screen_readers(name: str) -> None:
    svg = ElementTree.fromstring((FOLDER / name).read_text())
    words = {child.tag.partition("}")[2]: child.text for child in svg}
    assert words["title"]
    assert words["desc"]


def test_architecture_shows_every_package_in_its_layer() -> None:
    from test_architecture import LAYERS as CHECKED

    drawn = [set(layer) for layer in LAYERS]
    parts = {path.stem for path in SOURCE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert set().union(*drawn) == parts - {"__init__", "__main__"}
    height = {name: len(drawn) - row for row, layer in enumerate(drawn) for name in layer}
    for lower, higher in pairwise(CHECKED):
        assert max(height[name] for name in lower) <= min(height[name] for name in higher)
