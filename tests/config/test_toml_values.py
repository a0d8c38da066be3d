"""Values of the command line are TOML's, one after another, and their texts tell them apart."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedcm.config.overrides import parse_values
from fedcm.config.toml_values import read_value, read_values, write_value
from fedcm.errors import UserError

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
numbers = st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False)
values = st.recursive(
    st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)


@given(values)
def test_a_value_written_is_read_back(value: Any) -> None:
    found = read_value(write_value(value))
    assert repr(found) == repr(value)


@given(st.lists(values, min_size=1, max_size=4))
def test_values_written_with_commas_between_are_read_back(given: list[Any]) -> None:
    assert repr(read_values(", ".join(map(write_value, given)))) == repr(given)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0.03,0.1", [0.03, 0.1]),
        ("[0.5,0.6],[0.7]", [[0.5, 0.6], [0.7]]),
        ("[64,32], [128], []", [[64, 32], [128], []]),
        ("[[1,2],[3]],[[4]]", [[[1, 2], [3]], [[4]]]),
        ("\"a,b\",'c, d',e f", ["a,b", "c, d", "e f"]),
        ("{a = 1, b = [2, 3]},{a = 4}", [{"a": 1, "b": [2, 3]}, {"a": 4}]),
        ("true,cifar10,1e-3", [True, "cifar10", 0.001]),
        ("a[1],b]", ["a[1]", "b]"]),  # words, since no bracket begins them
        ("1 # no comment,2", ["1 # no comment", 2]),
        ("1]#,2", ["1]#", 2]),
    ],
)
def test_commas_in_brackets_and_quotes_belong_to_the_value(text: str, expected: list[Any]) -> None:
    assert read_values(text) == expected


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("model.hidden=[64,32", "'[64,32' is no TOML value: brackets and quotes must close"),
        ("model.hidden=[64]x,[3]", "is no TOML value"),
        ("federation.sites=[a,b],[c]", "texts in a list be quoted"),
        ('data.source="a,b', "is no TOML value"),
        ("client.lr=0.1,", "a value is missing"),
        ("client.lr=", "a value is missing"),
        ("client.lr=0.1,0.10", "has 0.1 twice"),
        ("model.hidden=[8,8],[8, 8]", "has [8, 8] twice"),
        ("client..lr=1", "takes path=value,value"),
        ("a=" + "[" * 5000, "--over"),
    ],
)
def test_what_cannot_be_read_is_refused_in_a_sentence(setting: str, said: str) -> None:
    with pytest.raises(UserError) as refusal:
        parse_values(setting)
    assert said in str(refusal.value)
    assert str(refusal.value).startswith("--over takes")
