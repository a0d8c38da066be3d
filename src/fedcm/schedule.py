"""The learning rates of a round."""

from dataclasses import dataclass
from typing import final


@final
@dataclass(frozen=True)
class Schedule:
    """η_l(t) = client_lr · decay^t; the server's rate is constant.

    >>> Schedule(client_lr=0.1, decay=0.5).client(2)
    0.025
    """

    client_lr: float = 0.1
    decay: float = 1.0  # per round
    server_lr: float = 1.0  # 1.0 = plain averaging

    def client(self, round: int) -> float:
        return self.client_lr * self.decay**round
