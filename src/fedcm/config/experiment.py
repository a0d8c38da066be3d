"""Read an experiment from a table, reject what cannot work, and write it back."""

import dataclasses
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import tomli_w

from fedcm.algorithms import ALGORITHMS, GROUPS
from fedcm.algorithms.registry import find_algorithm, get_algorithm_name
from fedcm.config.choices import IN_MEMORY, describe_choice
from fedcm.config.conditions import (
    describe_fields,
    read_availability,
    read_stragglers,
    reject_conditions,
)
from fedcm.config.overrides import Table, apply_overrides, read_table, select_algorithm
from fedcm.config.robustness import read_attack, reject_robustness
from fedcm.config.schema import read_choice, read_dataclass, read_section
from fedcm.config.sections import (
    RESERVED_MODEL_KEYS,
    SECTIONS,
    ClientSection,
    DataSection,
    Experiment,
    ModelSection,
    ServerSection,
)
from fedcm.core.algorithm import Algorithm, has_client_state, is_decentralised
from fedcm.core.attacks import ATTACKS
from fedcm.core.conditions.availability import AVAILABILITY
from fedcm.core.contract import find_violations
from fedcm.core.contract.costs import measure_costs
from fedcm.core.local.optimizers import OPTIMIZERS
from fedcm.core.losses import find_loss
from fedcm.core.participation import PARTICIPATION, Everyone, FixedSize, Independent, Participation
from fedcm.core.topology import TOPOLOGIES, Adjacency, Topology
from fedcm.data import SOURCES
from fedcm.data.augmentation import make_augment
from fedcm.data.partition import SPLITS
from fedcm.errors import UserError, suggest
from fedcm.models import reject_unknown_model
from fedcm.system.user_warnings import LongWarmupWarning, warn_user

_LEAST_RATE = 1e-12  # below it a float32 step changes nothing, and a direction divided by it means nothing
_GREATEST_RATE = 1e6
_CHOICES = ("split", "participation", "topology", "availability", "stragglers", "attack", "model", "algorithm")
_KEYS = ("name", "rounds", "seed", *SECTIONS, *_CHOICES, "for")


def load_experiment_file(path: Path, overrides: Iterable[str] = (), algorithm: str | None = None) -> Experiment:
    """Load the experiment of a TOML file.

    Args:
        path: The file. Its `[for.NAME]` tables are checked too.
        overrides: Settings to change, each `path=value`.
        algorithm: The algorithm to use instead of the file's own.

    Raises:
        UserError: If the file cannot be read, or the experiment cannot work.
    """
    table = read_table(path)
    if "grid" in table:
        raise UserError(f"{str(path)!r} describes several runs; run them with `fedcm compare {path}`")
    for name in table["for"] if isinstance(table.get("for"), dict) else ():
        if name in ALGORITHMS:
            try:
                read_experiment(select_algorithm(table, name))
            except UserError as error:
                raise UserError(f"[for.{name}]: {error}") from None
    table = apply_overrides(table, overrides, algorithm)
    reject_empty_stop(table)
    return read_experiment(table)


def reject_empty_stop(table: Mapping[str, Any]) -> None:
    """Raise UserError if a table has a `[stop]` without settings; no `[stop]` at all means that no run ends early."""
    if table.get("stop") == {}:
        raise UserError(
            "stop must have patience, target or both, such as stop.patience = 5, got an empty table; leave [stop] out "
            "for runs that never end early"
        )


