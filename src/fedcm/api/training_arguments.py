"""Read the arguments of a training that are Python objects, and reject those that cannot work."""

import dataclasses
from collections.abc import Mapping, Sequence
from numbers import Integral, Real
from types import MappingProxyType
from typing import Any, cast

import numpy as np

from fedcm.api.arguments import to_python
from fedcm.config.choices import IN_MEMORY
from fedcm.config.conditions import make_path_absolute
from fedcm.config.experiment import reject_topology_with_server
from fedcm.config.schema import Section, read_section
from fedcm.config.sections import PrivacySection, StopSection
from fedcm.core.algorithm import Algorithm
from fedcm.core.attacks import Attack
from fedcm.core.conditions.availability import Availability
from fedcm.core.losses import Loss, find_loss
from fedcm.core.participation import Everyone, FixedSize, Independent, Participation
from fedcm.core.privacy.budget import Privacy
from fedcm.core.stopping import Stop
from fedcm.core.topology import Topology
from fedcm.data.client_tests import ClientTests
from fedcm.data.dataset import ClientsOnDemand
from fedcm.data.sources.arrays import join_clients
from fedcm.data.user_data import convert_to_examples
from fedcm.data.work.stragglers import Stragglers
from fedcm.errors import UserError
from fedcm.system.code_hash import hash_function
from fedcm.system.formatting import describe_value


def read_settings(
    kind: type[Section], table: dict[str, Any], arguments: Mapping[str, str] = MappingProxyType({})
) -> Any:
    """Read a section; an error names the argument instead of the section's key."""
    try:
        return read_section(kind, table)
    except UserError as error:
        key, space, rest = str(error).removeprefix(": ").partition(" ")
        raise UserError(f"{arguments.get(key, key)}{space}{rest}") from None


def name_object(value: Any) -> str | None:
    """Return the name that stands for a Python object in an experiment; a string stands for itself."""
    if value is None or isinstance(value, str):
        return value
    return f"{IN_MEMORY}:{getattr(value, '__qualname__', type(value).__name__)}"


def hash_functions(given: Mapping[str, Any], metrics: Mapping[str, Any]) -> dict[str, str]:
    """Return the checksum of each function among the arguments, by its argument; see `fedcm.system.code_hash`.

    Args:
        given: The arguments of a training.
        metrics: The metrics that are functions, by their names.
    """
    names = ("loss", "collate", "lr_schedule", "step_schedule", "server_lr_schedule", "epochs", "steps")
    functions = {name: getattr(given.get(name), "function", given.get(name)) for name in names}
    for number, change in enumerate(given.get("augment") or ()):
        functions[f"augment[{number}]"] = change.get("name") if isinstance(change, Mapping) else change
    functions |= {f"metric {name.removeprefix(f'{IN_MEMORY}:')}": metric for name, metric in metrics.items()}
    return {use: hash_function(function) for use, function in functions.items() if callable(function)}


def read_loss(loss: Any) -> Loss | None:
    if loss is None or callable(loss):
        return cast("Loss | None", loss)
    if isinstance(loss, str):
        return find_loss(loss)
    raise UserError(f"loss must be a function (outputs, labels) or the name of one, got {describe_value(loss)}")


def read_client_tests(value: Any, clients: Sequence[Any] | ClientsOnDemand) -> float | ClientTests | None:
    """Return the share of each client's examples for its own test data, or the given test data of each client."""
    plain = to_python(value)
    if value is None or isinstance(plain, float):
        return plain
    if isinstance(clients, ClientsOnDemand) or isinstance(value, str) or not isinstance(value, Sequence):
        raise UserError(
            "client_tests must be a share above 0 and below 1, or a list with the test data of each client, and needs "
            f"clients in a list, got {describe_value(value)}"
        )
    if len(value) != len(clients) or all(one is None for one in value):
        raise UserError(
            f"client_tests must have one entry for each of the {len(clients)} clients (None for a client without), and "
            f"at least one with data, got {len(value)} entries"
        )
    given = [None if one is None else convert_to_examples(one, where="client_tests") for one in value]
    known = [one for one in given if one is not None]
    joined = join_clients("client_tests", known, [str(k) for k in range(len(known))], None).train
    ends = np.cumsum([0 if one is None else one.size for one in given])
    return ClientTests(
        [np.arange(end - (0 if one is None else one.size), end) for one, end in zip(given, ends, strict=True)], joined
    )


