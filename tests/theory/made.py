"""Random federated problems of every kind, small enough for expectations over all cohorts to be sums."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import torch
from torch import Tensor

from fedcm.theory.problems.draws import RoundDraws
from fedcm.theory.problems.known_problem import KnownProblem, dissimilarity
from fedcm.theory.problems.losses import LOGISTIC, SQUARES
from fedcm.theory.problems.quadratics import Quadratics
from fedcm.theory.problems.regression import Regression
from fedcm.theory.problems.saturating import Saturating
from fedcm.theory.theorem.bounds import Setting

KINDS = ("quadratics", "ridge", "logistic", "saturating")


def quadratics(draw: np.random.Generator, noise: float = 0.0) -> Quadratics:
    smoothness = 10 ** draw.uniform(-1, 1)
    return Quadratics(
        distinct=int(draw.integers(4, 7)),
        dimension=int(draw.integers(2, 5)),
        strong_convexity=smoothness * draw.uniform(0.01, 0.2),
        smoothness=smoothness,
        noise=noise,
        dissimilarity=draw.uniform(0, 3),
        spread=draw.uniform(0, 0.6),
        alignment=draw.uniform(0, 1),
        seed=int(draw.integers(0, 2**31)),
    )


def problem(kind: str, draw: np.random.Generator) -> KnownProblem:
    """Without noise: what is left to chance is who takes part."""
    clients, dimension = int(draw.integers(2, 6)), int(draw.integers(1, 5))
    if kind == "quadratics":
        return quadratics(draw)
    if kind == "saturating":
        return Saturating(clients, dimension, dissimilarity=draw.uniform(0, 3), seed=int(draw.integers(0, 2**31)))
    features = torch.from_numpy(draw.normal(size=(clients, 6, dimension)) * draw.uniform(0.2, 2, (clients, 1, 1)))
    if kind == "ridge":
        targets = torch.from_numpy(draw.normal(size=(clients, 6)) * draw.uniform(0.2, 4, (clients, 1)))
        return Regression(SQUARES, features, targets, draw.uniform(0.01, 1))
    answers = torch.from_numpy(np.where(draw.random((clients, 6)) < draw.random((clients, 1)), 1.0, -1.0))
    return Regression(LOGISTIC, features, answers, draw.uniform(0.01, 1))


def all_cohorts(clients: int, size: int) -> Tensor:
    """(number of cohorts, size): as replicates they make the mean over them an expectation."""
    return torch.tensor(list(combinations(range(clients), size)))


def everyone(problem: KnownProblem, replicates: int = 1) -> RoundDraws:
    return RoundDraws(torch.arange(problem.clients).expand(replicates, -1), None)


def setting_at(problem: KnownProblem, points: Tensor, cohort: int, steps: int, alpha: float) -> Setting:
    """The lemmas' constants no larger than they must be: G and σ_g at the given points (R, d), root mean square."""
    gradient = float(problem.gradient(points).square().sum(-1).mean().sqrt())
    differ = float(dissimilarity(problem, points).square().mean().sqrt())
    constants = problem.constants._replace(dissimilarity=differ)
    return Setting(constants, gradient, problem.clients, cohort, steps, alpha)


def without(setting: Setting, **constants: float) -> Setting:
    """With other constants: a mutant of its bound."""
    return replace(setting, constants=setting.constants._replace(**constants))
