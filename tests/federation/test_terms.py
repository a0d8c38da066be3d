"""Terms: a common normalisation to the bit, and errors for sites that one model cannot serve."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedcm.config.schema import read_section
from fedcm.config.sections import FederationSection
from fedcm.data import load_dataset
from fedcm.errors import UserError
from fedcm.federation.terms import DataDescription, agree_on_terms, describe_data


def description(**changes: Any) -> DataDescription:
    table = {"examples": 10, "shape": [1, 8, 8], "kind": "float32", "classes": 10, "sums": [], "versions": {}}
    return read_section(DataDescription, table | changes)


@pytest.mark.parametrize("shape", [(12,), (3, 6, 6)])
def test_sums_of_sites_give_the_normalisation_of_all_examples_in_one_place(
    shape: tuple[int, ...], tmp_path: Path
) -> None:
    draw = np.random.default_rng(1)
    descriptions = {}
    for site, size in (("a", 5), ("b", 17), ("c", 2)):
        x = draw.integers(0, 256, (size, *shape), dtype=np.uint8)
        np.savez(tmp_path / f"{site}.npz", x=x, y=draw.integers(0, 4, size))
        descriptions[site] = read_section(
            DataDescription, describe_data(load_dataset(str(tmp_path / f"{site}.npz")), {}, with_sums=True)
        )
    together = load_dataset(str(tmp_path))
    terms, _ = agree_on_terms(descriptions, FederationSection())
    assert terms.normalisation == together.normalisation
    assert terms.classes == together.classes


def test_a_given_normalisation_needs_no_sums() -> None:
    own = description(kind="uint8", shape=[3, 4, 4])
    terms, _ = agree_on_terms({"a": own}, FederationSection(mean=[0.5] * 3, std=[0.25] * 3))
    assert terms.mean == [0.5] * 3
    assert terms.std == [0.25] * 3


def test_classes_are_the_maximum_over_sites_or_as_given() -> None:
    descriptions = {"a": description(classes=3), "b": description(classes=7)}
    assert agree_on_terms(descriptions, FederationSection())[0].classes == 7
    assert agree_on_terms(descriptions, FederationSection(classes=10))[0].classes == 10


@pytest.mark.parametrize(
    "other", [{"shape": [1, 28, 28]}, {"kind": "uint8"}, {"classes": None}], ids=["shape", "kind", "labels"]
)
def test_a_site_that_differs_from_most_is_left_out_by_name(other: dict[str, Any]) -> None:
    """Whatever its name: one odd site must neither end the run nor decide the terms."""
    for odd in ("a", "z"):
        descriptions = {"k": description(), "l": description(), odd: description(**other)}
        terms, reasons = agree_on_terms(descriptions, FederationSection())
        assert terms.shape == [1, 8, 8]
        assert list(reasons) == [odd]
        assert f"{odd} has the" in reasons[odd]


@pytest.mark.parametrize(
    "sums",
    [[[]], [[1, 2]], [[0, 0, 0]], [[640, 10**9, 10**9]], [[640, 1000, 1]], [[640, 10, 10**6]], [[640, 1, 1]] * 2],
)
def test_impossible_sums_raise(sums: list[list[int]]) -> None:
    with pytest.raises(UserError, match="sums"):
        description(kind="uint8", sums=sums)


@pytest.mark.parametrize(
    "bad", [{"examples": 0}, {"examples": "many"}, {"shape": [-1]}, {"kind": "object"}, {"more": 1}, {"classes": 0}]
)
def test_a_bad_description_raises(bad: dict[str, Any]) -> None:
    with pytest.raises(UserError):
        description(**bad)
