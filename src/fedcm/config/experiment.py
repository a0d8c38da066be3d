"""An experiment: its schema, read from a table, refused in a sentence where it cannot work."""

import dataclasses
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import tomli_w
from pydantic import AfterValidator, Field, model_validator

from fedcm.algorithms import ALGORITHMS
from fedcm.algorithms.registry import algorithm_name, find_algorithm
from fedcm.config.overrides import apply_overrides, read_table, select_algorithm
from fedcm.config.schema import Section, read_choice, read_dataclass, read_section
from fedcm.core.algorithm import Algorithm, messages
from fedcm.core.contract import find_violations
from fedcm.core.participation import PARTICIPATION
from fedcm.data import SOURCES
from fedcm.data.partition import SPLITS
from fedcm.errors import UserError, suggest
from fedcm.models import reject_unknown_model

Rate = Annotated[float, Field(gt=0, le=1e6)]
Count = Annotated[int, Field(ge=1, le=10**9)]
Link = Literal["exact", "float16", "bfloat16"]  # a vector as it is, or rounded to half the bytes
Table = dict[str, Any]


class DataSection(Section):
    # a known name, an .npz, a folder with one .npz a client, or package.module:function
    source: Annotated[str, Field(min_length=1)] = "digits"


class ClientSection(Section):
    epochs: Count | None = None  # passes over the client's data in a round; 1 unless steps are given
    steps: Count | None = None  # instead of epochs: exactly so many steps
    batch_size: Count = 50
    lr: Rate = 0.1  # η_l of round 0
    lr_decay: Annotated[float, Field(gt=0, le=1)] = 1.0  # η_l is multiplied by this after every round
    weight_decay: Annotated[float, Field(ge=0, le=1e6)] = 0.0
    weight_decay_at: Literal["loss", "step"] = "loss"  # inside the client's gradient, or after the algorithm's mix
    clip: Rate | None = None  # greatest norm of the client's own gradient

    @model_validator(mode="after")
    def _one_measure(self) -> "ClientSection":
        if self.steps is not None and self.epochs is not None:
            raise ValueError("steps and epochs exclude each other; give one of them")
        return self


class ServerSection(Section):
    lr: Rate = 1.0  # 1.0 = plain averaging
    weights: Literal["clients", "examples"] = "clients"  # what counts equally in the mean


class EvaluationSection(Section):
    every: Count = 10  # rounds; the last round is always evaluated
    targets: list[Annotated[float, Field(gt=0, lt=1)]] = Field(default=[0.5, 0.6, 0.7, 0.8, 0.9])  # accuracies to reach


class CheckpointSection(Section):
    every: Count = 10  # rounds
    keep: Count = 3  # the newest so many


class EngineSection(Section):
    """What is "auto" is found by trying, before the first round, and stands in the run's own experiment."""

    stack: Annotated[Any, AfterValidator(lambda given: _stack(given))] = "auto"  # clients that train at once
    layout: Literal["auto", "channels_last", "contiguous"] = "auto"  # of images in memory
    compile: Literal["auto", "on", "off"] = "auto"  # the model, by torch.compile
    device: Annotated[str, Field(pattern=r"^(cpu|cuda(:\d+)?)$")] = "cpu"
    precision: Literal["float32", "float64", "bf16"] = "float32"  # bf16: of the model's arithmetic, by autocast
    client_states: Literal["exact", "bfloat16"] = "exact"  # what clients keep, as it is or in half the bytes


def _stack(given: Any) -> Any:
    if given != "auto" and not (isinstance(given, int) and not isinstance(given, bool) and 1 <= given <= 4096):
        raise ValueError(f'must be "auto" or a whole number from 1 to 4096, got {given!r}')
    return given


