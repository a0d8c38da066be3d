"""Tables of unequal work, stragglers and availability: read, written back, overridden."""

from pathlib import Path
from typing import Any

import pytest

from fedcm.config.conditions import describe_work
from fedcm.config.experiment import read_experiment, to_table
from fedcm.config.overrides import apply_overrides, merge_table
from fedcm.core.conditions.availability import DayNight, Trace
from fedcm.data.work.amounts import FileWork, UniformWork, WorkFunction
from fedcm.data.work.stragglers import Stragglers
from fedcm.errors import UserError
from fedcm.runs.identity import hash_settings

BASE: dict[str, Any] = {"name": "x", "rounds": 3, "model": {"name": "linear"}, "algorithm": {"name": "fedavg"}}
UNIFORM = {"kind": "uniform", "low": 1, "high": 5}
DAY = {"kind": "day-night", "period": 4, "share": 0.5}


def test_tables_become_objects_and_tables_again() -> None:
    table = BASE | {"client": {"steps": UNIFORM}, "stragglers": {"deadline": 3.0}, "availability": DAY}
    experiment = read_experiment(table)
    assert experiment.client.steps == UniformWork(1, 5)
    assert experiment.stragglers == Stragglers(3.0)
    assert experiment.availability == DayNight(4, 0.5)
    written = to_table(experiment)
    assert written["client"]["steps"] == UNIFORM | {"per": "round"}
    assert written["availability"] == DAY
    assert read_experiment(written) == experiment


def test_experiment_without_conditions_has_none_in_its_table() -> None:
    experiment = read_experiment(BASE)
    assert not {"stragglers", "availability"} & set(to_table(experiment))
    other = read_experiment(BASE | {"stragglers": {"deadline": 3.0}})
    assert hash_settings(experiment) != hash_settings(other)


def test_paths_become_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    experiment = read_experiment(
        BASE
        | {"client": {"epochs": {"kind": "file", "path": "work.csv"}}}
        | {"stragglers": {"deadline": 3.0, "file": "speeds.csv"}, "availability": {"kind": "trace", "file": "t.csv"}}
    )
    assert experiment.client.epochs == FileWork(str(tmp_path / "work.csv"))
    assert experiment.stragglers == Stragglers(3.0, file=str(tmp_path / "speeds.csv"))
    assert experiment.availability == Trace(str(tmp_path / "t.csv"))


def test_function_is_described_by_its_name() -> None:
    def grow(round: int, client: int) -> int:
        return 1 + round

    assert describe_work(WorkFunction(grow)) == {"kind": "in-memory:grow"}


def test_overrides_change_parts_and_kinds_of_work() -> None:
    table = BASE | {"client": {"steps": UNIFORM}, "availability": DAY}
    assert apply_overrides(table, ["client.steps.high=9"])["client"]["steps"] == UNIFORM | {"high": 9}
    assert apply_overrides(table, ["client.steps=4"])["client"] == {"steps": 4}
    assert apply_overrides(table, ["client.epochs={kind='uniform', low=1, high=2}"])["client"] == {
        "epochs": {"kind": "uniform", "low": 1, "high": 2}
    }
    changed = apply_overrides(table, ["client.steps.kind=file", "client.steps.path=a.csv"])
    assert changed["client"]["steps"] == {"kind": "file", "path": "a.csv"}
    changed = apply_overrides(table, ["availability.kind=trace", "availability.file=a.csv"])
    assert changed["availability"] == {"kind": "trace", "period": 4, "file": "a.csv"}
    with pytest.raises(UserError, match=r"client\.steps\.low cannot be set, because 'steps' is a value"):
        apply_overrides(BASE | {"client": {"steps": 3}}, ["client.steps.low=2"])


def test_table_of_a_variant_replaces_a_number() -> None:
    table: dict[str, Any] = {"client": {"steps": 3, "lr": 0.1}}
    merge_table(table, {"client": {"steps": UNIFORM}})
    assert table == {"client": {"steps": UNIFORM, "lr": 0.1}}
    merge_table(table, {"client": {"epochs": 2}})
    assert table == {"client": {"epochs": 2, "lr": 0.1}}


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"client": {"steps": {"kind": "unifrm"}}}, "there is no client.steps 'unifrm'; did you mean 'uniform'?"),
        ({"client": {"steps": {"kind": "uniform", "low": 1}}}, "client.steps.high must be given for 'uniform'"),
        ({"client": {"epochs": UNIFORM | {"low": 9}}}, "client.epochs 'uniform': low must be at most high, got 9 and"),
        ({"client": {"steps": UNIFORM, "epochs": 2}}, "exclude each other"),
        ({"stragglers": {}}, "stragglers.deadline must be given"),
        ({"stragglers": 3}, "stragglers must be a table, got 3"),
        ({"stragglers": {"deadlin": 3.0}}, "stragglers has no setting 'deadlin'; did you mean 'deadline'?"),
        ({"stragglers": {"deadline": 1.0, "policy": "wait"}}, "stragglers.policy must be 'drop' or 'partial'"),
        ({"availability": {"kind": "night"}}, "there is no availability 'night'"),
        ({"availability": DAY | {"share": 2.0}}, "availability 'day-night': share must be above 0 and at most 1"),
    ],
)
def test_wrong_tables_are_rejected_in_a_sentence(table: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as raised:
        read_experiment(BASE | table)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)