def read_experiment(table: Mapping[str, Any]) -> Experiment:
    """Return the experiment that a table describes, with all defaults filled in.

    Raises:
        UserError: If the experiment cannot work.
    """
    for key in table:
        if key not in _KEYS:
            raise UserError(f"there is no setting {key!r}; {suggest(key, _KEYS)}")
    fields: Table = {key: table[key] for key in ("name", "rounds", "seed") if key in table}
    for key, kind in SECTIONS.items():
        fields[key] = read_section(kind, table.get(key, {}), key)
    data: DataSection = fields["data"]
    fields["data"] = data.model_copy(update={"source": _make_absolute(data.source)})
    if data.augment is not None:
        make_augment(data.augment)  # an unknown change is an error now, not after the data have been read
    fields["split"] = read_choice(SPLITS, table.get("split", {"kind": "natural"}), "kind", "split")
    fields["participation"] = read_choice(
        PARTICIPATION, table.get("participation", {"kind": "everyone"}), "kind", "participation"
    )
    fields["model"] = _read_model(table.get("model"))
    fields["algorithm"] = read_algorithm(table.get("algorithm"))
    _reject_broken_contract(fields["algorithm"])
    fields["topology"] = _read_topology(table.get("topology"), fields["algorithm"])
    fields["availability"] = read_availability(table.get("availability"))
    fields["stragglers"] = read_stragglers(table.get("stragglers"))
    fields["attack"] = read_attack(table.get("attack"))
    experiment = read_section(Experiment, fields)
    _reject_vanishing_rate(experiment)
    reject_unusable_rates(experiment)
    reject_unequal_weights(experiment.algorithm, experiment.server)
    reject_robustness(experiment)
    reject_server_lr(experiment.algorithm, experiment.server)
    reject_step_schedule(experiment.algorithm, experiment.client)
    reject_optimizer(experiment.algorithm, experiment.client)
    reject_absent_clients(experiment.algorithm, experiment.participation)
    reject_conditions(experiment.algorithm, experiment.availability, experiment.stragglers)
    _reject_rounded_reports(experiment)
    return experiment


def to_table(experiment: Experiment) -> Table:
    """Return a table that `read_experiment` reads as the same experiment."""
    table: Table = {"name": experiment.name, "rounds": experiment.rounds, "seed": experiment.seed}
    table |= {key: getattr(experiment, key).model_dump(exclude_none=True) for key in SECTIONS}
    if not table["stop"]:
        del table["stop"]  # no run ends early
    for key, kinds in (("split", SPLITS), ("participation", PARTICIPATION)):
        table[key] = describe_choice(getattr(experiment, key), kinds)
    for key, kinds in (("topology", TOPOLOGIES), ("availability", AVAILABILITY)):
        if getattr(experiment, key) is not None:
            table[key] = describe_choice(getattr(experiment, key), kinds)
    if experiment.attack is not None:
        table["attack"] = describe_choice(experiment.attack, ATTACKS)
    if experiment.stragglers is not None:
        table["stragglers"] = describe_fields(experiment.stragglers)
    table["model"] = experiment.model.to_table()
    settings = {key: value for key, value in dataclasses.asdict(experiment.algorithm).items() if value is not None}
    table["algorithm"] = {"name": get_algorithm_name(experiment.algorithm), **settings}
    return table


def to_toml(experiment: Experiment) -> str:
    """Return the experiment as TOML text.

    Raises:
        UserError: If a setting has a value that TOML cannot express.
    """
    try:
        return tomli_w.dumps(to_table(experiment))
    except (TypeError, ValueError, RecursionError) as error:
        raise UserError(f"every setting must have a value that TOML can express: {error}") from None


def read_algorithm(table: Any) -> Algorithm[Any, Any, Any, Any]:
    """Build the algorithm that an `[algorithm]` table describes.

    Raises:
        UserError: If there is no such algorithm, or a hyperparameter is unknown or out of range.
    """
    if not isinstance(table, Mapping) or not isinstance(table.get("name"), str):
        raise UserError(f"algorithm.name must be given: one of {', '.join(ALGORITHMS)}, or 'package.module:Class'")
    name = table["name"]
    kind = find_algorithm(name)
    return read_dataclass(kind, {key: value for key, value in table.items() if key != "name"}, "algorithm", name)


def make_algorithm(name: str, hyperparameters: Iterable[str] = ()) -> Algorithm[Any, Any, Any, Any]:
    """Build an algorithm.

    Args:
        name: A bundled name, or `package.module:Class`.
        hyperparameters: Those that differ from the defaults, each `name=value`.

    Raises:
        UserError: If there is no such algorithm, or a hyperparameter is wrong.
    """
    table = apply_overrides({"algorithm": {"name": name}}, [f"algorithm.{setting}" for setting in hyperparameters])
    return read_algorithm(table["algorithm"])


