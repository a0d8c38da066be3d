"""Experiments are read, overridden by settings, and written so that they read back as the same experiment."""

from pathlib import Path
from typing import Any

import pytest
from scenes import small_experiment

from fedcm.algorithms import FedAvg, FedCM, FedDyn
from fedcm.config.experiment import read_experiment, to_table, to_toml
from fedcm.config.overrides import apply_overrides, merge_table, read_table, select_algorithm
from fedcm.core.participation import Independent
from fedcm.data.partition import Dirichlet
from fedcm.errors import UserError


def make_table(**changes: Any) -> dict[str, Any]:
    return small_experiment("digits", **changes)


def test_an_experiment_holds_the_chosen_dataclasses() -> None:
    experiment = read_experiment(make_table())
    assert experiment.algorithm == FedCM(alpha=0.1)
    assert experiment.split == Dirichlet(clients=12, concentration=0.6)
    assert experiment.participation == Independent(0.3)
    assert experiment.model.options == {"hidden": [8]}


@pytest.mark.parametrize("algorithm", ["fedavg", "fedcm", "fedadam", "scaffold", "feddyn"])
def test_a_resolved_experiment_reads_back_as_itself(tmp_path: Path, algorithm: str) -> None:
    experiment = read_experiment(make_table(algorithm={"name": algorithm}))
    path = tmp_path / "again.toml"
    path.write_text(to_toml(experiment))
    assert read_experiment(read_table(path)) == experiment
    assert to_table(read_experiment(read_table(path))) == to_table(experiment)
    assert to_table(experiment)["algorithm"]["name"] == algorithm


def test_steps_instead_of_epochs_read_back_too(tmp_path: Path) -> None:
    experiment = read_experiment(make_table(client={"steps": 7, "clip": 10.0}))
    path = tmp_path / "again.toml"
    path.write_text(to_toml(experiment))
    assert read_experiment(read_table(path)) == experiment


def test_settings_are_overridden_by_path() -> None:
    changed = apply_overrides(
        make_table(), ["client.lr=0.5", "algorithm.alpha=0.3", "data.source=cifar10", "model.hidden=[3, 4]"]
    )
    experiment = read_experiment(changed)
    assert experiment.client.lr == 0.5
    assert experiment.algorithm == FedCM(alpha=0.3)
    assert experiment.data.source == "cifar10"
    assert experiment.model.options["hidden"] == [3, 4]


def test_another_algorithm_starts_from_its_own_settings() -> None:
    given = make_table() | {"for": {"feddyn": {"algorithm": {"alpha": 0.5}, "client": {"lr_decay": 0.9}}}}
    assert read_experiment(apply_overrides(given, ["algorithm.name=fedavg"])).algorithm == FedAvg()
    feddyn = read_experiment(select_algorithm(given, "feddyn"))
    assert feddyn.algorithm == FedDyn(alpha=0.5)
    assert feddyn.client.lr_decay == 0.9
    assert feddyn.client.lr == 0.1
    assert read_experiment(select_algorithm(given, "fedcm")).algorithm == FedCM(alpha=0.1), (
        "the experiment's own does not change"
    )


def test_settings_override_for_tables_which_override_the_file() -> None:
    given = make_table() | {"for": {"fedcm": {"client": {"lr": 0.3, "epochs": 7}}}}
    experiment = read_experiment(apply_overrides(given, ["client.lr=0.7"]))
    assert experiment.client.lr == 0.7
    assert experiment.client.epochs == 7


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("split.kind=shards", {"kind": "shards", "clients": 12, "per_client": 2}),
        ("split.kind=iid", {"kind": "iid", "clients": 12}),
        ("participation.kind=everyone", {"kind": "everyone"}),
        ("model.name=linear", {"name": "linear"}),
    ],
)
def test_another_kind_keeps_only_settings_that_it_has(setting: str, expected: dict[str, Any]) -> None:
    section = setting.split(".")[0]
    assert to_table(read_experiment(apply_overrides(make_table(), [setting])))[section] == expected


def test_steps_on_the_command_line_replace_epochs() -> None:
    assert read_experiment(apply_overrides(make_table(), ["client.steps=9"])).client.epochs is None


