"""ε of a number of noisy rounds, by the package `dp-accounting`.

Rounds whose clients are drawn independently are Poisson samples, composed as privacy loss distributions (PLD). All
other rounds are accounted for without amplification, as plain Gaussian mechanisms. The noise is a discrete Gaussian on
a grid of 2²⁰ steps per threshold, or fewer if the noise is above 64 thresholds. Its Rényi divergences of whole orders
are those of the continuous Gaussian exactly, and the PLD treats it as continuous. `compute_rdp_epsilon` is the check by
Rényi divergences alone.
"""

import logging
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, final

from fedcm.core.participation import Everyone, FixedSize, Independent, Participation
from fedcm.errors import UserError

_INTERVAL = 1e-3  # of the discretised privacy loss; a coarser one gives a larger ε, never a smaller one
_EXACT_BITS = 3  # of a number of rounds, after the first
_LEAST_NOISE, _MOST_NOISE = 0.02, 1000.0


def import_accounting() -> Any:
    """Import `dp_accounting`.

    Raises:
        UserError: If it is not installed.
    """
    try:
        import dp_accounting
    except ImportError as error:
        raise UserError(
            f"privacy needs the package 'dp-accounting', which cannot be imported ({error}); install it with "
            "`pip install 'fedcm[privacy]'`"
        ) from None
    return dp_accounting


@contextmanager
def _leave_out_warnings() -> Iterator[None]:
    """Leave out the library's warnings of orders that it cannot compute: without them ε is larger, never too small."""
    logger = logging.getLogger("absl")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


@final
@dataclass(frozen=True)
class Sampling:
    """How clients are drawn, as far as privacy depends on it.

    Attributes:
        probability: The probability that a client takes part in a round; 1 if no amplification may be claimed.
        sensitivity: By how many thresholds one client can change the sum of a round.
        adjacency: Which change of the population must not be noticed.
    """

    probability: float
    sensitivity: float
    adjacency: str

    @classmethod
    def of(cls, participation: Participation) -> "Sampling":
        """Return the sampling of a participation.

        Raises:
            UserError: If it is not a known one.
        """
        match participation:
            case Independent(probability):
                return cls(probability, 1.0, "add or remove one client")
            case Everyone():
                return cls(1.0, 1.0, "add or remove one client")
            case FixedSize():  # without one client, another one takes its place: the sum changes by both
                return cls(1.0, 2.0, "replace one client")
        raise UserError(
            "privacy needs participation.kind = 'independent', 'fixed' or 'everyone', because its cost follows from "
            f"how clients are drawn, got {participation}"
        )


def count_expected_cohort(participation: Participation, population: int) -> float:
    """Return the expected number of clients of a round."""
    match participation:
        case Independent(probability):
            return probability * population
        case FixedSize(clients):
            return min(clients, population)
    return population


