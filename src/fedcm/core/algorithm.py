"""What a federated algorithm is: six pure functions over flat vectors, and the four messages between them.

    server state --broadcast--> sent --(local steps along `direction`)--> report --mean--> update --> server state
                                                     ^ kept: what one client keeps between its rounds

Every vector points uphill, like a gradient: subtract to descend. Arithmetic only broadcasts, and reductions go over
the last dimension and keep it, so that one client (P,), a stack of clients (C, P) and the server share the same lines.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar, get_args

from torch import Tensor

Vector = Tensor  # (P,) on the server and for one client; (C, P) for a stack of C clients
Gradient = Callable[[Vector], Vector]  # parameters -> gradient of this minibatch there


@dataclass(frozen=True, slots=True)
class Round:
    """What both sides know about one round."""

    index: int
    client_lr: float  # constant within the round
    server_lr: float  # 1.0 = plain averaging
    cohort: int  # clients in the mean, S
    population: int  # all clients, N
    steps: float  # mean local steps of those in the mean; nan until they have reported


@dataclass(frozen=True, slots=True)
class LocalRun:
    """A client's finished local steps."""

    start: Vector
    end: Vector  # start − client_lr · direction_sum, rounded to the parameters' precision
    direction_sum: Vector  # Σ_k direction_k, added up step by step
    steps: Tensor  # (1,) for one client, (C, 1) for a stack: each client's own K_i
    client_lr: float
    full_gradient: Gradient  # over all the client's data; costs a pass when called

    @property
    def moved(self) -> Vector:
        """start − end, without the rounding of `end`: at a small client_lr that rounding is most of the difference."""
        return self.client_lr * self.direction_sum

    @property
    def mean_direction(self) -> Vector:
        """The mean of the local steps' directions."""
        return self.direction_sum / self.steps


class Nothing(NamedTuple):
    """The client state of an algorithm whose clients keep nothing."""


ServerState = TypeVar("ServerState", bound=tuple)  # has a field `params`
Broadcast = TypeVar("Broadcast", bound=tuple)  # has a field `params`
ClientState = TypeVar("ClientState", bound=tuple)
Report = TypeVar("Report", bound=tuple)


class Messages(NamedTuple):
    """The four NamedTuple types of an algorithm; their fields are the wire format, the checkpoint and the store."""

    server: type
    sent: type
    kept: type
    reported: type


class Algorithm(ABC, Generic[ServerState, Broadcast, ClientState, Report]):
    """Subclasses are frozen, final dataclasses: their fields are the hyperparameters, checked in `__post_init__`."""

    __dataclass_fields__: ClassVar[dict[str, Any]]
    paper: ClassVar[str] = ""  # shown by `fedcm algorithms`

    @abstractmethod
    def init_server(self, params: Vector) -> ServerState: ...

    @abstractmethod
    def init_client(self, params: Vector) -> ClientState:
        """The state of a client not yet seen; `params` gives shape and dtype."""

    @abstractmethod
    def broadcast(self, server: ServerState) -> Broadcast: ...

    @abstractmethod
    def direction(self, gradient: Gradient, params: Vector, sent: Broadcast, kept: ClientState) -> Vector:
        """Where one local step comes from: params ← params − client_lr · direction."""

    @abstractmethod
    def report(self, run: LocalRun, sent: Broadcast, kept: ClientState) -> tuple[Report, ClientState]: ...

    @abstractmethod
    def update(self, server: ServerState, mean: Report, round: Round) -> ServerState:
        """`mean` has the fields of a report, each the mean over the cohort."""


def messages(algorithm: type[Algorithm]) -> Messages:
    """The message types that a class names in `Algorithm[ServerState, Broadcast, ClientState, Report]`."""
    for base in getattr(algorithm, "__orig_bases__", ()):
        types = get_args(base)
        if len(types) == 4 and all(hasattr(t, "_fields") for t in types):
            return Messages(*types)
    raise TypeError(
        f"{algorithm.__name__} must derive from Algorithm[ServerState, Broadcast, ClientState, Report] "
        "with four NamedTuples in the brackets"
    )
