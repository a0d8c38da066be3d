"""The settings to tune: what a text means, and what is not a space."""

import pytest

from fedcm.errors import UserError
from fedcm.tuning.space import (
    TunedChoices,
    TunedRange,
    choose_space,
    list_example_settings,
    parse_tuned_settings,
)


@pytest.mark.parametrize(
    ("text", "domain"),
    [
        ("client.lr=0.01..1", TunedRange(0.01, 1.0)),
        ("client.lr=0.01..1:log", TunedRange(0.01, 1.0, log=True)),
        ("client.lr=1e-4..1e-1:log", TunedRange(1e-4, 0.1, log=True)),
        ("client.lr= .5 .. 2 ", TunedRange(0.5, 2.0)),
        ("client.epochs=1..5:int", TunedRange(1, 5, whole=True)),
        ("client.batch_size=1..64:log:int", TunedRange(1, 64, log=True, whole=True)),
        ("client.batch_size=2..10:int:step=2", TunedRange(2, 10, whole=True, step=2.0)),
        ("server.lr=0.5..1.5:step=0.1", TunedRange(0.5, 1.5, step=0.1)),
        ("client.batch_size=5,10", TunedChoices((5, 10))),
        ("model.hidden=[64,32],[128]", TunedChoices(([64, 32], [128]))),
        ("model.weights=../a.st,../b.st", TunedChoices(("../a.st", "../b.st"))),
    ],
)
def test_a_text_means_a_range_or_choices(text: str, domain: object) -> None:
    (setting,) = parse_tuned_settings([text])
    assert setting.domain == domain
    assert parse_tuned_settings([f"{setting.path}={setting.domain}"]) == [setting], "its own text means the same"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("client.lr", "path=low..high"),
        ("=0.1..1", "path=low..high"),
        ("client..lr=0.1..1", "path=low..high"),
        ("client.lr=", "a value is missing"),
        ("client.lr=0.1", "nothing to choose from"),
        ("client.lr=a..b", "a range must be two numbers, low..high"),
        ("client.lr=0.1,0.1", "twice"),
        ("client.lr=0.1..b", "'b' is not a number"),
        ("client.lr=1..0.1", "first number must be below"),
        ("client.lr=1..1", "first number must be below"),
        ("client.lr=0..1:log", "begin above 0"),
        ("client.lr=0.1..1:exp", "':exp' must be :log, :int or :step=NUMBER"),
        ("client.lr=0.1..1:log:log", "may be there once"),
        ("client.lr=0.1..1:log:step=0.1", ":log excludes :step"),
        ("client.lr=0.1..1:step=x", "'x' is not a number"),
        ("client.lr=0.1..1:step=2", "fit into the range"),
        ("client.lr=0.1..1:step=0", "fit into the range"),
        ("client.epochs=1..2.5:int", "2.5 is not a whole number"),
        ("client.epochs=1..9:int:step=0.5", "whole step"),
        ("algorithm.name=fedavg,fedcm", "list the algorithms in `algorithms`"),
        ("seed=1,2", "the best seed would be luck"),
        ("name=a,b", "changes no result"),
        ("setting=1,2", "there is no such setting"),
        ("data.validation=0.1..0.5", "'data.validation': trials that differ in it cannot be compared"),
        ("data.source=a.npz,b.npz", "cannot be compared"),
        ('evaluation.metrics=["f1"],["accuracy"]', "cannot be compared"),
        ("evaluation.every=1..5:int", "cannot be compared"),
        ("fedcm:stop.patience=1,2", "cannot be compared"),
    ],
)
def test_what_is_not_a_space_is_one_sentence(text: str, reason: str) -> None:
    with pytest.raises(UserError) as error:
        parse_tuned_settings([text])
    assert reason in str(error.value)
    assert "such as client.lr=0.01..1:log" in str(error.value)
    assert "\n" not in str(error.value)


def test_a_setting_is_given_once() -> None:
    with pytest.raises(UserError, match=r"'client\.lr' is given twice"):
        parse_tuned_settings(["client.lr=0.1..1", "client.lr=0.1,1"])
    with pytest.raises(UserError, match="must be given with --over"):
        parse_tuned_settings([])


def test_an_algorithm_has_the_common_settings_and_its_own() -> None:
    settings = parse_tuned_settings(
        ["fedcm:client.lr=0.5..1", "client.lr=0.01..1", "algorithm.alpha=0.1..1", "mine:Algo:algorithm.x=1,2"]
    )
    assert choose_space(settings, "fedavg", []) == {"client.lr": TunedRange(0.01, 1.0)}
    assert choose_space(settings, "fedcm", ["alpha"]) == {
        "client.lr": TunedRange(0.5, 1.0),
        "algorithm.alpha": TunedRange(0.1, 1.0),
    }
    assert choose_space(settings, "mine:Algo", ["x"])["algorithm.x"] == TunedChoices((1, 2))


def test_a_drawn_number_has_few_digits_and_stays_in_the_range() -> None:
    assert TunedRange(0.0, 1.0).to_value(0.123456789) == 0.1235
    assert TunedRange(0.12344, 1.0).to_value(0.12344) == 0.12344
    assert TunedRange(0.0, 0.999999).to_value(0.999999) == 0.999999
    assert TunedRange(0.5, 1.5, step=0.1).to_value(0.5 + 0.1 + 0.1 + 0.1) == 0.8
    assert TunedRange(1, 9, whole=True).to_value(3) == 3


def test_the_examples_of_a_space_contain_both_ends_and_every_choice() -> None:
    space = {"a.x": TunedRange(1, 5, whole=True), "a.y": TunedRange(0.0, 1.0), "a.z": TunedChoices((1, 2, 3, 4))}
    examples = list_example_settings(space)
    assert {1, 5} == {one["a.x"] for one in examples}
    assert {0.0, 1.0} < {one["a.y"] for one in examples}
    assert {1, 2, 3, 4} == {one["a.z"] for one in examples}
    assert any(0 < one["a.y"] < 1 for one in examples), "a number that is not whole shows a missing :int"
