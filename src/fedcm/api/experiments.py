"""Experiments in Python: loaded from a file or by name, or made of Python objects."""

import copy
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypedDict, Unpack

from pydantic import PrivateAttr
from torch import Tensor, nn

from fedcm.api.arguments import AnyPath, Overrides, format_overrides, to_path, to_python, to_words
from fedcm.api.metric_arguments import read_metrics
from fedcm.api.training_arguments import (
    check_attack,
    check_availability,
    check_stragglers,
    check_topology,
    hash_functions,
    name_object,
    read_client_tests,
    read_loss,
    read_participation,
    read_privacy,
    read_settings,
    read_stop,
    read_validation,
)
from fedcm.config.bundled import find_experiment
from fedcm.config.choices import IN_MEMORY
from fedcm.config.experiment import (
    load_experiment_file,
    make_weights_absolute,
    read_experiment,
    to_table,
)
from fedcm.config.overrides import apply_overrides
from fedcm.config.schema import Section, read_section
from fedcm.config.sections import (
    SECTIONS,
    CheckpointSection,
    ClientSection,
    DataSection,
    EngineSection,
    EvaluationSection,
    Experiment,
    ModelSection,
    ServerSection,
    StopSection,
)
from fedcm.core.aggregation.robust import RobustRule
from fedcm.core.algorithm import Algorithm
from fedcm.core.attacks import Attack
from fedcm.core.conditions.availability import Availability
from fedcm.core.local.optimizers import LocalOptimizer
from fedcm.core.losses import Loss
from fedcm.core.participation import Participation
from fedcm.core.privacy.budget import Privacy
from fedcm.core.schedule_kinds import FactorFunction, RateSchedule
from fedcm.core.scoring.whole import MetricFunction
from fedcm.core.stopping import Stop
from fedcm.core.topology import Topology
from fedcm.data.array_conversion import check_compatible
from fedcm.data.augmentation import Augment, make_augment
from fedcm.data.client_tests import ClientTests
from fedcm.data.dataset import ClientsOnDemand
from fedcm.data.federated import ArrayData, FederatedData
from fedcm.data.partition import Natural
from fedcm.data.structures.collate import Collate, UserCollate, make_collate
from fedcm.data.user_data import convert_clients_to_dataset
from fedcm.data.work.amounts import WorkAmount
from fedcm.data.work.stragglers import Stragglers
from fedcm.errors import UserError, suggest
from fedcm.models.weights import load_weights
from fedcm.privacy.settings import fill_noise, reject_unfit_privacy
from fedcm.runs.build import BuildSetup, TrainingSetup, build
from fedcm.runs.data_split import make_federated_data
from fedcm.runs.identity import FREE_SETTINGS, list_changed_settings
from fedcm.system.formatting import describe_value
from fedcm.system.imports import import_function


class PythonExperiment(Experiment):
    """An experiment whose model, data or loss are Python objects. Make one with `make_experiment`."""

    _model: nn.Module = PrivateAttr()
    _data: FederatedData = PrivateAttr()
    _loss: Loss | None = PrivateAttr()
    _augment: Augment | None = PrivateAttr(default=None)
    _collate: Collate | None = PrivateAttr(default=None)
    _metric_functions: dict[str, MetricFunction] = PrivateAttr()  # by their names in evaluation.metrics
    _functions_sha256: dict[str, str] = PrivateAttr(default_factory=dict)

    def copy_model(self) -> nn.Module:
        """Return a copy of the given model."""
        return copy.deepcopy(self._model)

    def build(self, data_dir: Path | None = None) -> TrainingSetup:
        """Build the objects that train. The model is copied, so that it does not change."""
        setup = build(
            self,
            data_dir,
            data=self._data,
            model=self.copy_model(),
            loss=self._loss,
            augment=self._augment,
            collate=self._collate,
            metric_functions=self._metric_functions,
        )
        return dataclasses.replace(setup, functions_sha256=self._functions_sha256)


def load_experiment(path: AnyPath, overrides: Overrides = ()) -> Experiment:
    """Load an experiment from a TOML file, or a bundled one by its name.

    Args:
        path: The file, or a name that `fedcm experiments` lists, such as "demo".
        overrides: Settings to change: a dict such as `{"client.lr": 0.05}`, or strings such as "client.lr=0.05".

    Returns:
        The experiment, with every default filled in.

    Raises:
        UserError: If there is no such experiment, or a setting is wrong.

    >>> experiment = load_experiment("demo", {"rounds": 20, "algorithm.alpha": 0.05})
    >>> experiment.rounds, experiment.algorithm.alpha
    (20, 0.05)
    """
    return load_experiment_file(find_experiment(path), format_overrides(overrides))


