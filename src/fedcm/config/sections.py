"""The schema of an experiment: one class per TOML table, with the defaults."""

from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, WrapValidator, field_serializer, model_validator

from fedcm.config.choices import ClientOptimizer, ClientSchedule, ServerMean, ServerSchedule, StepSchedule
from fedcm.config.conditions import describe_work, read_work
from fedcm.config.schema import Section
from fedcm.core.aggregation import PLAIN_MEAN

Rate = Annotated[float, Field(gt=0, le=1e6)]
Threshold = Annotated[float, Field(ge=1e-20, le=1e6)]
Count = Annotated[int, Field(ge=1, le=10**9)]
Work = Annotated[Count, WrapValidator(read_work)]  # or a table, which becomes an object such as `UniformWork`
Link = Literal["exact", "float16", "bfloat16"]  # vectors are sent unchanged, or rounded to 16 bits per number

FEDERATED_DATA = "federation"  # data.source of a federated run: the data stay at the sites
_WITHOUT_AUTOTUNE = {"stack": 1, "layout": "channels_last", "compile": "off"}


class DataSection(Section):
    """Where the data come from."""

    # a known name, an .npz file, a folder with one .npz file per client, or package.module:function
    source: Annotated[str, Field(min_length=1)] = "digits"
    augment: list[str | dict[str, Any]] | None = None  # changes of training images in every step: crop, flip, cutout
    collate: str | None = None  # package.module:function from a list of examples to a batch; by default they are padded
    fresh: bool | None = None  # whether the items of torch datasets are read anew in every pass
    # share of the training data that is held back for validation, before the split over clients
    validation: Annotated[float, Field(gt=0, lt=1)] | None = None


class ClientSection(Section):
    """The local work of a client."""

    epochs: Work | None = None  # passes over the client's data per round; 1 by default
    steps: Work | None = None  # local steps per round, instead of epochs
    batch_size: Count = 50
    lr: Rate = 0.1  # η_l of round 0
    lr_decay: Annotated[float, Field(gt=0, le=1)] = 1.0  # η_l is multiplied by this after every round
    schedule: ClientSchedule = None  # factors of η_l over the rounds, instead of lr_decay
    step_schedule: StepSchedule = None  # factors of η_l over the local steps of a round
    weight_decay: Annotated[float, Field(ge=0, le=1e6)] = 0.0
    weight_decay_at: Literal["loss", "step"] = "loss"  # added to the client's gradient, or to the algorithm's direction
    clip: Rate | None = None  # largest norm of the client's gradient
    optimizer: ClientOptimizer = None  # maps the client's gradient, before the algorithm sees it

    @model_validator(mode="after")
    def _check_steps_or_epochs(self) -> Self:
        if self.steps is not None and self.epochs is not None:
            raise ValueError("steps and epochs exclude each other; give one of them")
        return self

    @model_validator(mode="after")
    def _check_decay_or_schedule(self) -> Self:
        if self.schedule is not None and self.lr_decay != 1:
            raise ValueError(
                f"lr_decay must be 1 if the rate has a schedule, got {self.lr_decay}; set lr_decay to 1, or leave the "
                "schedule out"
            )
        return self

    @field_serializer("epochs", "steps")
    def _write_work(self, work: Any) -> Any:
        return describe_work(work)


class ServerSection(Section):
    """The update of the server."""

    lr: Rate = 1.0  # 1.0 = plain averaging
    schedule: ServerSchedule = None  # factors of lr over the rounds
    weights: Literal["clients", "examples"] = "clients"  # what has equal weight in the mean
    mean: ServerMean = PLAIN_MEAN  # how the reports of a round are averaged: a name, or a table with a kind


def _check_metrics(metrics: list[str | dict[str, Any]]) -> list[str | dict[str, Any]]:
    if not metrics:
        raise ValueError("must name at least one metric, got an empty list; leave it out for the default")
    for table in (entry for entry in metrics if isinstance(entry, dict)):
        if not isinstance(table.get("name"), str):
            raise ValueError(f'a metric must have a name, such as {{name = "f1", average = "micro"}}, got {table}')
        if not isinstance(table.get("higher_is_better", True), bool):
            raise ValueError(f"higher_is_better must be true or false, got {table['higher_is_better']!r}")
        if not isinstance(table.get("label", ""), str):
            raise ValueError(f"the label of a metric must be a string, got {table['label']!r}")
    return metrics


class EvaluationSection(Section):
    """When and how to evaluate on the test data and the validation data."""

    every: Count = 10  # rounds; the last round is always evaluated
    targets: list[Annotated[float, Field(gt=0, lt=1)]] = Field(default=[0.5, 0.6, 0.7, 0.8, 0.9])  # accuracies to reach
    # names, package.module:function, or tables with a name and options; the first is the headline; accuracy by default
    metrics: Annotated[list[str | dict[str, Any]], AfterValidator(_check_metrics)] | None = None
    clients: Annotated[float, Field(gt=0, lt=1)] | None = None  # share of each client's examples for its own test data
    personalise: Count | None = None  # passes over a client's training data before its own evaluation