@final
@dataclass(frozen=True)
class Accountant:
    """ε of rounds with equal noise.

    Attributes:
        sampling: How clients are drawn.
        noise_multiplier: Standard deviation of the noise of the sum, over the threshold.
        delta: δ.
    """

    sampling: Sampling
    noise_multiplier: float
    delta: float

    def compute_epsilon(self, rounds: int) -> float:
        """Return ε after a number of rounds; 0 before the first."""
        if not rounds:
            return 0.0
        return _compute_epsilon(
            self.sampling.probability, self.noise_multiplier / self.sampling.sensitivity, rounds, self.delta
        )

    def bound_epsilon(self, rounds: int, horizon: int) -> float:
        """Return ε after a number of rounds or a few more, which takes less time for all rounds of a run.

        The number is rounded up to 4 significant bits, by less than an eighth, but not beyond the horizon.
        """
        if self.sampling.probability == 1:
            return self.compute_epsilon(rounds)
        step = 1 << max(rounds.bit_length() - 1 - _EXACT_BITS, 0)
        above = -(-rounds // step) * step
        return self.compute_epsilon(min(above, horizon) if rounds <= horizon else above)

    def compute_rdp_epsilon(self, rounds: int) -> float:
        """Return ε by Rényi divergences: an upper bound that is usually a little larger."""
        dp = import_accounting()
        event = dp.GaussianDpEvent(self.noise_multiplier / self.sampling.sensitivity)
        if self.sampling.probability < 1:
            event = dp.PoissonSampledDpEvent(self.sampling.probability, event)
        accountant = dp.rdp.RdpAccountant()
        with _leave_out_warnings():
            accountant.compose(event, rounds)
        return float(accountant.get_epsilon(self.delta))

    def count_rounds(self, budget: float, most: int) -> int:
        """Return the greatest number of rounds, up to `most`, whose ε is within the budget."""
        if self.compute_epsilon(most) <= budget:
            return most
        low, high = 0, most
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.compute_epsilon(middle) <= budget else (low, middle)
        return low


def calibrate_noise(sampling: Sampling, epsilon: float, delta: float, rounds: int) -> float:
    """Return the least noise multiplier, up to a thousandth, whose rounds stay within ε.

    Raises:
        UserError: If no noise of a reasonable size is enough.
    """
    return _calibrate(sampling, epsilon, delta, rounds)


@lru_cache(maxsize=64)
def _calibrate(sampling: Sampling, epsilon: float, delta: float, rounds: int) -> float:
    def measure(noise: float) -> float:
        """Return log(ε / wanted), which is almost linear in log(noise): a line through two points finds the root."""
        return math.log(Accountant(sampling, noise, delta).compute_epsilon(rounds) / epsilon)

    low, high = _LEAST_NOISE, _MOST_NOISE  # in between, ε falls from too much to enough
    noise = _guess_noise(sampling, epsilon, delta, rounds)
    excess, slope = measure(noise), -1.5
    while True:
        low, high = (noise, high) if excess > 0 else (low, noise)
        if low * 1.001 >= _MOST_NOISE:
            raise UserError(
                f"{rounds} rounds within epsilon = {epsilon:g} at delta = {delta:g} need more noise than a thousand "
                "times a report; raise privacy.epsilon, or lower rounds or the participation"
            )
        if high / low <= 1.001 or high * 0.999 <= _LEAST_NOISE:
            return math.ceil(high * 1e5) / 1e5  # a short number for the experiment's file; more noise costs less
        step = math.exp(-excess / slope)
        following = noise * step * (1.0004 if excess > 0 else 0.9996)  # a little beyond, to close in from both sides
        if not low < following < high:
            following = math.sqrt(low * high)
        before, noise = (noise, excess), following
        excess = measure(noise)
        slope = min((excess - before[1]) / math.log(noise / before[0]), -0.1)


def _guess_noise(sampling: Sampling, epsilon: float, delta: float, rounds: int) -> float:
    """Return a noise multiplier of the right size, by the central limit of many rounds with small probability."""
    spread = sampling.probability * math.sqrt(rounds * math.log(1 / delta)) / epsilon
    return min(max(0.5 + 2 * sampling.sensitivity * spread, 2 * _LEAST_NOISE), _MOST_NOISE / 2)


@lru_cache(maxsize=4096)
def _compute_epsilon(probability: float, noise: float, rounds: int, delta: float) -> float:
    if probability == 1 or noise < _LEAST_NOISE:  # with so little noise, sampling hardly helps and its PLD is huge
        return float(import_accounting().get_epsilon_gaussian(noise / math.sqrt(rounds), delta))
    return float(_make_loss_distribution(probability, noise).self_compose(rounds).get_epsilon_for_delta(delta))


@lru_cache(maxsize=16)
def _make_loss_distribution(probability: float, noise: float) -> Any:
    accounting = import_accounting().pld.privacy_loss_distribution
    return accounting.from_gaussian_mechanism(noise, sampling_prob=probability, value_discretization_interval=_INTERVAL)
