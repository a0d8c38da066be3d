"""Who reports before the deadline of a round, decided before anybody trains."""

from dataclasses import dataclass
from typing import NamedTuple, final

import numpy as np

from fedcm.data.batches import LocalWork
from fedcm.data.federated import FederatedData


class Admission(NamedTuple):
    """The clients of a cohort that report in time, and how long the round takes."""

    reporting: np.ndarray  # sorted
    simulated_seconds: float


@final
@dataclass(frozen=True)
class SimulatedDeadline:
    """Compares the simulated time of each client's work with the deadline."""

    local_work: LocalWork
    data: FederatedData
    seed: int

    def admit(self, cohort: np.ndarray, round: int) -> Admission:
        """Return who reports in a round.

        The round lasts as long as its slowest client would work without a deadline, but not beyond the deadline. A
        round without clients takes no time.
        """
        stragglers = self.local_work.stragglers
        assert stragglers is not None
        in_time, slowest = np.zeros(len(cohort), dtype=bool), 0.0
        sizes = self.data.sizes(cohort).tolist() if len(cohort) else []
        for position, (client, size) in enumerate(zip(cohort.tolist(), sizes, strict=True)):
            steps = self.local_work.plan_steps(size, self.seed, round, client)
            in_time[position] = stragglers.is_in_time(steps, self.seed, round, client)
            slowest = max(slowest, steps * stragglers.draw_step_seconds(self.seed, round, client))
        return Admission(cohort[in_time], min(slowest, stragglers.deadline))
