"""The learning rates of a round."""

from dataclasses import dataclass
from typing import final

from fedcm.core.schedule_kinds import RateSchedule


@final
@dataclass(frozen=True)
class Schedule:
    """The client rate and the server rate of every round.

    The client rate is η_l(t) = client_lr · decay^t, or client_lr · factor(t) with a schedule of its own. The server
    rate is constant, or server_lr · factor(t).

    >>> Schedule(client_lr=0.1, decay=0.5).client_lr_at(2)
    0.025
    """

    client_lr: float = 0.1
    decay: float = 1.0  # per round
    server_lr: float = 1.0  # 1.0 = plain averaging
    client: RateSchedule | None = None  # factors of client_lr, instead of decay
    server: RateSchedule | None = None  # factors of server_lr
    rounds: int = 1  # of the whole run, on which some schedules depend

    def __post_init__(self) -> None:
        if not (self.client_lr > 0 and self.server_lr > 0 and 0 < self.decay <= 1):
            raise ValueError(f"lr and server_lr must be positive and lr_decay in (0, 1], got {self}")
        if self.client is not None and self.decay != 1:
            raise ValueError(f"lr_decay must be 1 with a schedule of the client rate, got {self.decay}")

    def client_lr_at(self, round: int) -> float:
        """Return η_l of a round."""
        if self.client is None:
            return self.client_lr * self.decay**round
        return self.client_lr * self.client.compute_factor(round, self.rounds)

    def server_lr_at(self, round: int) -> float:
        """Return the server rate of a round."""
        if self.server is None:
            return self.server_lr
        return self.server_lr * self.server.compute_factor(round, self.rounds)
