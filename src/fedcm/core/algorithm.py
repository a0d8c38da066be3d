"""The contract of a federated algorithm: six pure functions over flat vectors, and four messages between them.

    server state --broadcast--> sent --(local steps along `direction`)--> report --mean--> update --> server state
                                                     ^ kept: the state of one client between its rounds

Every vector points uphill, like a gradient: subtract to descend. Arithmetic broadcasts, and reductions run over the
last dimension and keep it. So one client (P,), a stack of clients (C, P) and the server share the same code.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar, get_args

from torch import Tensor

Vector = Tensor  # (P,) on the server and for one client; (C, P) for a stack of C clients
Gradient = Callable[[Vector], Vector]  # parameters -> gradient of this minibatch at these parameters


@dataclass(frozen=True, slots=True)
class Round:
    """The index, rates and sizes of one round, which the server and the clients know."""

    index: int
    client_lr: float  # constant within the round
    server_lr: float  # 1.0 = plain averaging
    cohort_size: int  # S, the number of clients in the mean
    population: int  # N, the number of all clients
    steps: float  # mean local steps of the clients in the mean; nan until they have reported


@dataclass(frozen=True, slots=True)
class LocalRun:
    """The finished local steps of one client, or of a stack of clients."""

    start: Vector
    end: Vector  # start − client_lr · direction_sum, rounded to the precision of the parameters
    direction_sum: Vector  # Σ_k direction_k, added step by step
    steps: Tensor  # K_i of each client: (1,) for one client, (C, 1) for a stack
    client_lr: float
    full_gradient: Gradient  # over all data of the client; each call costs one pass over them

    @property
    def moved(self) -> Vector:
        """The movement start − end = client_lr · direction_sum, without the rounding of `end`.

        At a small client_lr, that rounding would dominate the difference.
        """
        return self.client_lr * self.direction_sum

    @property
    def mean_direction(self) -> Vector:
        """The mean direction of the local steps."""
        return self.direction_sum / self.steps


class Nothing(NamedTuple):
    """The client state of an algorithm without client state."""


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

    @abstractmethod
    def init_server(self, params: Vector) -> ServerState:
        """Return the server state before the first round."""

    @abstractmethod
    def init_client(self, params: Vector) -> ClientState:
        """Return the state of a client before its first round; `params` gives shape and dtype."""

    @abstractmethod
    def broadcast(self, server: ServerState) -> Broadcast:
        """Return what the server sends to every client of the cohort."""

    @abstractmethod
    def direction(self, gradient: Gradient, params: Vector, sent: Broadcast, kept: ClientState) -> Vector:
        """Return the direction of one local step: params ← params − client_lr · direction.

        Args:
            gradient: The gradient of this minibatch as a function of the parameters; it may be called more than once.
            params: The client's parameters before the step.
            sent: The broadcast of this round.
            kept: The client's state after its last round.
        """

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