Work = int | WorkAmount | Callable[[int, int], int]  # a number, or one for each client and round


class TrainingSettings(TypedDict, total=False):
    """The settings of a training; `fedcm.train` describes them."""

    test: Any | None
    validation: Any | None
    participation: float | int | Participation
    topology: Topology | None
    availability: Availability | None
    stragglers: Stragglers | None
    epochs: Work | None
    steps: Work | None
    batch_size: int
    lr: float
    lr_decay: float
    lr_schedule: RateSchedule | FactorFunction | None
    step_schedule: RateSchedule | FactorFunction | None
    optimizer: LocalOptimizer | None
    server_lr: float
    server_lr_schedule: RateSchedule | FactorFunction | None
    weight_decay: float
    weight_decay_at: Literal["loss", "step"]
    clip: float | None
    weights: Literal["clients", "examples"]
    mean: RobustRule | Mapping[str, Any] | str
    attack: Attack | None
    loss: Loss | str | None
    augment: Sequence[Any]
    collate: UserCollate | str | None
    fresh: bool
    model_weights: Mapping[str, Tensor] | AnyPath | None
    weights_strict: bool
    trainable: str | Sequence[str] | None
    personal: str | Sequence[str] | None
    evaluate_every: int
    metrics: Sequence[str | Mapping[str, Any] | Callable[..., Any]] | None
    stop: Stop | None
    privacy: Privacy | None
    client_tests: float | Sequence[Any] | None
    personalise: int | None
    stack: int
    seed: int


# settings that are not plain values
_OBJECTS = ("test", "participation", "topology", "loss", "augment", "collate", "model_weights", "trainable", "personal")
_OBJECTS += ("lr_schedule", "step_schedule", "server_lr_schedule", "optimizer", "availability", "stragglers")
_OBJECTS += ("validation", "metrics", "stop", "client_tests", "mean", "attack", "privacy")
_CLIENT_SETTINGS = ("epochs", "steps", "batch_size", "lr", "lr_decay", "clip", "weight_decay", "weight_decay_at")
_CLIENT_SETTINGS += ("step_schedule", "optimizer")
_ARGUMENTS = {"client.schedule": "lr_schedule", "client.step_schedule": "step_schedule"}  # of settings, for messages
_ARGUMENTS |= {"client.optimizer": "optimizer"}
_SERVER_ARGUMENTS = {"lr": "server_lr", "server.schedule": "server_lr_schedule", "server.mean": "mean"}