class StopSection(Section):
    """When a run ends early. Without patience and target it never does."""

    # validation_METRIC, by default of the first metric, or "loss" for the training loss
    metric: Annotated[str, Field(min_length=1)] | None = None
    patience: Count | None = None  # evaluations without an improvement
    min_delta: Annotated[float, Field(ge=0, le=1e9)] | None = None  # least change that is an improvement; 0 by default
    target: Annotated[float, Field(ge=-1e9, le=1e9)] | None = None  # value of the metric

    @model_validator(mode="after")
    def _check_patience_or_target(self) -> Self:
        if self.patience is None and self.target is None and (self.metric is not None or self.min_delta is not None):
            raise ValueError("patience, target or both must be given, and neither is")
        return self


class PrivacySection(Section):
    """Differential privacy of each client. Without epsilon and noise_multiplier there is none."""

    epsilon: Annotated[float, Field(gt=0, le=1000)] | None = None  # budget; the run ends before it is exceeded
    delta: Annotated[float, Field(gt=0, lt=1)] | None = None  # 1e-5 by default; must be below 1 / clients
    # standard deviation of the noise over the greatest norm of a report; by default what epsilon and rounds need
    noise_multiplier: Annotated[float, Field(gt=0, le=1000)] | None = None
    # greatest norm of the private part of a report, or one number per field
    clip: Threshold | dict[str, Threshold] | None = None
    clip_quantile: Annotated[float, Field(gt=0, lt=1)] | None = None  # thresholds follow this quantile of the norms
    secret: bool | None = None  # whether the key of the noise is a secret in the run's folder; else it is the seed's

    @model_validator(mode="after")
    def _check_noise_and_clip(self) -> Self:
        if self.is_on and self.clip is None:
            raise ValueError("clip must be given: the greatest norm of the private part of a report, such as 0.5")
        others = (self.delta, self.clip, self.clip_quantile, self.secret)
        if not self.is_on and any(value is not None for value in others):
            raise ValueError("epsilon, noise_multiplier or both must be given, and neither is")
        return self

    @property
    def is_on(self) -> bool:
        """Whether the training is private."""
        return self.epsilon is not None or self.noise_multiplier is not None


class CheckpointSection(Section):
    """When to write checkpoints."""

    every: Count = 10  # rounds
    keep: Count = 3  # the number of newest checkpoints to keep


def _check_stack(stack: Any) -> Any:
    if stack != "auto" and not (isinstance(stack, int) and not isinstance(stack, bool) and 1 <= stack <= 4096):
        raise ValueError(f'must be "auto" or a whole number from 1 to 4096, got {stack!r}')
    return stack


class EngineSection(Section):
    """How clients are computed. Autotuning replaces "auto" before the first round, in the run's own experiment."""

    stack: Annotated[Any, AfterValidator(_check_stack)] = "auto"  # clients that train at once
    layout: Literal["auto", "channels_last", "contiguous"] = "auto"  # of images in memory
    compile: Literal["auto", "on", "off"] = "auto"  # the model, by torch.compile
    device: Annotated[str, Field(pattern=r"^(cpu|cuda(:\d+)?)$")] = "cpu"
    precision: Literal["float32", "float64", "bf16"] = "float32"  # bf16: of the model's arithmetic, by autocast
    client_states: Literal["exact", "bfloat16"] = "exact"  # how client states are stored

    def without_autotune(self) -> Self:
        """Return the section with a fixed value in place of every "auto": nothing is left to autotune."""
        fixed = {key: value for key, value in _WITHOUT_AUTOTUNE.items() if getattr(self, key) == "auto"}
        return self.model_copy(update=fixed)


