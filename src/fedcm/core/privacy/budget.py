"""The setting `privacy` of a training, and what its rounds cost."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import final

from fedcm.core.privacy.quantile import ClipQuantile
from fedcm.core.stopping import StopReason

EPSILON = "epsilon"  # the column with ε after a round
DEFAULT_DELTA = 1e-5


@final
@dataclass(frozen=True)
class Privacy:
    """Client-level differential privacy, for `fedcm.train(…, privacy=fedcm.Privacy(epsilon=8, clip=0.5))`.

    Give `epsilon`, `noise_multiplier` or both. With `epsilon` alone, the noise is the least that keeps all rounds
    within the budget. With both, the training ends before the budget is exceeded.

    Attributes:
        epsilon: The budget.
        delta: The probability of a worse loss of privacy, by default 1e-5; it must be below 1 / clients.
        noise_multiplier: The standard deviation of the noise over the greatest norm of a report.
        clip: The greatest norm of the private part of a report, or one threshold per field of the report.
        clip_quantile: Let the thresholds follow this quantile of the clients' norms; `clip` is where they start.
        secret: Draw the noise with a secret key that is stored in the run's folder, instead of one from the seed.
    """

    epsilon: float | None = None
    delta: float | None = None
    noise_multiplier: float | None = None
    clip: float | Mapping[str, float] | None = None
    clip_quantile: float | None = None
    secret: bool | None = None


@final
@dataclass(frozen=True)
class PrivacyBudget:
    """What the rounds of a private training cost, and when its budget is spent.

    Attributes:
        epsilon_after: Returns ε after a number of rounds.
        limit: The budget; None if there is none.
        rounds: The number of rounds that the budget pays for; None if there is no budget.
        quantile: How the clipping thresholds move; None if they are fixed.
    """

    epsilon_after: Callable[[int], float]
    limit: float | None = None
    rounds: int | None = None
    quantile: ClipQuantile | None = None

    def explain_end(self, round: int) -> StopReason | None:
        """Return why a run ends after this round; None if the budget pays for another one."""
        if self.rounds is None or round + 1 < self.rounds:
            return None
        spent, after = self.epsilon_after(round + 1), self.epsilon_after(round + 2)
        return StopReason(
            round,
            f"the privacy budget is spent: epsilon is {spent:.4g}, another round would make it {after:.4g} of "
            f"{self.limit:g}",
        )
