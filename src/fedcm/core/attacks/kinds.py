"""The attacks that a simulation knows.

Hostile clients either change their reports (some of these see the honest reports of the round), or train on changed
data and report honestly.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import final

import numpy as np
import torch
from torch import Tensor

from fedcm.core.aggregation.robust.rows import ReportRows

Clients = float | tuple[int, ...]  # a share of all clients, or their indices


class Attack(ABC):
    """An attack: a frozen dataclass whose field `clients` says who is hostile."""

    clients: Clients


class ReportAttack(Attack):
    """An attack in which each hostile client changes its own report."""

    @abstractmethod
    def change(self, report: Sequence[Tensor], generator: torch.Generator) -> list[Tensor]:
        """Return the false report.

        Args:
            report: The fields of the honest report of one client.
            generator: Random numbers for this client and round.
        """


class CollusionAttack(Attack):
    """An attack in which all hostile clients send one report, made from the honest reports of the round."""

    @abstractmethod
    def forge(self, honest: ReportRows, hostile: int) -> list[Tensor]:
        """Return the fields of the false report.

        Args:
            honest: The reports of the honest clients, at least one.
            hostile: The number of hostile clients in the round.
        """


class DataAttack(Attack):
    """An attack on the training data of hostile clients."""


@final
@dataclass(frozen=True)
class SignFlip(ReportAttack):
    """Hostile clients report the negative of their report, times a factor."""

    clients: Clients = 0.2  # share of all clients that is hostile, or a list of clients
    factor: float = 1.0  # by which the flipped report is multiplied

    def __post_init__(self) -> None:
        _check(self.clients, factor=self.factor)

    def change(self, report: Sequence[Tensor], generator: torch.Generator) -> list[Tensor]:
        """Return the flipped report; see `ReportAttack`."""
        return [-self.factor * field for field in report]


@final
@dataclass(frozen=True)
class Scaled(ReportAttack):
    """Hostile clients multiply their report by a factor."""

    clients: Clients = 0.2  # share of all clients that is hostile, or a list of clients
    factor: float = 10.0  # by which the report is multiplied

    def __post_init__(self) -> None:
        _check(self.clients, factor=self.factor)

    def change(self, report: Sequence[Tensor], generator: torch.Generator) -> list[Tensor]:
        """Return the longer report; see `ReportAttack`."""
        return [self.factor * field for field in report]


@final
@dataclass(frozen=True)
class Noise(ReportAttack):
    """Hostile clients add Gaussian noise to their report."""

    clients: Clients = 0.2  # share of all clients that is hostile, or a list of clients
    factor: float = 10.0  # norm of the noise, in units of the norm of the report

    def __post_init__(self) -> None:
        _check(self.clients, factor=self.factor)

    def change(self, report: Sequence[Tensor], generator: torch.Generator) -> list[Tensor]:
        """Return the noisy report; see `ReportAttack`."""
        norm = math.sqrt(sum(float(torch.linalg.vector_norm(field, dtype=torch.float64)) ** 2 for field in report))
        std = self.factor * norm / math.sqrt(sum(field.numel() for field in report))
        return [field + std * torch.randn(field.shape, generator=generator).to(field) for field in report]


@final
@dataclass(frozen=True)
class LittleIsEnough(CollusionAttack):
    """ "A little is enough": the mean of the honest reports minus z standard deviations, in every coordinate.

    By default z is the largest that hides among the honest reports, as in the paper; it is 0 for small cohorts.

    Baruch, Baruch & Goldberg, "A Little Is Enough: Circumventing Defenses For Distributed Learning", NeurIPS 2019.
    """

    clients: Clients = 0.2  # share of all clients that is hostile, or a list of clients
    z: float | None = None  # standard deviations; by default from the size of the cohort

    def __post_init__(self) -> None:
        _check(self.clients, **({} if self.z is None else {"z": self.z}))

    def forge(self, honest: ReportRows, hostile: int) -> list[Tensor]:
        """Return mean − z · std; see `CollusionAttack`."""
        z, forged = self.choose_z(honest.count, hostile), honest.make_zeros()
        for block in honest.iterate_blocks():
            std, mean = torch.std_mean(block.values, dim=0, correction=0)
            forged[block.field][block.columns] = mean - z * std
        return forged

    def choose_z(self, honest: int, hostile: int) -> float:
        """Return z: the given one, or Φ⁻¹((n − m − s) / (n − m)) with s = ⌊n/2 + 1⌋ − m, and at least 0."""
        if self.z is not None:
            return self.z
        supporters = (honest + hostile) // 2 + 1 - hostile
        quantile = min((honest - supporters) / honest, 1 - 1e-6)  # 1 if the hostile clients are a majority
        return max(NormalDist().inv_cdf(quantile), 0.0) if quantile > 0 else 0.0


@final
@dataclass(frozen=True)
class InnerProduct(CollusionAttack):
    """Inner product manipulation: −ε times the mean of the honest reports.

    Xie, Koyejo & Gupta, "Fall of Empires: Breaking Byzantine-tolerant SGD by Inner Product Manipulation", UAI 2019.
    """

    clients: Clients = 0.2  # share of all clients that is hostile, or a list of clients
    epsilon: float = 0.5  # ε

    def __post_init__(self) -> None:
        _check(self.clients, epsilon=self.epsilon)

    def forge(self, honest: ReportRows, hostile: int) -> list[Tensor]:
        """Return −ε · mean; see `CollusionAttack`."""
        return honest.mix(np.full(honest.count, -self.epsilon / honest.count))


@final
@dataclass(frozen=True)
class LabelFlip(DataAttack):
    """Hostile clients train with the label C − 1 − y in place of y, where C is the number of classes."""

    clients: Clients = 0.2  # share of all clients that is hostile, or a list of clients

    def __post_init__(self) -> None:
        _check(self.clients)


@final
@dataclass(frozen=True)
class Backdoor(DataAttack):
    """Hostile clients train some images with a bright square in the corner and the target label.

    Gu, Dolan-Gavitt & Garg, "BadNets", 2017; `boost` is the scaling of Bagdasaryan et al., "How To Backdoor Federated
    Learning", AISTATS 2020.
    """

    clients: Clients = 0.2  # share of all clients that is hostile, or a list of clients
    target: int = 0  # the label that the trigger should cause
    size: int = 2  # side of the square, in pixels
    share: float = 0.5  # share of a hostile client's images that get the trigger
    boost: float = 1.0  # factor of a hostile client's report

    def __post_init__(self) -> None:
        _check(self.clients, boost=self.boost)
        if self.target < 0 or self.size < 1:
            raise ValueError(f"target must be at least 0 and size at least 1, got {self.target} and {self.size}")
        if not 0 < self.share <= 1:
            raise ValueError(f"share must be above 0 and at most 1, got {self.share}")


ATTACKS: dict[str, type[Attack]] = {
    "sign-flip": SignFlip,
    "scaled": Scaled,
    "noise": Noise,
    "label-flip": LabelFlip,
    "alie": LittleIsEnough,
    "ipm": InnerProduct,
    "backdoor": Backdoor,
}


def _check(clients: Clients, **factors: float) -> None:
    if isinstance(clients, tuple):
        if not clients or min(clients) < 0 or len(set(clients)) < len(clients):
            raise ValueError(f"clients must be a share, or different clients from 0 on, got {list(clients)}")
    elif not 0 < clients <= 1:
        raise ValueError(f"clients must be a share above 0 and at most 1, or a list of clients, got {clients}")
    for name, value in factors.items():
        if not (value > 0 and math.isfinite(value)):
            raise ValueError(f"{name} must be above 0, got {value}")