def read_stop(stop: Any) -> StopSection:
    if stop is None:
        return StopSection()
    if not isinstance(stop, Stop):
        raise UserError(f"stop must be a fedcm.Stop, such as fedcm.Stop(patience=5), got {describe_value(stop)}")
    given = {key: value for key, value in dataclasses.asdict(stop).items() if value is not None}
    section = read_settings(StopSection, to_python(given))
    if section.patience is None and section.target is None:
        raise UserError("stop must have patience, target or both, such as fedcm.Stop(patience=5)")
    return section


def read_privacy(privacy: Any) -> PrivacySection:
    if privacy is None:
        return PrivacySection()
    if not isinstance(privacy, Privacy):
        raise UserError(
            "privacy must be a fedcm.Privacy, such as fedcm.Privacy(epsilon=8.0, clip=0.5), got "
            f"{describe_value(privacy)}"
        )
    given = {field.name: getattr(privacy, field.name) for field in dataclasses.fields(privacy)}
    section = read_settings(PrivacySection, {key: to_python(value) for key, value in given.items()})
    if not section.is_on:
        raise UserError(
            "privacy must have epsilon, noise_multiplier or both, such as fedcm.Privacy(epsilon=8.0, clip=0.5)"
        )
    return section


def read_validation(value: Any) -> tuple[float | None, Any | None]:
    """Return the share of the training data to hold back, and given validation examples."""
    plain = to_python(value)
    if isinstance(plain, bool | int | str):
        raise UserError(
            "validation must be a share above 0 and below 1, or examples in the form of one client, got "
            f"{describe_value(plain)}"
        )
    return (plain, None) if isinstance(plain, float) else (None, value)


def check_topology(topology: Topology | None, algorithm: Algorithm[Any, Any, Any, Any]) -> Topology | None:
    if topology is not None and not isinstance(topology, Topology):
        raise UserError(f"topology must be a graph such as fedcm.Ring(), got {describe_value(topology)}")
    if topology is not None:
        reject_topology_with_server(algorithm)
    return topology


def check_availability(availability: Availability | None) -> Availability | None:
    if availability is not None and (isinstance(availability, type) or not isinstance(availability, Availability)):
        raise UserError(
            "availability must be an availability such as fedcm.DayNight(period=24, share=0.5), got "
            f"{describe_value(availability)}"
        )
    return make_path_absolute(availability)


def check_attack(attack: Attack | None) -> Attack | None:
    if attack is not None and not isinstance(attack, Attack):
        raise UserError(f"attack must be an attack such as fedcm.SignFlip(clients=0.2), got {describe_value(attack)}")
    return attack


def check_stragglers(stragglers: Stragglers | None) -> Stragglers | None:
    if stragglers is not None and not isinstance(stragglers, Stragglers):
        raise UserError(
            f"stragglers must be speeds such as fedcm.Stragglers(deadline=10.0), got {describe_value(stragglers)}"
        )
    return make_path_absolute(stragglers)


def read_participation(value: float | int | Participation) -> Participation:
    if isinstance(value, Integral) and not isinstance(value, bool):
        clients = int(value)
        if clients < 1:
            raise UserError(f"participation must be at least 1 client, or a probability above 0, got {clients}")
        return FixedSize(clients)
    if isinstance(value, Real) and not isinstance(value, bool):
        probability = float(value)
        if not 0 < probability <= 1:
            raise UserError(
                f"participation must be a probability above 0 and at most 1, or a whole number of clients, got {value}"
            )
        return Everyone() if probability == 1.0 else Independent(probability)
    if isinstance(value, bool | float | int) or not hasattr(value, "cohort"):
        raise UserError(
            f"participation must be a probability, a number of clients or a Participation, got {describe_value(value)}"
        )
    return value