def make_experiment(
    model: nn.Module,
    clients: Sequence[Any] | ClientsOnDemand,
    algorithm: Algorithm[Any, Any, Any, Any],
    *,
    rounds: int,
    name: str = "experiment",
    **settings: Unpack[TrainingSettings],
) -> PythonExperiment:
    """Make an experiment of Python objects, for `fedcm.run`.

    Args:
        model: The model, with its initial parameters. It is not changed.
        clients: One torch dataset of (x, y), or one pair (features, labels), per client; or a `ClientsOnDemand`. See
            `fedcm.train` for batches of other structures.
        algorithm: The algorithm, such as `fedcm.FedCM(alpha=0.1)`.
        rounds: The number of rounds.
        name: The name of the experiment; the run's folder is named after it.
        **settings: The settings of the training, as for `fedcm.train`: test, loss, lr, participation, …; `workers`,
            `resume_from` and `progress` are none of them.

    Raises:
        UserError: If an argument cannot work.

    >>> import torch, fedcm
    >>> clients = [(torch.randn(10, 3), torch.arange(10) % 2) for _ in range(4)]
    >>> experiment = fedcm.make_experiment(torch.nn.Linear(3, 2), clients, fedcm.FedCM(), rounds=5, name="mine")
    >>> experiment.name, experiment.model.name
    ('mine', 'in-memory:Linear')
    """
    _check_types(model, clients, algorithm)
    for key in settings:
        if key not in TrainingSettings.__annotations__:
            raise UserError(f"there is no setting {key!r}; {suggest(key, TrainingSettings.__annotations__)}")
    given: dict[str, Any] = {key: value if key in _OBJECTS else to_python(value) for key, value in settings.items()}
    if given.get("personal") and given.get("test") is not None:
        raise UserError(
            "test must be left out if parameters are personal, because its examples belong to no client; give "
            "client_tests=0.2, for example"
        )
    local = {key: given[key] for key in _CLIENT_SETTINGS if key in given} | {"schedule": given.get("lr_schedule")}
    tests = read_client_tests(given.get("client_tests"), clients)
    metrics, functions = read_metrics(given.get("metrics"))
    share, validation = read_validation(given.get("validation"))
    server = {key: given[name] for key, name in (("lr", "server_lr"), ("weights", "weights")) if name in given}
    server |= {"schedule": given.get("server_lr_schedule"), "mean": given.get("mean", "plain")}
    experiment = read_section(
        PythonExperiment,
        {
            "name": name,
            "rounds": to_python(rounds),
            "seed": given.get("seed", 0),
            "data": _read_data_settings(given | {"validation": share}),
            "split": Natural(),
            "participation": read_participation(given.get("participation", 1.0)),
            "topology": check_topology(given.get("topology"), algorithm),
            "model": _read_model(model, given),
            "availability": check_availability(given.get("availability")),
            "stragglers": check_stragglers(given.get("stragglers")),
            "attack": check_attack(given.get("attack")),
            "algorithm": algorithm,
            "client": read_settings(ClientSection, local, _ARGUMENTS),
            "server": read_settings(ServerSection, server, _SERVER_ARGUMENTS),
            "evaluation": read_settings(
                EvaluationSection,
                {
                    "every": given.get("evaluate_every", 10),
                    "metrics": metrics,
                    "clients": tests if isinstance(tests, float) else None,
                    "personalise": given.get("personalise"),
                },
                {"every": "evaluate_every", "clients": "client_tests"},
            ),
            "stop": read_stop(given.get("stop")),
            "privacy": read_privacy(given.get("privacy")),
            "engine": read_section(EngineSection, {"stack": given.get("stack", 1)}).without_autotune(),
        },
    )
    reject_unfit_privacy(experiment)
    experiment = fill_noise(experiment)  # now, so that a resume with the same arguments has the same settings
    experiment._model = _load_state_dict(model, given)
    experiment._data = _make_data(experiment, clients, given.get("test"), validation)
    if isinstance(tests, ClientTests) and isinstance(experiment._data, ArrayData):
        assert tests.examples is not None
        check_compatible(experiment._data.dataset.train, tests.examples, "the clients", "client_tests")
        experiment._data.client_tests = tests
    experiment._loss, experiment._metric_functions = read_loss(given.get("loss")), functions
    if changes := given.get("augment"):
        experiment._augment = make_augment(changes)
    if (collate := given.get("collate")) is not None:
        function = import_function(collate, "collate") if isinstance(collate, str) else collate
        if not callable(function):
            raise UserError(f"collate must be a function of a list of examples, got {describe_value(collate)}")
        experiment._collate = make_collate(function)
    experiment._functions_sha256 = hash_functions(given, functions)
    return experiment


def _read_data_settings(given: Mapping[str, Any]) -> DataSection:
    """Describe the data and what happens to their batches; Python functions are described by their names."""
    changes = given.get("augment", ())
    if isinstance(changes, str | Mapping) or not isinstance(changes, Sequence):
        raise UserError(f"augment must be a list of names or functions, got {describe_value(changes)}")
    make_augment(changes)  # rejects what cannot be described
    names = [
        {**change, "name": name_object(change.get("name"))} if isinstance(change, Mapping) else name_object(change)
        for change in changes
    ]
    settings = {
        "validation": given.get("validation"),
        "augment": names or None,
        "collate": name_object(given.get("collate")),
        "fresh": given.get("fresh"),
    }
    return read_settings(DataSection, {"source": IN_MEMORY, **settings})


def check_experiment(experiment: Any) -> None:
    """Raise a UserError if an experiment has a value that is not allowed; `model_copy` does not check its values."""
    if not isinstance(experiment, Experiment):
        raise UserError(f"experiment must be an Experiment, got {describe_value(experiment)}")
    _check_fields(experiment)
    for name, kind in {**SECTIONS, "model": ModelSection}.items():
        section = getattr(experiment, name)
        if not isinstance(section, kind):
            raise UserError(f"{name} must be a {kind.__name__}, got {describe_value(section)}")
        _check_fields(section)
        read_section(kind, dict(section), name)
    read_section(Experiment, {name: getattr(experiment, name) for name in Experiment.model_fields})