def test_the_default_name_is_that_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "called-so.toml"
    path.write_text("rounds = 1")
    assert read_table(path)["name"] == "called-so"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"round": 3}, "no setting 'round'; did you mean 'rounds'"),
        ({"rounds": 0}, "rounds must be greater than or equal to 1, got 0"),
        ({"rounds": "many"}, "rounds must be a valid integer, got 'many'"),
        ({"seed": -1}, "seed must be greater than or equal to 0"),
        ({"client": {"learning_rate": 0.1}}, "no setting 'client.learning_rate'"),
        ({"client": {"epoch": 2}}, "did you mean 'epochs'"),
        ({"client": {"lr": -0.1}}, "client.lr must be greater than 0, got -0.1"),
        ({"client": {"lr": float("nan")}}, "client.lr must be"),
        ({"client": {"steps": 3, "epochs": 2}}, "exclude each other"),
        ({"client": {"weight_decay_at": "optimizer"}}, "'loss' or 'step'"),
        ({"client": 3}, "client must be a table"),
        ({"algorithm": {"name": "fedmc"}}, "no algorithm 'fedmc'; did you mean 'fedcm'"),
        ({"algorithm": {"name": "fedcm", "aplha": 0.1}}, "no setting 'aplha'; did you mean 'alpha'"),
        ({"algorithm": {"name": "fedcm", "alpha": 0}}, "alpha must be above 0 and at most 1"),
        ({"algorithm": {"name": "fedcm", "alpha": "big"}}, "algorithm.alpha must be a valid number, got 'big'"),
        ({"algorithm": {"name": "fedcm", "alpha": True}}, "algorithm.alpha must be a valid number"),
        ({"algorithm": {"name": "fedavg", "alpha": 0.1}}, "'fedavg' has no setting 'alpha'; it has none"),
        ({"algorithm": {"name": "scaffold", "option": "III"}}, "'I' or 'II'"),
        ({"algorithm": {"alpha": 0.1}}, "algorithm.name must be given"),
        ({"algorithm": {"name": "no.such.module:Algorithm"}}, "cannot be imported"),
        ({"algorithm": {"name": "math:sqrt"}}, "must be a frozen dataclass"),
        (
            {"algorithm": {"name": "fedcm.core.schedule:Schedule"}},
            r"must be a frozen dataclass that derives from fedcm\.",
        ),
        ({"algorithm": "fedcm"}, "algorithm.name must be given"),
        ({"split": {"kind": "dirichlet"}}, "split.clients must be given"),
        ({"split": {"kind": "dirichelt", "clients": 3}}, "did you mean 'dirichlet'"),
        ({"split": {"kind": "dirichlet", "clients": 0}}, "clients must be at least 1"),
        ({"split": {"kind": "dirichlet", "clients": 3, "concentration": 0.0}}, "concentration must be positive"),
        ({"participation": {"kind": "independent", "probability": 1.5}}, r"above 0 and at most 1"),
        ({"participation": {"kind": "independent", "p": 0.5}}, "no setting 'p'"),
        ({"model": {"hidden": [3]}}, "model.name must be given"),
        ({"server": {"weights": "examples"}, "algorithm": {"name": "scaffold"}}, "must weigh clients equally"),
        ({"evaluation": {"targets": [50]}}, "must be less than 1, got 50"),
    ],
)
def test_bad_experiments_raise_one_sentence(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        read_experiment(make_table(**changes))


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("client.lr", "a setting to change must be path=value"),
        ("=3", "a setting to change must be path=value"),
        ("client..lr=3", "a setting to change must be path=value"),
        ("rounds.more=3", "rounds.more cannot be set, because 'rounds' is a value"),
    ],
)
def test_an_override_without_a_path_or_a_value_raises(setting: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        apply_overrides(make_table(), [setting])


def test_a_changed_schedule_replaces_the_decay_and_the_reverse() -> None:
    table = {"client": {"lr": 0.2, "lr_decay": 0.9}}
    for setting in ('client.schedule={kind="cosine", warmup=2}', "client.schedule.kind=cosine"):
        changed = apply_overrides(table, [setting])
        assert changed["client"]["schedule"]["kind"] == "cosine"
        assert "lr_decay" not in changed["client"]
        assert apply_overrides(changed, ["client.lr_decay=0.8"])["client"] == {"lr": 0.2, "lr_decay": 0.8}
        assert apply_overrides(changed, ["client.lr_decay=1"])["client"]["schedule"]["kind"] == "cosine"


def test_a_variant_must_not_have_two_settings_of_which_one_replaces_the_other() -> None:
    with pytest.raises(UserError, match="exclude each other"):
        merge_table({"client": {"epochs": 2}}, {"client": {"steps": 3, "epochs": 4}})


def test_an_experiment_that_never_ends_early_has_no_stop_in_its_file() -> None:
    experiment = read_experiment(make_table())
    assert "stop" not in to_table(experiment)
    assert read_experiment(to_table(experiment)) == experiment