class FederationSection(Section):
    """How rounds go between real sites; a simulation passes over it."""

    sites: list[str] = Field(default=[])  # who takes part; whoever is connected at the start unless given
    deadline: Annotated[int, Field(ge=1, le=10**7)] = 600  # seconds for a round
    quorum: Annotated[float, Field(gt=0, le=1)] = 0.5  # of those asked: with fewer answers a round changes nothing
    wait: Annotated[int, Field(ge=0, le=10**7)] = 60  # seconds for the others once the quorum has answered
    drop_after: Count = 3  # misses in a row, after which a site is not asked
    retry_after: Count = 10  # rounds, after which it is asked again
    give_up_after: Count = 5  # rounds in a row without a quorum
    norm_bound: Rate | None = None  # greatest norm of a vector that a site reports
    downlink: Link = "exact"  # how the parameters go down
    momentum: Link = "exact"  # how every other vector goes down
    uplink: Link = "exact"  # how reports come up
    classes: Count | None = None  # of the labels; the largest that any site has unless given
    mean: list[float] | None = None  # to normalise bytes with, a number a channel; from the sites' sums unless given
    std: list[Rate] | None = None

    @model_validator(mode="after")
    def _both_or_neither(self) -> "FederationSection":
        if (self.mean is None) != (self.std is None) or len(self.mean or ()) != len(self.std or ()):
            raise ValueError("mean and std go together, a number a channel each")
        if len(set(self.sites)) < len(self.sites):
            raise ValueError(f"every site must be named once, got {self.sites}")
        return self


class CellSection(Section):
    """Where a run stands in a table: it changes nothing about the run."""

    labels: dict[str, str] = Field(default={})  # such as setting = "II"
    published: Annotated[float, Field(ge=0, le=100)] | None = None  # the accuracy in percent that a paper gives for it


class ModelSection(Section):
    name: str
    options: Table = Field(default={})


class Experiment(Section):
    """What `fedcm run` runs. Tables with a choice in them hold the chosen record."""

    name: Annotated[str, Field(pattern=r"^\w[\w .+=-]*$", max_length=100)]  # also part of file names
    rounds: Count
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    data: DataSection = DataSection()
    split: Any
    participation: Any
    model: ModelSection
    algorithm: Any
    client: ClientSection = ClientSection()
    server: ServerSection = ServerSection()
    evaluation: EvaluationSection = EvaluationSection()
    checkpoints: CheckpointSection = CheckpointSection()
    engine: EngineSection = EngineSection()
    federation: FederationSection = FederationSection()
    cell: CellSection = CellSection()


SECTIONS: dict[str, type[Section]] = {
    "data": DataSection,
    "client": ClientSection,
    "server": ServerSection,
    "evaluation": EvaluationSection,
    "checkpoints": CheckpointSection,
    "engine": EngineSection,
    "federation": FederationSection,
    "cell": CellSection,
}
_LEAST_RATE = 1e-12  # below it a float32 step changes nothing, and a direction divided by it means nothing
_CHOICES = ("split", "participation", "model", "algorithm")
_KEYS = ("name", "rounds", "seed", *SECTIONS, *_CHOICES, "for")


def load_experiment(path: Path, settings: Iterable[str] = (), algorithm: str | None = None) -> Experiment:
    """The experiment of a TOML file with settings put over it; its `[for.NAME]` tables are checked too."""
    table = read_table(path)
    if "grid" in table:
        raise UserError(f"{str(path)!r} asks for many runs; run them with `fedcm compare {path}`")
    for name in table["for"] if isinstance(table.get("for"), dict) else ():
        if name in ALGORITHMS:
            try:
                read_experiment(select_algorithm(table, name))
            except UserError as refusal:
                raise UserError(f"[for.{name}]: {refusal}") from None
    return read_experiment(apply_overrides(table, settings, algorithm))


