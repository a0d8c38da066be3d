"""Unbiased estimates of what gradients are like over all clients, from a sample of clients and of minibatches.

The population is all N clients, each counted once, at one point x:

    ∇f = (1/N) Σ ∇f_i        σ_g² = (1/N) Σ ‖∇f_i − ∇f‖²

A sample is n of them without replacement, with mean ḡ and mean squared deviation m = (1/n) Σ ‖∇f_i − ḡ‖². Then

    E m = σ_g²·N(n − 1)/((N − 1)n)                 so m·n(N − 1)/((n − 1)N) is unbiased for σ_g²
    E ‖ḡ‖² = ‖∇f‖² + (N − n)/(N − 1)·σ_g²/n        so ‖ḡ‖² less that term, with the estimate of σ_g², is for ‖∇f‖²

The second can be negative where the gradient is small. A round's cohort is such a sample too; its size S may vary.
"""

import math
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction


def estimate_variance(deviation: float, sampled: int, population: int) -> float:
    """The population's variance, its sum of squares divided by N, from a sample's mean squared deviation.

    Of one client among several nothing can be said: NaN.

    >>> estimate_variance(2.0, sampled=5, population=5), estimate_variance(2.0, sampled=5, population=10)
    (2.0, 2.25)
    """
    if sampled == population:
        return deviation
    return deviation * sampled * (population - 1) / ((sampled - 1) * population) if sampled > 1 else math.nan


def estimate_square_of_mean(square: float, variance: float, sampled: int, population: int) -> float:
    """The square of the population's mean, from that of a sample's mean and `estimate_variance`; may be negative."""
    if sampled == population:
        return square
    return square - (population - sampled) / (population - 1) * variance / sampled


def estimate_round_variance(noise: float, dissimilarity: float, inverse_cohort: float, population: int) -> float:
    """The variance of a round's mean gradient about ∇f, where every minibatch gradient is taken at the same x.

        V = E[1/S]·noise + (N·E[1/S] − 1)/(N − 1)·σ_g²

    A cohort of a given size S is a sample without replacement, so its mean has (N − S)/(N − 1)·σ_g²/S; this is the mean
    of that over the sizes. It covers a fixed size, independent activation and everyone.

    Args:
        noise: the mean over clients of E‖a client's mean gradient over its round − ∇f_i‖².
        dissimilarity: σ_g².
        inverse_cohort: E[1/S] over the rounds with anybody.
        population: N.
    """
    sampled = max(population * inverse_cohort - 1, 0.0) / (population - 1) if population > 1 else 0.0
    return inverse_cohort * noise + sampled * dissimilarity


def compute_noise_share(passes: Sequence[Sequence[int]], examples: int) -> float:
    """What the mean over a round's minibatches leaves of the noise of one: E‖mean − ∇f_i‖² / σ_l².

    A pass draws the n examples without replacement, so its minibatches make up for each other. With s² the variance of
    an example's gradient (divided by n − 1), K minibatches of b_k examples, and r_p of them in pass p,

        σ_l² = s²·(1/K)·Σ_k (1/b_k − 1/n)        of the mean: s²·(Σ_k 1/b_k − Σ_p r_p²/n)/K²

    The share is 0 for whole passes of equal minibatches, and 1/K where each of K passes has one minibatch. Where every
    minibatch has all examples there is no such noise; what is left, dropout for example, is independent in each: 1/K.

    Args:
        passes: the sizes of the minibatches, pass after pass.
        examples: n, how many examples the client holds.

    >>> compute_noise_share([[50, 50], [50, 50]], 100), compute_noise_share([[50], [50]], 100)
    (0.0, 0.5)
    """
    sizes = Counter(size for one_pass in passes for size in one_pass)
    steps = sizes.total()
    inverses = sum((Fraction(count, size) for size, count in sizes.items()), Fraction())
    single = (inverses - Fraction(steps, examples)) / steps
    if single == 0:
        return 1 / steps
    mean = (inverses - Fraction(sum(len(one_pass) ** 2 for one_pass in passes), examples)) / steps**2
    return float(mean / single)
