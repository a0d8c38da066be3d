"""What sites agree on: a common normalisation to the bit, and refusals where one model could not serve them all."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedcm.data import load
from fedcm.experiment import Federation
from fedcm.federation.terms import Description, agree, described
from fedcm.refusal import Refused
from fedcm.settings import read_section


def description(**changes: Any) -> Description:
    table = {"examples": 10, "shape": [1, 8, 8], "kind": "float32", "classes": 10, "sums": [], "versions": {}}
    return read_section(Description, table | changes)


@pytest.mark.parametrize("shape", [(12,), (3, 6, 6)])
def test_the_sites_sums_give_the_normalisation_of_all_examples_in_one_place(
    shape: tuple[int, ...], tmp_path: Path
) -> None:
    draw = np.random.default_rng(1)
    said = {}
    for site, size in (("a", 5), ("b", 17), ("c", 2)):
        x = draw.integers(0, 256, (size, *shape), dtype=np.uint8)
        np.savez(tmp_path / f"{site}.npz", x=x, y=draw.integers(0, 4, size))
        said[site] = read_section(Description, described(load(str(tmp_path / f"{site}.npz")), {}, with_sums=True))
    together = load(str(tmp_path))
    terms = agree(said, Federation())
    assert terms.normalisation == together.normalisation
    assert terms.classes == together.classes


def test_a_given_normalisation_needs_no_sums() -> None:
    own = description(kind="uint8", shape=[3, 4, 4])
    terms = agree({"a": own}, Federation(mean=[0.5] * 3, std=[0.25] * 3))
    assert terms.mean == [0.5] * 3
    assert terms.std == [0.25] * 3


def test_classes_are_the_most_that_a_site_has_or_as_given() -> None:
    said = {"a": description(classes=3), "b": description(classes=7)}
    assert agree(said, Federation()).classes == 7
    assert agree(said, Federation(classes=10)).classes == 10


@pytest.mark.parametrize(
    "other", [{"shape": [1, 28, 28]}, {"kind": "uint8"}, {"classes": None}], ids=["shape", "kind", "labels"]
)
def test_sites_that_one_model_cannot_serve_are_refused_by_name(other: dict[str, Any]) -> None:
    with pytest.raises(Refused, match="b has the"):
        agree({"a": description(), "b": description(**other)}, Federation())


@pytest.mark.parametrize(
    "bad", [{"examples": 0}, {"examples": "many"}, {"shape": [-1]}, {"kind": "object"}, {"more": 1}, {"classes": 0}]
)
def test_a_description_that_is_none_is_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(Refused):
        description(**bad)
