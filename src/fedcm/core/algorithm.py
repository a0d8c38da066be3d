"""The contract of a federated algorithm: six pure functions over flat vectors, and four messages between them.

    server state --broadcast--> sent --(local steps along `direction`)--> report --mean--> update --> server state
                                                     ^ kept: the state of one client between its rounds

Optional functions have defaults, so that a simple algorithm does not mention them:

    start, init_local, step     where the local steps begin, and a state that they carry from one step to the next
    survey, merge               a first exchange: surveys of the cohort, their mean, and a new broadcast
    mix                         gossip with neighbours in place of a server
    expected_report             the server's guess of a report, for a robust mean that is centred at it
    public_part                 what every report of a round has in common, for private means

Every vector points uphill, like a gradient: subtract to descend. Arithmetic broadcasts, and reductions run over the
last dimension and keep it. So one client (P,), a stack of clients (C, P) and the server share the same code. A scalar
of a client is a field of shape (1,), or (C, 1) in a stack. The fields of a server state can have any shape.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar, get_args

from torch import Size, Tensor

Vector = Tensor  # (P,) on the server and for one client; (C, P) for a stack of C clients
Gradient = Callable[[Vector], Vector]  # parameters -> gradient of this minibatch at these parameters


@dataclass(frozen=True, slots=True)
class Round:
    """The index, rates and sizes of one round, which the server and the clients know."""

    index: int
    client_lr: float  # of a step with factor 1, see `client.step_schedule`
    server_lr: float  # 1.0 = plain averaging
    cohort_size: float  # S, the number of clients in the mean; its expectation if the mean is private
    population: int  # N, the number of all clients
    steps: float  # mean of `LocalRun.steps` over the clients in the mean; nan until they have reported
    clip_factor: float = 1.0  # of the clipping thresholds of a private mean, if they move


@dataclass(frozen=True, slots=True)
class Step:
    """Facts about one local step that a client knows before it takes the step."""

    index: int  # 0 for the first step of the round
    count: Tensor  # K_i of each client: (1,) for one client, (C, 1) for a stack
    client_lr: float | Tensor  # of this step; (C, 1) in a stack whose steps have factors
    shapes: tuple[Size, ...]  # of the model's parameters, in their order in the flat vector


class Nothing(NamedTuple):
    """A state without fields."""


@dataclass(frozen=True, slots=True)
class LocalRun:
    """The finished local steps of one client, or of a stack of clients."""

    start: Vector
    end: Vector  # start − client_lr · direction_sum, rounded to the precision of the parameters
    direction_sum: Vector  # Σ_k f_k·direction_k, added step by step; f_k = 1 without `client.step_schedule`
    steps: Tensor  # Σ_k f_k of each client, so K_i without factors: (1,) for one client, (C, 1) for a stack
    client_lr: float
    full_gradient: Gradient  # over all data of the client; each call costs one pass over them
    local: Any = ()  # the local state after the last step

    @property
    def moved(self) -> Vector:
        """The movement start − end = client_lr · direction_sum, without the rounding of `end`.

        At a small client_lr, that rounding would dominate the difference.
        """
        return self.client_lr * self.direction_sum

    @property
    def mean_direction(self) -> Vector:
        """The mean direction of the local steps, weighted by their factors."""
        return self.direction_sum / self.steps


ServerState = TypeVar("ServerState", bound=tuple)  # has a field `params`
Broadcast = TypeVar("Broadcast", bound=tuple)  # has a field `params`
ClientState = TypeVar("ClientState", bound=tuple)
Report = TypeVar("Report", bound=tuple)


class MessageTypes(NamedTuple):
    """The four NamedTuple types of an algorithm. Their fields define the wire format, checkpoints and client states."""

    server: type
    broadcast: type
    client_state: type
    report: type


class Algorithm(ABC, Generic[ServerState, Broadcast, ClientState, Report]):
    """The base class of algorithms.

    A subclass is a frozen, final dataclass. Its fields are its hyperparameters, which `__post_init__` checks.
    """

    __dataclass_fields__: ClassVar[dict[str, Any]]
    paper: ClassVar[str] = ""  # shown by `fedcm algorithms`
    needs_all_clients: ClassVar[bool] = False  # whether every client must take part in every round
    has_server_lr: ClassVar[bool] = True  # False if the server learning rate must be 1

    @property
    def has_step_factors(self) -> bool:
        """Whether `client.step_schedule` may be set. False if `report` relies on steps of equal length."""
        return True

    @abstractmethod
    def init_server(self, params: Vector) -> ServerState:
        """Return the server state before the first round."""

    @abstractmethod
    def init_client(self, params: Vector) -> ClientState:
        """Return the state of a client before its first round; `params` is the initial model."""

    @abstractmethod
    def broadcast(self, server: ServerState) -> Broadcast:
        """Return what the server sends to every client of the cohort."""

    def direction(self, gradient: Gradient, params: Vector, sent: Broadcast, kept: ClientState) -> Vector:
        """Return the direction of one local step: params ← params − client_lr · direction. Default: the gradient.

        Args:
            gradient: The gradient of this minibatch as a function of the parameters; it may be called more than once.
            params: The client's parameters before the step.
            sent: The broadcast of this round.
            kept: The client's state after its last round.
        """
        return gradient(params)

    @abstractmethod
    def report(self, run: LocalRun, sent: Broadcast, kept: ClientState) -> tuple[Report, ClientState]:
        """Return what a client reports after its local steps, and its new state.

        Args:
            run: The local steps.
            sent: The broadcast of this round.
            kept: The client's state after its last round.
        """

    @abstractmethod
    def update(self, server: ServerState, mean: Report, round: Round) -> ServerState:
        """Return the new server state.

        Args:
            server: The server state before the round.
            mean: The mean report: each field is the mean of that field over the reports of the cohort.
            round: The rates and sizes of the round.
        """

    def expected_report(self, sent: Broadcast) -> Report | None:
        """Return the server's guess of a client's report before it arrives. Default: none.

        Centred clipping (`server.mean`) is centred at it.
        """
        return None

    def start(self, sent: Broadcast, kept: ClientState) -> Vector:
        """Return the parameters before the first local step. Default: the parameters that were sent."""
        return sent.params  # pyright: ignore[reportAttributeAccessIssue] - every broadcast has this field

    def init_local(self, full_gradient: Gradient, sent: Broadcast, kept: ClientState) -> Any:
        """Return the local state before the first step: a NamedTuple that lasts for one round. Default: none.

        Each call of `full_gradient` costs one pass over the client's data.
        """
        return Nothing()

    def step(
        self, gradient: Gradient, params: Vector, sent: Broadcast, kept: ClientState, local: Any, step: Step
    ) -> tuple[Vector, Any]:
        """Return the direction of one local step and the new local state. Default: `direction`, and no state."""
        return self.direction(gradient, params, sent, kept), local

    def public_part(self, sent: Broadcast, round: Round) -> Report | None:
        """Return the part of every report that the server knows before the clients report. Default: None, which is 0.

        A private mean clips and adds noise to the rest alone. Any function of the broadcast keeps the guarantee; the
        best one is the report of a client whose gradients and client state are all 0.

        Args:
            sent: The broadcast of this round.
            round: The round; `steps` is the same for every client.
        """
        return None

    def survey(self, full_gradient: Gradient, params: Vector, kept: ClientState) -> Any:
        """Return what a client reports before the local steps: a NamedTuple. Default: nothing, in one exchange.

        An algorithm that defines it has two exchanges in every round. In the first one, clients get the parameters of
        the server and answer the survey. `merge` gets the mean of the surveys, and clients take their local steps with
        the broadcast of the merged server state.
        """
        return Nothing()

    def merge(self, server: ServerState, mean: Any, round: Round) -> ServerState:
        """Return the server state after the surveys; each field of `mean` is the mean of that field over the cohort."""
        return server

    def mix(self, kept: ClientState, mixed: Report, round: Round) -> ClientState:
        """Return the state of a node after gossip; an algorithm that defines it is decentralised.

        Then the report and the client state have a field `params`, and `update` computes the mean model, which is only
        evaluated: no node receives it.

        Args:
            kept: The state that `report` returned.
            mixed: The weighted mean of the reports of the node and its neighbours.
            round: The round; `steps` is the mean over all nodes.
        """
        return kept


def get_message_types(algorithm: type[Algorithm]) -> MessageTypes:
    """Return the message types that a class names in `Algorithm[ServerState, Broadcast, ClientState, Report]`.

    Raises:
        TypeError: If the class does not name four NamedTuples.
    """
    for base in getattr(algorithm, "__orig_bases__", ()):
        types = get_args(base)
        if len(types) == 4 and all(hasattr(t, "_fields") for t in types):
            return MessageTypes(*types)
    raise TypeError(
        f"{algorithm.__name__} must derive from Algorithm[ServerState, Broadcast, ClientState, Report] "
        "with four NamedTuples in the brackets"
    )


def has_client_state(algorithm: Algorithm[Any, Any, Any, Any]) -> bool:
    """Return whether clients have a state between rounds."""
    return bool(getattr(get_message_types(type(algorithm)).client_state, "_fields", ()))


def has_survey(algorithm: Algorithm[Any, Any, Any, Any]) -> bool:
    """Return whether a round has a first exchange, in which clients answer a survey."""
    return type(algorithm).survey is not Algorithm.survey


def is_decentralised(algorithm: Algorithm[Any, Any, Any, Any]) -> bool:
    """Return whether nodes exchange their parameters with neighbours instead of a server."""
    return type(algorithm).mix is not Algorithm.mix