class FederationSection(Section):
    """How rounds run between real sites. Simulations ignore it."""

    sites: list[str] = Field(default=[])  # the sites that take part; by default those connected at the start
    deadline: Annotated[int, Field(ge=1, le=10**7)] = 600  # seconds for a round
    quorum: Annotated[float, Field(gt=0, le=1)] = 0.5  # share of the requested sites; below it a round changes nothing
    wait: Annotated[int, Field(ge=0, le=10**7)] = 60  # seconds for the other sites once the quorum has answered
    drop_after: Count = 3  # missed rounds in a row, after which a site is no longer asked
    retry_after: Count = 10  # rounds, after which such a site is asked again
    give_up_after: Count = 5  # rounds in a row without a quorum, after which the run stops
    norm_bound: Rate | None = None  # largest norm of a vector that a site reports
    # largest distance of a report from the expected one, in units of the median distance of the round's reports; a
    # larger one is shortened to the median; 0: none; by default 5, and 0 with [privacy] or a robust server.mean
    norm_ratio: Annotated[float, Field(ge=0, le=1e6)] | None = None
    # smallest cosine of a report with the median of the round's reports; -1: none; by default -0.5, and -1 with
    # [privacy]
    min_cosine: Annotated[float, Field(ge=-1, le=1)] | None = None
    max_examples: Count | None = None  # a site with more counts as this many, with weights by examples
    downlink: Link = "exact"  # format of the parameters that the server sends
    momentum: Link = "exact"  # format of all other vectors that the server sends
    uplink: Link = "exact"  # format of the reports that sites send
    secure_aggregation: bool = False  # whether the server gets only the sum of the reports
    threshold: Annotated[int, Field(ge=2, le=10**6)] | None = None  # fewest sites of a sum; more than 2/3 by default
    # with secure aggregation and [privacy]: sites of a sum whose noise does not count, because they know it or might
    # reveal it; by default 1, because every site knows its own
    colluding: Annotated[int, Field(ge=0, le=10**6)] | None = None
    classes: Count | None = None  # number of classes; by default from the largest label at any site
    mean: list[float] | None = None  # per channel, to normalise images of bytes; by default from the sites' sums
    std: list[Rate] | None = None

    @model_validator(mode="after")
    def _check_sites_and_normalisation(self) -> Self:
        if (self.mean is None) != (self.std is None) or len(self.mean or ()) != len(self.std or ()):
            raise ValueError("mean and std must be given together, each with one number per channel")
        if len(set(self.sites)) < len(self.sites):
            raise ValueError(f"every site must be named once, got {self.sites}")
        if self.secure_aggregation and self.uplink != "exact":
            raise ValueError(f'secure aggregation adds integers, so uplink must be "exact", got {self.uplink!r}')
        if self.threshold is not None and not self.secure_aggregation:
            raise ValueError("threshold is a setting of secure aggregation; set secure_aggregation = true as well")
        if self.colluding is not None and not self.secure_aggregation:
            raise ValueError("colluding is a setting of secure aggregation; set secure_aggregation = true as well")
        return self


class CellSection(Section):
    """The cell of a table that a run belongs to. It does not change the run."""

    labels: dict[str, str] = Field(default={})  # for example setting = "II"
    published: Annotated[float, Field(ge=0, le=100)] | None = None  # the accuracy in percent that a paper reports


class ModelSection(Section):
    """The model. Every field but `options` is a reserved key of `[model]`: no option of a model can have its name."""

    name: str  # a bundled model, or package.module:factory
    loss: str | None = None  # a known name or package.module:function; by default it follows from the labels
    weights: Annotated[str, Field(min_length=1)] | None = None  # a safetensors file with the initial weights
    weights_strict: bool = True  # the file must have exactly the names of the model's tensors
    train: Annotated[list[str], Field(min_length=1)] | None = None  # patterns of the parameters to train
    personal: list[str] | None = None  # patterns of the parameters that each client keeps for itself
    options: dict[str, Any] = Field(default={})  # keyword arguments of the factory

    def to_table(self) -> dict[str, Any]:
        """Return the `[model]` table; reserved keys with their defaults are left out."""
        return self.model_dump(exclude={"options"}, exclude_defaults=True) | self.options


RESERVED_MODEL_KEYS = tuple(key for key in ModelSection.model_fields if key != "options")


class Experiment(Section):
    """One run, as `fedcm run` runs it. Fields of type `Any` hold the chosen dataclass."""

    name: Annotated[str, Field(pattern=r"^\w[\w .+=-]*$", max_length=100)]  # also part of file names
    rounds: Count
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    data: DataSection = DataSection()
    split: Any
    participation: Any
    topology: Any = None  # the graph of a decentralised algorithm
    availability: Any = None  # when clients can take part; None: always
    stragglers: Any = None  # how fast clients are, and the deadline; None: the server waits for every client
    attack: Any = None  # what hostile clients do; None: there are none
    model: ModelSection
    algorithm: Any
    client: ClientSection = ClientSection()
    server: ServerSection = ServerSection()
    evaluation: EvaluationSection = EvaluationSection()
    stop: StopSection = StopSection()
    privacy: PrivacySection = PrivacySection()
    checkpoints: CheckpointSection = CheckpointSection()
    engine: EngineSection = EngineSection()
    federation: FederationSection = FederationSection()
    cell: CellSection = CellSection()

    def without_autotune(self) -> Self:
        """Return the experiment with a fixed value for every "auto" of its engine, where speed is secondary."""
        return self.model_copy(update={"engine": self.engine.without_autotune()})


SECTIONS: dict[str, type[Section]] = {
    "data": DataSection,
    "client": ClientSection,
    "server": ServerSection,
    "evaluation": EvaluationSection,
    "stop": StopSection,
    "privacy": PrivacySection,
    "checkpoints": CheckpointSection,
    "engine": EngineSection,
    "federation": FederationSection,
    "cell": CellSection,
}