def _reject_broken_contract(algorithm: Algorithm[Any, Any, Any, Any]) -> None:
    """Raise UserError if a user's own algorithm breaks the contract; the tests check the bundled ones."""
    if type(algorithm) not in ALGORITHMS.values() and (violations := find_violations(algorithm)):
        name = get_algorithm_name(algorithm)
        raise UserError(
            f"the algorithm {name!r} breaks the contract: {violations[0]}; `fedcm check {name}` lists all violations"
        )


def _read_topology(table: Any, algorithm: Algorithm[Any, Any, Any, Any]) -> Topology | None:
    if is_decentralised(algorithm):
        topology = read_choice(TOPOLOGIES, {"kind": "ring"} if table is None else table, "kind", "topology")
        return Adjacency(_make_absolute(topology.file)) if isinstance(topology, Adjacency) else topology
    if table is not None:
        reject_topology_with_server(algorithm)
    return None


def _read_model(table: Any) -> ModelSection:
    if not isinstance(table, Mapping) or "name" not in table:
        raise UserError(
            "model.name must be given: a bundled model (`fedcm models` lists them), or 'package.module:factory'"
        )
    if str(table["name"]).startswith(f"{IN_MEMORY}:"):
        raise UserError(
            f"the model {table['name']!r} is a Python object of the program that made this experiment; run or resume "
            "it there with fedcm.run or fedcm.resume"
        )
    reserved = {key: value for key, value in table.items() if key in RESERVED_MODEL_KEYS}
    options = {key: value for key, value in table.items() if key not in RESERVED_MODEL_KEYS}
    model = read_section(ModelSection, reserved | {"options": options}, "model")
    if not model.weights_strict and model.weights is None:
        raise UserError("model.weights_strict = false needs model.weights, a file to load; give one, or leave it out")
    reject_unknown_model(model.name)  # now, rather than after the data have been read
    if model.loss is not None:
        find_loss(model.loss)
    return model.model_copy(update={"weights": make_weights_absolute(model.weights)})


def make_weights_absolute(weights: str | None) -> str | None:
    """Return the absolute path of a file of weights, so that the run can be resumed from another folder."""
    try:
        return None if weights is None else str(Path(weights).expanduser().absolute())
    except (OSError, RuntimeError, ValueError):  # an unknown ~user; loading the weights reports it
        return weights


def _make_absolute(source: str) -> str:
    """Return the absolute path of a file or folder, so that the run can be resumed from another folder."""
    try:
        path = Path(source).expanduser()
        return str(path.absolute()) if source not in SOURCES and path.exists() else source
    except (OSError, RuntimeError, ValueError):  # not a path at all; loading the data reports it
        return source


def reject_unequal_weights(algorithm: Algorithm[Any, Any, Any, Any], server: ServerSection) -> None:
    """Raise UserError if an algorithm with client state weights clients by their number of examples."""
    if server.weights == "examples" and has_client_state(algorithm):
        raise UserError(
            f"{get_algorithm_name(algorithm)!r} must weigh clients equally, because it relies on the plain mean of the "
            'client states; set server.weights = "clients"'
        )


def reject_topology_with_server(algorithm: Algorithm[Any, Any, Any, Any]) -> None:
    """Raise UserError if a graph is given for an algorithm that has a server."""
    if not is_decentralised(algorithm):
        raise UserError(
            f"topology must be left out, because {get_algorithm_name(algorithm)!r} has a server; decentralised "
            f"algorithms are {', '.join(GROUPS['decentralised'])}"
        )


def reject_server_lr(algorithm: Algorithm[Any, Any, Any, Any], server: ServerSection) -> None:
    """Raise UserError if an algorithm that has no server learning rate is given one, or a schedule of it."""
    if algorithm.has_server_lr and not is_decentralised(algorithm):
        return
    name = get_algorithm_name(algorithm)
    if server.lr != 1:
        raise UserError(f"{name!r} has no server learning rate, so server.lr must be 1, got {server.lr}")
    if server.schedule is not None:
        raise UserError(f"{name!r} has no server learning rate, so server.schedule must be left out")