def read_experiment(table: Mapping[str, Any]) -> Experiment:
    """The experiment that a table describes, every default filled in."""
    for key in table:
        if key not in _KEYS:
            raise UserError(f"there is no setting {key!r}; {suggest(key, _KEYS)}")
    fields: Table = {key: table[key] for key in ("name", "rounds", "seed") if key in table}
    for key, kind in SECTIONS.items():
        fields[key] = read_section(kind, table.get(key, {}), key)
    fields["data"] = DataSection(source=_in_full(fields["data"].source))
    fields["split"] = read_choice(SPLITS, table.get("split", {"kind": "natural"}), "kind", "split")
    fields["participation"] = read_choice(
        PARTICIPATION, table.get("participation", {"kind": "everyone"}), "kind", "participation"
    )
    fields["model"] = _read_model(table.get("model"))
    fields["algorithm"] = _sound(read_algorithm(table.get("algorithm")))
    experiment = read_section(Experiment, fields)
    _reject_vanishing_rate(experiment)
    reject_unequal_weights(experiment.algorithm, experiment.server)
    _reject_rounded_states(experiment)
    return experiment


def to_table(experiment: Experiment) -> Table:
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
    try:
        return tomli_w.dumps(to_table(experiment))
    except (TypeError, ValueError, RecursionError) as error:
        raise UserError(f"every setting must be a value that TOML has: {error}") from None


def read_algorithm(table: Any) -> Algorithm[Any, Any, Any, Any]:
    """Build the algorithm that an `[algorithm]` table describes."""
    if not isinstance(table, Mapping) or not isinstance(table.get("name"), str):
        raise UserError(f"algorithm.name must be given: one of {', '.join(ALGORITHMS)}, or 'package.module:Class'")
    name = table["name"]
    kind = find_algorithm(name)
    return read_dataclass(kind, {key: value for key, value in table.items() if key != "name"}, "algorithm", name)


def _sound(algorithm: Algorithm[Any, Any, Any, Any]) -> Algorithm[Any, Any, Any, Any]:
    """An algorithm of the user's own is checked before it runs; the bundled ones are by their tests."""
    if type(algorithm) not in ALGORITHMS.values() and (broken := find_violations(algorithm)):
        name = algorithm_name(algorithm)
        raise UserError(f"the algorithm {name!r} breaks the contract: {broken[0]}; `fedcm check {name}` tells all")
    return algorithm


def _read_model(table: Any) -> ModelSection:
    if not isinstance(table, Mapping) or "name" not in table:
        raise UserError(
            "model.name must be given: a bundled model (`fedcm models` lists them), or 'package.module:factory'"
        )
    options = {key: value for key, value in table.items() if key != "name"}
    model = read_section(ModelSection, {"name": table["name"], "options": options}, "model")
    reject_unknown_model(model.name)  # now, rather than when the data have been read
    return model


def _in_full(source: str) -> str:
    """A path that holds from every folder, so that a run can be resumed from another one."""
    try:
        path = Path(source).expanduser()
        return str(path.absolute()) if source not in SOURCES and path.exists() else source
    except (OSError, RuntimeError, ValueError):  # no path at all: whoever loads it says so
        return source


def reject_unequal_weights(algorithm: Algorithm[Any, Any, Any, Any], server: ServerSection) -> None:
    if server.weights == "examples" and getattr(messages(type(algorithm)).kept, "_fields", ()):
        raise UserError(
            f"{algorithm_name(algorithm)!r} must weigh clients equally, because its server tracks the plain mean of "
            'what clients keep; set server.weights = "clients"'
        )


def _reject_rounded_states(experiment: Experiment) -> None:
    if experiment.federation.uplink != "exact" and getattr(messages(type(experiment.algorithm)).kept, "_fields", ()):
        raise UserError(
            f"reports of {algorithm_name(experiment.algorithm)!r} must come up as they are, because its server tracks "
            'the mean of what sites keep; set federation.uplink = "exact"'
        )


def _reject_vanishing_rate(experiment: Experiment) -> None:
    client, last = experiment.client, experiment.rounds - 1
    if client.lr * client.lr_decay**last < _LEAST_RATE:
        raise UserError(
            f"client.lr must stay above {_LEAST_RATE:g} to the last round, and {client.lr} · {client.lr_decay}^{last} "
            "does not; raise client.lr_decay or take fewer rounds"
        )
