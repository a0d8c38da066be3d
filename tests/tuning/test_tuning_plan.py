"""The plan of a tuning: one space per algorithm, validation data for all, and what cannot be tuned."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedcm.config.experiment import load_experiment_file
from fedcm.data import load_dataset
from fedcm.errors import UserError
from fedcm.tuning.plan import TuningPlan, plan_tuning
from fedcm.tuning.plan_file import read_plan_file, record_plan
from fedcm.tuning.session import reject_impossible_trials

Write = Callable[..., Path]
RATE = "client.lr=0.01..1:log"


def make_plan(path: Path, *over: str, overrides: tuple[str, ...] = (), trials: int = 3, **changes: Any) -> TuningPlan:
    return plan_tuning(path, over or [RATE], overrides, trials=trials, **changes)


def test_a_plan_holds_back_validation_data_only_if_there_are_none(
    experiment: Write, npz: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = experiment()
    plan = make_plan(path, validation=0.2)
    assert plan.validation == 0.2
    assert plan.algorithms[0].make_experiment({"client.lr": 0.1}).data.validation == 0.2
    own = make_plan(path, overrides=("data.validation=0.3",))
    assert own.validation is None
    assert own.algorithms[0].make_experiment({"client.lr": 0.1}).data.validation == 0.3
    data = load_dataset(str(npz))
    with_own = replace(data, validation=data.test)
    monkeypatch.setattr("fedcm.tuning.plan.load_source", lambda source, data_dir: with_own)
    brought = make_plan(path)
    assert brought.validation is None
    assert brought.algorithms[0].make_experiment({"client.lr": 0.1}).data.validation is None


def test_an_experiment_in_memory_is_planned_like_its_file(experiment: Write) -> None:
    path = experiment()
    one, other = make_plan(path), plan_tuning(load_experiment_file(path), [RATE], trials=3)
    assert one.algorithms[0].to_record() == other.algorithms[0].to_record()
    assert (one.name, one.seed) == (other.name, other.seed) == ("small-tune", 3)


def test_the_settings_for_an_algorithm_in_the_file_apply(experiment: Write) -> None:
    path = experiment(**{"for": {"fedadam": {"server": {"lr": 0.03}}}})
    plan = make_plan(path, algorithms=["fedavg", "fedadam"])
    rates = {one.algorithm: one.make_experiment({"client.lr": 0.1}).server.lr for one in plan.algorithms}
    assert rates == {"fedavg": 1.0, "fedadam": 0.03}


def test_tuned_settings_replace_those_that_exclude_them(experiment: Write) -> None:
    (one,) = make_plan(experiment(), "client.steps=1..5:int").algorithms
    made = one.make_experiment({"client.steps": 2})
    assert (made.client.steps, made.client.epochs) == (2, None)


@pytest.mark.parametrize(
    ("over", "changes", "reason"),
    [
        (["client.rate=0.1..1"], {}, "every value of a setting to tune must work for 'fedcm': .*rate"),
        (["client.lr=-1..1"], {}, "every value of a setting to tune must work for 'fedcm': .*client.lr"),
        (["client.epochs=1..5"], {}, "every value of a setting to tune must work for 'fedcm': .*epochs"),
        (["algorithm.beta=0.1..1", RATE], {}, "none of fedcm has 'algorithm.beta'"),
        (["algorithm.alpha=0.1..1"], {"algorithms": ["fedavg"]}, "none of those given applies to 'fedavg'"),
        (["fedavg:client.lr=0.1..1"], {}, "fedavg:client.lr must name an algorithm that is tuned"),
        ([RATE], {"overrides": ("client.lr=0.5",)}, "'client.lr' is; leave out one of the two"),
        ([RATE], {"algorithms": ["fedcn"]}, "there is no algorithm 'fedcn'"),
        ([RATE], {"validation": 1.5}, "validation"),
        (["server.lr=0.5..2"], {"algorithms": ["fedavg", "vrl-sgd"]}, "'vrl-sgd' has no server learning rate"),
    ],
)
def test_what_cannot_be_tuned_is_one_sentence(
    experiment: Write, over: list[str], changes: dict[str, Any], reason: str
) -> None:
    with pytest.raises(UserError, match=reason) as error:
        make_plan(experiment(), *over, **changes)
    assert "\n" not in str(error.value)


def test_a_grid_cannot_be_tuned(experiment: Write) -> None:
    with pytest.raises(UserError, match=r"has a \[grid\]; give a file without one"):
        make_plan(experiment(grid={"seeds": 2}))


def test_values_that_the_data_do_not_allow_are_rejected_before_the_first_trial(
    experiment: Write, tmp_path: Path
) -> None:
    plan = make_plan(experiment(), "split.clients=5,10000")
    with pytest.raises(UserError, match=r"10000|clients"):
        reject_impossible_trials(plan, tmp_path / "runs" / "tune", None)
    assert not (tmp_path / "runs").exists()


def test_a_plan_continues_only_with_the_same_experiment_and_space(experiment: Write, tmp_path: Path) -> None:
    folder = tmp_path / "tune"
    path = experiment()
    record_plan(make_plan(path), folder)
    record_plan(make_plan(path, trials=9, seeds=4), folder)
    assert read_plan_file(folder)["trials"] == 9
    assert json.loads((folder / "tune.json").read_text())["algorithms"]["fedcm"]["space"] == {
        "client.lr": "0.01..1:log"
    }
    cases: tuple[tuple[dict[str, Any], str], ...] = (
        ({"over": ["client.lr=0.02..1:log"]}, r"the space of client\.lr"),
        ({"over": [RATE, "algorithm.alpha=0.1,0.2"]}, r"the space of algorithm\.alpha"),
        ({"overrides": ("rounds=5",)}, "rounds of 'fedcm' changed"),
        ({"validation": 0.2}, r"data\.validation of 'fedcm' changed"),
    )
    for changes, reason in cases:
        over = changes.pop("over", [RATE])
        with pytest.raises(UserError, match=reason) as error:
            record_plan(make_plan(path, *over, **changes), folder)
        assert str(error.value).endswith("use --fresh, or another --name")
    with pytest.raises(UserError, match="seed"):
        record_plan(make_plan(path, overrides=("seed=9",)), folder)
    record_plan(make_plan(path, algorithms=["fedavg"]), folder)
    assert set(read_plan_file(folder)["algorithms"]) == {"fedcm", "fedavg"}, "algorithms may be added"


def test_a_folder_that_is_not_a_tuning_stays_unchanged(experiment: Write, tmp_path: Path) -> None:
    folder = tmp_path / "tune"
    folder.mkdir()
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match="exists already and is not a tuning; choose another --name"):
        record_plan(make_plan(experiment()), folder)
    (folder / "notes.txt").unlink()
    (folder / "tune.json").write_text("{")
    with pytest.raises(UserError, match="is damaged"):
        record_plan(make_plan(experiment()), folder)
