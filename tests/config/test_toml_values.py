"""Values of the command line are TOML; distinct values have distinct texts."""

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
        ("a[1],b]", ["a[1]", "b]"]),  # plain words, because they do not begin with a bracket
        ("1 # no comment,2", ["1 # no comment", 2]),
        ("1]#,2", ["1]#", 2]),
    ],
)
def test_commas_in_brackets_and_quotes_belong_to_the_value(text: str, expected: list[Any]) -> None:
    assert read_values(text) == expected


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("model.hidden=[64,32", "'[64,32' is not a TOML value: close all brackets and quotes"),
        ("model.hidden=[64]x,[3]", "is not a TOML value"),
        ("federation.sites=[a,b],[c]", "quote texts in a list"),
        ('data.source="a,b', "is not a TOML value"),
        ("client.lr=0.1,", "a value is missing"),
        ("client.lr=", "a value is missing"),
        ("client.lr=0.1,0.10", "has 0.1 twice"),
        ("model.hidden=[8,8],[8, 8]", "has [8, 8] twice"),
        ("client..lr=1", "must be path=value,value"),
        ("a=" + "[" * 5000, "must be path=value,value"),
    ],
)
def test_bad_values_raise_one_sentence(setting: str, message: str) -> None:
    with pytest.raises(UserError) as error:
        parse_values(setting)
    assert message in str(error.value)
    assert str(error.value).startswith("a setting to sweep must")
