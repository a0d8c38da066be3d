"""What privacy an experiment has before it is trained: ε against rounds, noise and participation."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, final

from fedcm.config.sections import Experiment
from fedcm.core.participation import Independent
from fedcm.privacy.accountant import Accountant, Sampling
from fedcm.privacy.settings import fill_noise, make_accountant

_SHARES = (0.1, 0.3, 1.0, 2.0)  # of the rounds
_NOISES = (0.7, 1.0, 1.4, 2.0)  # times the experiment's
_PROBABILITIES = (0.25, 0.5, 1.0, 2.0)  # times the experiment's


class PlannedRow(NamedTuple):
    """ε of other noise or participation."""

    noise_multiplier: float
    probability: float | None  # None if clients are not drawn independently
    epsilons: tuple[float, ...]  # at the rounds of the plan
    is_own: bool  # whether it is the experiment's own row


@final
@dataclass(frozen=True)
class PrivacyPlan:
    """What the privacy of an experiment costs.

    Attributes:
        accountant: The experiment's noise, sampling and δ.
        total: The rounds of the experiment.
        budget: The experiment's ε; None if it has none.
        rounds: The rounds at which ε is computed.
        by_noise: A row for each noise multiplier.
        by_participation: A row for each probability; empty if clients are not drawn independently.
    """

    accountant: Accountant
    total: int
    budget: float | None
    rounds: tuple[int, ...]
    by_noise: tuple[PlannedRow, ...]
    by_participation: tuple[PlannedRow, ...]

    @property
    def epsilon(self) -> float:
        """ε after all rounds of the experiment."""
        return self.accountant.compute_epsilon(self.total)

    @property
    def paid_rounds(self) -> int:
        """The number of rounds that the budget pays for, at most those of the experiment."""
        return self.total if self.budget is None else self.accountant.count_rounds(self.budget, self.total)

    def to_table(self) -> dict[str, Any]:
        """Return the plan as a dict for JSON."""
        own = self.accountant
        return {
            "epsilon": self.epsilon,
            "epsilon_by_rdp": own.compute_rdp_epsilon(self.total),
            "delta": own.delta,
            "noise_multiplier": own.noise_multiplier,
            "adjacency": own.sampling.adjacency,
            "amplification": own.sampling.probability < 1,
            "total_rounds": self.total,
            "budget": self.budget,
            "paid_rounds": self.paid_rounds,
            "rounds": list(self.rounds),
            "by_noise": [row._asdict() for row in self.by_noise],
            "by_participation": [row._asdict() for row in self.by_participation],
        }


def make_privacy_plan(experiment: Experiment) -> PrivacyPlan:
    """Compute the plan of a private experiment; it may not have its noise yet."""
    experiment = fill_noise(experiment)
    own, total = make_accountant(experiment), experiment.rounds
    rounds = tuple(dict.fromkeys(max(round(share * total), 1) for share in _SHARES))
    drawn = isinstance(experiment.participation, Independent)
    probability = experiment.participation.probability if drawn else None
    by_noise = [
        _make_row(own.sampling, factor * own.noise_multiplier, own.delta, rounds, probability, is_own=factor == 1)
        for factor in _NOISES
    ]
    by_participation = [
        _make_row(
            Sampling.of(Independent(factor * probability)),
            own.noise_multiplier,
            own.delta,
            rounds,
            factor * probability,
            is_own=factor == 1,
        )
        for factor in _PROBABILITIES
        if probability is not None and factor * probability <= 1
    ]
    return PrivacyPlan(own, total, experiment.privacy.epsilon, rounds, tuple(by_noise), tuple(by_participation))


def _make_row(
    sampling: Sampling, noise: float, delta: float, rounds: Sequence[int], probability: float | None, *, is_own: bool
) -> PlannedRow:
    accountant = Accountant(sampling, noise, delta)
    return PlannedRow(noise, probability, tuple(accountant.compute_epsilon(count) for count in rounds), is_own)
