"""Random federated problems of every kind, small enough to enumerate all cohorts."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import torch
from torch import Tensor

from fedcm.theory.problems.known_problem import KnownProblem, compute_dissimilarity
from fedcm.theory.problems.losses import LOGISTIC, SQUARES
from fedcm.theory.problems.quadratics import Quadratics
from fedcm.theory.problems.regression import Regression
from fedcm.theory.problems.sampling import RoundSample
from fedcm.theory.problems.saturating import Saturating
from fedcm.theory.theorem.bounds import TheoremSetting

KINDS = ("quadratics", "ridge", "logistic", "saturating")


def random_quadratics(generator: np.random.Generator, noise: float = 0.0) -> Quadratics:
    smoothness = 10 ** generator.uniform(-1, 1)
    return Quadratics(
        distinct=int(generator.integers(4, 7)),
        dimension=int(generator.integers(2, 5)),
        strong_convexity=smoothness * generator.uniform(0.01, 0.2),
        smoothness=smoothness,
        noise=noise,
        dissimilarity=generator.uniform(0, 3),
        spread=generator.uniform(0, 0.6),
        alignment=generator.uniform(0, 1),
        seed=int(generator.integers(0, 2**31)),
    )


def random_problem(kind: str, generator: np.random.Generator) -> KnownProblem:
    """Make a problem without gradient noise, so that only the cohorts are random."""
    clients, dimension = int(generator.integers(2, 6)), int(generator.integers(1, 5))
    if kind == "quadratics":
        return random_quadratics(generator)
    if kind == "saturating":
        return Saturating(
            clients, dimension, dissimilarity=generator.uniform(0, 3), seed=int(generator.integers(0, 2**31))
        )
    features = torch.from_numpy(
        generator.normal(size=(clients, 6, dimension)) * generator.uniform(0.2, 2, (clients, 1, 1))
    )
    if kind == "ridge":
        targets = torch.from_numpy(generator.normal(size=(clients, 6)) * generator.uniform(0.2, 4, (clients, 1)))
        return Regression(SQUARES, features, targets, generator.uniform(0.01, 1))
    answers = torch.from_numpy(np.where(generator.random((clients, 6)) < generator.random((clients, 1)), 1.0, -1.0))
    return Regression(LOGISTIC, features, answers, generator.uniform(0.01, 1))


def list_cohorts(clients: int, size: int) -> Tensor:
    """List all cohorts, (number, size); used as replicates, their mean is the expectation."""
    return torch.tensor(list(combinations(range(clients), size)))


def sample_everyone(problem: KnownProblem, replicates: int = 1) -> RoundSample:
    """Return a round in which all clients take part, without noise."""
    return RoundSample(torch.arange(problem.clients).expand(replicates, -1), None)


def make_setting_at(
    problem: KnownProblem, points: Tensor, cohort_size: int, steps: int, alpha: float
) -> TheoremSetting:
    """Make the tightest setting for the lemmas: G and σ_g at the given points (R, d), root mean square."""
    gradient = float(problem.gradient(points).square().sum(-1).mean().sqrt())
    dissimilarity = float(compute_dissimilarity(problem, points).square().mean().sqrt())
    constants = problem.constants._replace(dissimilarity=dissimilarity)
    return TheoremSetting(constants, gradient, problem.clients, cohort_size, steps, alpha)


def replace_constants(setting: TheoremSetting, **constants: float) -> TheoremSetting:
    """Replace constants, which makes a mutant of the bound."""
    return replace(setting, constants=setting.constants._replace(**constants))
