"""What is tuned: one experiment and one space per algorithm, with the same number of trials for each."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from fedcm.algorithms.registry import find_algorithm, get_algorithm_name
from fedcm.config.experiment import read_experiment, to_table
from fedcm.config.overrides import Table, apply_overrides, read_table, set_value
from fedcm.config.sections import CellSection, Experiment
from fedcm.config.toml_values import write_value
from fedcm.data import load_source
from fedcm.errors import UserError, suggest
from fedcm.system.formatting import slugify
from fedcm.tuning.objective import VALIDATION
from fedcm.tuning.space import Space, TunedSetting, choose_space, list_example_settings, parse_tuned_settings


@final
@dataclass(frozen=True)
class AlgorithmPlan:
    """One algorithm of a tuning."""

    algorithm: str
    table: Table  # the experiment, before the tuned settings
    space: Space

    def make_experiment(self, settings: Mapping[str, Any]) -> Experiment:
        """Return the experiment of a trial; its cell names the tuned settings."""
        table = apply_overrides(self.table, ())  # a copy
        for path in sorted(settings, key=lambda path: path.rpartition(".")[2] not in ("kind", "name")):
            set_value(table, path.split("."), settings[path])
        labels = {path: write_value(value) for path, value in settings.items()}
        return read_experiment(table).model_copy(update={"cell": CellSection(labels=labels)})

    def list_examples(self) -> list[Experiment]:
        """Return experiments at the ends of the space.

        Raises:
            UserError: If one of them cannot work.
        """
        return [self.make_experiment(settings) for settings in list_example_settings(self.space)]

    def to_record(self) -> dict[str, Any]:
        """Return what identifies the search of this algorithm, for `tune.json`."""
        settings = list_example_settings(self.space)[0]
        experiment = to_table(self.make_experiment(settings))
        return {
            "space": {path: str(domain) for path, domain in self.space.items()},
            "experiment": {key: value for key, value in experiment.items() if key != "cell"},
        }


@final
@dataclass(frozen=True)
class TuningPlan:
    """A tuning: its name, its algorithms and its budget.

    Attributes:
        name: The name of its folder.
        algorithms: The plan of each algorithm.
        trials: Trials per algorithm.
        seeds: Further seeds for the best setting of each algorithm.
        seed: The seed of the experiment and of the search.
        validation: The share of the training data that the tuning itself holds back; None if the experiment does.
    """

    name: str
    algorithms: tuple[AlgorithmPlan, ...]
    trials: int
    seeds: int
    seed: int
    validation: float | None


def plan_tuning(
    source: Path | Experiment,
    over: Sequence[str],
    overrides: Sequence[str] = (),
    *,
    algorithms: Sequence[str] = (),
    trials: int,
    seeds: int = 1,
    validation: float = 0.1,
    name: str | None = None,
    data_dir: Path | None = None,
) -> TuningPlan:
    """Return the plan of a tuning.

    Args:
        source: The experiment, or its file.
        over: The settings to tune; see `parse_tuned_settings`.
        overrides: Settings to change in all runs, each `path=value`.
        algorithms: The algorithms to tune; by default the experiment's own.
        trials: Trials per algorithm.
        seeds: Further seeds for the best setting of each algorithm.
        validation: The share of the training data to hold back if the experiment has no validation data.
        name: The name of the tuning's folder.
        data_dir: Folder of prepared datasets.

    Raises:
        UserError: If a setting cannot be tuned, or an experiment cannot work.
    """
    settings = parse_tuned_settings(over)
    table = to_table(source) if isinstance(source, Experiment) else read_table(source)
    if "grid" in table:
        raise UserError(
            f"an experiment to tune must be one run, but {str(source)!r} has a [grid]; give a file without one"
        )
    _reject_fixed_settings(settings, overrides)
    held_back = None if _has_validation(table, overrides, data_dir) else validation
    if held_back is not None:
        overrides = [*overrides, f"{VALIDATION}={held_back}"]
    names = [*dict.fromkeys(algorithms)] or [_read_algorithm_name(table, overrides)]
    _reject_other_algorithms(settings, names)
    plans = tuple(_plan_algorithm(table, overrides, algorithm, settings) for algorithm in names)
    _reject_unused_settings(settings, plans)
    first = plans[0].list_examples()[0]
    return TuningPlan(name or slugify(f"{first.name}-tune"), plans, trials, seeds, first.seed, held_back)


def make_file_name(algorithm: str) -> str:
    """Return the part of a file's name that stands for an algorithm.

    >>> make_file_name("my_module:Mine")
    'my_module-mine'
    """
    return slugify(algorithm.lower())


def _plan_algorithm(
    table: Table, overrides: Sequence[str], algorithm: str, settings: Sequence[TunedSetting]
) -> AlgorithmPlan:
    hyperparameters = [field.name for field in dataclasses.fields(find_algorithm(algorithm))]
    space = choose_space(settings, algorithm, hyperparameters)
    if not space:
        raise UserError(
            f"every algorithm must have a setting to tune, but none of those given applies to {algorithm!r}; add one, "
            f"such as --over {algorithm}:client.lr=0.01..1:log"
        )
    plan = AlgorithmPlan(algorithm, apply_overrides(table, overrides, algorithm), space)
    try:
        plan.list_examples()
    except UserError as error:
        raise UserError(f"every value of a setting to tune must work for {algorithm!r}: {error}") from None
    return plan


def _has_validation(table: Table, overrides: Iterable[str], data_dir: Path | None) -> bool:
    """Return whether the experiment holds back validation data, or its data come with some."""
    data = apply_overrides(table, overrides).get("data", {})
    source = data.get("source", "digits") if isinstance(data, dict) else None
    if not isinstance(source, str) or data.get("validation") is not None:
        return True  # the schema reports what is not a table or not a text
    return load_source(source, data_dir).validation is not None


def _read_algorithm_name(table: Table, overrides: Iterable[str]) -> str:
    return get_algorithm_name(read_experiment(apply_overrides(table, overrides)).algorithm)


def _reject_fixed_settings(settings: Sequence[TunedSetting], overrides: Iterable[str]) -> None:
    fixed = {override.partition("=")[0].strip() for override in overrides}
    if both := next((setting.path for setting in settings if setting.path in fixed), None):
        raise UserError(f"a setting to tune must not be set, but {both!r} is; leave out one of the two")


def _reject_other_algorithms(settings: Sequence[TunedSetting], names: Sequence[str]) -> None:
    for setting in settings:
        if setting.algorithm and setting.algorithm not in names:
            raise UserError(
                f"{setting.algorithm}:{setting.path} must name an algorithm that is tuned; "
                f"{suggest(setting.algorithm, names)}"
            )


def _reject_unused_settings(settings: Sequence[TunedSetting], plans: Sequence[AlgorithmPlan]) -> None:
    for setting in settings:
        if not any(setting.path in plan.space for plan in plans):
            names = ", ".join(plan.algorithm for plan in plans)
            raise UserError(f"a setting to tune must exist, but none of {names} has {setting.path!r}")
