"""An experiment: its schema, read from TOML, changed by overrides, refused in a sentence where it cannot work."""

import copy
import dataclasses
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import tomli_w
from pydantic import Field, PlainSerializer

from fedcm.algorithm import messages
from fedcm.algorithms.lookup import algorithm_name, read_algorithm
from fedcm.data.partition import SPLITS
from fedcm.refusal import Refused, nearest
from fedcm.sampling import PARTICIPATION
from fedcm.tables import Section, read_choice, read_section

Rate = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=1)]
Table = dict[str, Any]


class Data(Section):
    source: str = "digits"  # a known name, an .npz, a folder with one .npz a client, or package.module:function


class Client(Section):
    epochs: Count | None = None  # passes over the client's data in a round; 1 unless steps are given
    steps: Count | None = None  # instead of epochs: exactly so many steps
    batch_size: Count = 50
    lr: Rate = 0.1  # η_l of round 0
    lr_decay: Annotated[float, Field(gt=0, le=1)] = 1.0  # η_l is multiplied by this after every round
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    weight_decay_at: Literal["loss", "step"] = "loss"  # inside the client's gradient, or after the algorithm's mix
    clip: Rate | None = None  # greatest norm of the client's own gradient


class Server(Section):
    lr: Rate = 1.0  # 1.0 = plain averaging
    weights: Literal["clients", "examples"] = "clients"  # what counts equally in the mean


class Evaluation(Section):
    every: Count = 10  # rounds; the last round is always evaluated
    targets: list[Annotated[float, Field(gt=0, lt=1)]] = Field(default=[0.5, 0.6, 0.7, 0.8, 0.9])  # accuracies to reach


class Checkpoints(Section):
    every: Count = 10  # rounds
    keep: Count = 3  # the newest so many


class Model(Section):
    name: str
    options: Table = Field(default={})


class Experiment(Section):
    """What `fedcm run` runs. Tables with a choice in them hold the chosen record."""

    name: Annotated[str, Field(min_length=1, max_length=100)]
    rounds: Count
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    data: Data = Data()
    split: Any
    participation: Any
    model: Model
    algorithm: Annotated[Any, PlainSerializer(dataclasses.asdict)]
    client: Client = Client()
    server: Server = Server()
    evaluation: Evaluation = Evaluation()
    checkpoints: Checkpoints = Checkpoints()


SECTIONS: dict[str, type[Section]] = {
    "data": Data,
    "client": Client,
    "server": Server,
    "evaluation": Evaluation,
    "checkpoints": Checkpoints,
}
_CHOICES = ("split", "participation", "model", "algorithm")
_KEYS = ("name", "rounds", "seed", *SECTIONS, *_CHOICES, "for")


def read_table(path: Path) -> Table:
    """The TOML file as it stands."""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise Refused(f"there is no experiment {str(path)!r}") from None
    except IsADirectoryError:
        raise Refused(f"{str(path)!r} is a folder; give an experiment's .toml file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise Refused(f"{str(path)!r} cannot be read: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise Refused(f"{str(path)!r} is not valid TOML: {error}") from None
    table.setdefault("name", path.stem)
    return table


def override(table: Table, settings: Iterable[str]) -> Table:
    """`path=value` settings put in, in their order; a value is TOML, or else a plain string.

    Another `algorithm.name` brings its own settings and those of its `[for.NAME]` table.

    >>> override({"client": {"lr": 0.1}}, ["client.lr=0.05", "data.source=cifar10"])
    {'client': {'lr': 0.05}, 'data': {'source': 'cifar10'}}
    """
    table = copy.deepcopy(table)
    for setting in settings:
        path, equals, text = setting.partition("=")
        keys = path.strip().split(".")
        if not equals or not all(keys):
            raise Refused(f"--set takes path=value, such as client.lr=0.05, got {setting!r}")
        value = _value(text.strip())
        if keys == ["algorithm", "name"]:
            table = with_algorithm(table, value)
            continue
        inner = table
        for key in keys[:-1]:
            inner = inner.setdefault(key, {})
            if not isinstance(inner, dict):
                raise Refused(f"--set {path}: {key!r} is a value, not a table")
        inner[keys[-1]] = value
    return table


def with_algorithm(table: Table, name: str) -> Table:
    """The same experiment with another algorithm: its defaults, and what `[for.NAME]` says of any setting."""
    table = copy.deepcopy(table)
    if table.get("algorithm", {}).get("name") != name:
        table["algorithm"] = {"name": name}
    _merge(table, table.get("for", {}).get(name, {}))
    return table


def read(table: Mapping[str, Any]) -> Experiment:
    """The experiment that a table describes, every default filled in."""
    for key in table:
        if key not in _KEYS:
            raise Refused(f"there is no setting {key!r}; {nearest(key, _KEYS)}")
    fields: Table = {key: table[key] for key in ("name", "rounds", "seed") if key in table}
    for key, kind in SECTIONS.items():
        fields[key] = read_section(kind, table.get(key, {}), key)
    fields["split"] = read_choice(SPLITS, table.get("split", {"kind": "natural"}), "kind", "split")
    fields["participation"] = read_choice(
        PARTICIPATION, table.get("participation", {"kind": "everyone"}), "kind", "participation"
    )
    fields["model"] = _read_model(table.get("model"))
    fields["algorithm"] = read_algorithm(table.get("algorithm"))
    experiment = read_section(Experiment, fields)
    _refuse_contradictions(experiment)
    return experiment


def resolved(experiment: Experiment) -> Table:
    """The experiment as a table that reads back as the same experiment."""
    table: Table = {"name": experiment.name, "rounds": experiment.rounds, "seed": experiment.seed}
    table |= {key: getattr(experiment, key).model_dump(exclude_none=True) for key in SECTIONS}
    for key, kinds in (("split", SPLITS), ("participation", PARTICIPATION)):
        chosen = getattr(experiment, key)
        kind = next(name for name, kind in kinds.items() if kind is type(chosen))
        table[key] = {"kind": kind, **dataclasses.asdict(chosen)}
    table["model"] = {"name": experiment.model.name, **experiment.model.options}
    settings = {key: value for key, value in dataclasses.asdict(experiment.algorithm).items() if value is not None}
    table["algorithm"] = {"name": algorithm_name(experiment.algorithm), **settings}
    return table


def to_toml(experiment: Experiment) -> str:
    return tomli_w.dumps(resolved(experiment))


def _read_model(table: Any) -> Model:
    if not isinstance(table, Mapping) or "name" not in table:
        raise Refused(
            "model.name must be given: a bundled model (`fedcm models` lists them), or 'package.module:factory'"
        )
    options = {key: value for key, value in table.items() if key != "name"}
    return read_section(Model, {"name": table["name"], "options": options}, "model")


def _refuse_contradictions(experiment: Experiment) -> None:
    if experiment.client.steps is not None and experiment.client.epochs is not None:
        raise Refused("client.steps and client.epochs exclude each other; give one of them")
    keeps = getattr(messages(type(experiment.algorithm)).kept, "_fields", ())
    if experiment.server.weights == "examples" and keeps:
        raise Refused(
            f"the algorithm {algorithm_name(experiment.algorithm)!r} must weigh clients equally, because its server "
            'tracks the plain mean of what clients keep; set server.weights = "clients"'
        )


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _merge(table: Table, changes: Mapping[str, Any]) -> None:
    for key, value in changes.items():
        if isinstance(value, Mapping) and isinstance(table.get(key), dict):
            _merge(table[key], value)
        else:
            table[key] = copy.deepcopy(value)