def reject_step_schedule(algorithm: Algorithm[Any, Any, Any, Any], client: ClientSection) -> None:
    """Raise UserError if an algorithm that needs local steps of equal length is given factors of the steps."""
    if client.step_schedule is not None and not algorithm.has_step_factors:
        raise UserError(
            f"{get_algorithm_name(algorithm)!r} with these settings needs local steps of equal length, so "
            "client.step_schedule must be left out"
        )


def reject_absent_clients(
    algorithm: Algorithm[Any, Any, Any, Any], participation: Participation, population: int | None = None
) -> None:
    """Raise UserError if an algorithm needs all clients in every round, and some would be absent.

    Args:
        algorithm: The algorithm.
        participation: Who takes part.
        population: The number of clients; None if it is not known yet.
    """
    if not (algorithm.needs_all_clients or is_decentralised(algorithm)):
        return
    if isinstance(participation, FixedSize) and population is None:
        return  # the number of clients decides
    if not (isinstance(participation, Everyone) or participation in (Independent(1.0), FixedSize(population or 1))):
        raise UserError(
            f"{get_algorithm_name(algorithm)!r} must have every client in every round, got {participation}; set "
            'participation.kind = "everyone"'
        )


def _reject_rounded_reports(experiment: Experiment) -> None:
    if experiment.federation.uplink != "exact" and has_client_state(experiment.algorithm):
        raise UserError(
            f"reports of {get_algorithm_name(experiment.algorithm)!r} must not be rounded, because its server tracks "
            'the mean of the client states; set federation.uplink = "exact"'
        )


def _reject_vanishing_rate(experiment: Experiment) -> None:
    client, last = experiment.client, experiment.rounds - 1
    if client.lr * client.lr_decay**last < _LEAST_RATE:
        raise UserError(
            f"client.lr must stay above {_LEAST_RATE:g} to the last round, but {client.lr} · {client.lr_decay}^{last} "
            "does not; raise client.lr_decay or take fewer rounds"
        )


def reject_optimizer(algorithm: Algorithm[Any, Any, Any, Any], client: ClientSection) -> None:
    """Raise UserError if an algorithm mixes full gradients with the gradients of steps that an optimiser maps."""
    if client.optimizer is not None and not client.optimizer.is_identity and measure_costs(algorithm).full_gradients:
        name = describe_choice(client.optimizer, OPTIMIZERS, "name")["name"]
        raise UserError(
            f"{get_algorithm_name(algorithm)!r} with these settings compares the gradients of its steps with gradients "
            f"over all data of a client, which client.optimizer does not change, so it needs plain sgd, got {name!r}"
        )


def reject_unusable_rates(experiment: Experiment) -> None:
    """Raise UserError if a schedule makes a learning rate vanish or explode before the last round."""
    client, server = experiment.client, experiment.server
    for section, rate, schedule in (("client", client.lr, client.schedule), ("server", server.lr, server.schedule)):
        if schedule is None:
            continue
        for round in schedule.list_extremes(experiment.rounds):
            own = rate * schedule.compute_factor(round, experiment.rounds)
            if not _LEAST_RATE <= own <= _GREATEST_RATE:
                raise UserError(
                    f"{section}.lr times the factor of {section}.schedule must stay between {_LEAST_RATE:g} and "
                    f"{_GREATEST_RATE:g}, but it is {own:g} in round {round}; change one of them"
                )


def reject_long_warmups(experiment: Experiment) -> None:
    """Raise UserError if a warm-up covers the whole run, although the schedule depends on the number of rounds.

    For other schedules it is a warning, because such a run may be continued with more rounds.
    """
    for section, schedule in (("client", experiment.client.schedule), ("server", experiment.server.schedule)):
        if schedule is None or schedule.horizon is not None or schedule.warmup < experiment.rounds:
            continue
        sentence = (
            f"{section}.schedule.warmup must be below the number of rounds, {experiment.rounds}, or the whole run is a "
            f"warm-up, got {schedule.warmup}; shorten the warm-up or take more rounds"
        )
        if schedule.depends_on_total:
            raise UserError(sentence)
        warn_user(sentence.replace("must", "should"), LongWarmupWarning)
