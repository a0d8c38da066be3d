"""The learning rates of a round."""

from dataclasses import dataclass
from typing import final


@final
@dataclass(frozen=True)
class Schedule:
    """The client rate decays, η_l(t) = client_lr · decay^t; the server rate is constant.

    >>> Schedule(client_lr=0.1, decay=0.5).client_lr_at(2)
    0.025
    """

    client_lr: float = 0.1
    decay: float = 1.0  # per round
    server_lr: float = 1.0  # 1.0 = plain averaging

    def __post_init__(self) -> None:
        if not (self.client_lr > 0 and self.server_lr > 0 and 0 < self.decay <= 1):
            raise ValueError(f"lr and server_lr must be positive and lr_decay in (0, 1], got {self}")

    def client_lr_at(self, round: int) -> float:
        """Return η_l of a round."""
        return self.client_lr * self.decay**round