def override_experiment(experiment: Experiment, overrides: Sequence[str]) -> Experiment:
    """Return the experiment with overrides, each `path=value`.

    Raises:
        UserError: If a setting is wrong, or the experiment is made of Python objects and a resumed run depends on it.
    """
    if not overrides:
        return experiment
    before = to_table(experiment)
    table = apply_overrides(before, overrides)
    if not isinstance(experiment, PythonExperiment):
        return read_experiment(table)
    if changed := list_changed_settings(before, table):
        raise UserError(
            f"a run of Python objects can be resumed with other {', '.join(FREE_SETTINGS)} only, got another "
            f"{changed[0]}"
        )
    sections = {"evaluation": EvaluationSection, "stop": StopSection, "checkpoints": CheckpointSection}
    changed = {key: read_section(kind, table.get(key, {}), key) for key, kind in sections.items()}
    return experiment.model_copy(update={**changed, "rounds": table["rounds"]})


def get_builder(experiment: Experiment) -> BuildSetup:
    """Return the function that builds this experiment."""
    if isinstance(experiment, PythonExperiment):
        return _build_objects
    return build


def _build_objects(experiment: Experiment, data_dir: Path | None) -> TrainingSetup:
    assert isinstance(experiment, PythonExperiment)
    return experiment.build(data_dir)


def _check_fields(section: Section) -> None:
    fields = type(section).model_fields
    for key in vars(section):
        if key not in fields:
            raise UserError(f"{type(section).__name__} has no setting {key!r}; {suggest(key, fields)}")


def _check_types(model: Any, clients: Any, algorithm: Any) -> None:
    """Reject mistaken arguments by a sentence, before they fail somewhere inside."""
    if not isinstance(model, nn.Module):
        raise UserError(f"model must be a torch.nn.Module, got {describe_value(model)}")
    if isinstance(algorithm, type) and issubclass(algorithm, Algorithm):
        raise UserError(f"algorithm must be an instance, such as fedcm.{algorithm.__name__}(), got the class")
    if not isinstance(algorithm, Algorithm):
        raise UserError(
            f"algorithm must be an algorithm, such as fedcm.FedCM(alpha=0.1), got {describe_value(algorithm)}"
        )
    if isinstance(clients, str | bytes | Mapping) or not isinstance(clients, Sequence | ClientsOnDemand):
        raise UserError(
            f"clients must be a list with one dataset or one pair (features, labels) per client, got "
            f"{describe_value(clients)}"
        )


def _read_model(model: nn.Module, given: Mapping[str, Any]) -> ModelSection:
    weights, trainable, personal = given.get("model_weights"), given.get("trainable"), given.get("personal")
    if weights is None and given.get("weights_strict") is False:
        raise UserError("weights_strict=False needs model_weights; give them, or leave weights_strict out")
    table = {
        "name": f"{IN_MEMORY}:{type(model).__name__}",
        "weights": None if weights is None or isinstance(weights, Mapping) else str(to_path("model_weights", weights)),
        "weights_strict": given.get("weights_strict", True),
        "loss": name_object(given.get("loss")),
        "train": None if trainable is None else to_words("trainable", trainable),
        "personal": None if personal is None else to_words("personal", personal),
    }
    section = read_settings(ModelSection, table, {"weights": "model_weights", "train": "trainable"})
    return section.model_copy(update={"weights": make_weights_absolute(section.weights)})


def _load_state_dict(model: nn.Module, given: Mapping[str, Any]) -> nn.Module:
    """Return the model with the weights of a given state dict, in a copy; a file is loaded when the model is built."""
    weights = given.get("model_weights")
    if not isinstance(weights, Mapping):
        return model
    model = copy.deepcopy(model)
    load_weights(model, weights, where="model_weights", strict=given.get("weights_strict", True))
    return model


def _make_data(
    experiment: Experiment, clients: Sequence[Any] | ClientsOnDemand, test: Any | None, validation: Any | None
) -> FederatedData:
    given = {key: value for key, value in (("test", test), ("validation", validation)) if value is not None}
    if isinstance(clients, ClientsOnDemand):
        source = dataclasses.replace(clients, **given)
    else:
        source = convert_clients_to_dataset(list(clients), **given, fresh=bool(experiment.data.fresh))
    return make_federated_data(experiment, source)
