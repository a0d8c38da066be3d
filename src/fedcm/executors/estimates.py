"""Unbiased estimates of gradient statistics over all clients, from a sample of clients and of minibatches.

The population is all N clients, each counted once, at one point x:

    ∇f = (1/N) Σ ∇f_i        σ_g² = (1/N) Σ ‖∇f_i − ∇f‖²

A sample is n of them without replacement, with mean ḡ and mean squared deviation m = (1/n) Σ ‖∇f_i − ḡ‖². Then

    E m = σ_g²·N(n − 1)/((N − 1)n)                 so m·n(N − 1)/((n − 1)N) is unbiased for σ_g²
    E ‖ḡ‖² = ‖∇f‖² + (N − n)/(N − 1)·σ_g²/n        so ‖ḡ‖² minus the last term, with the estimate of σ_g², is
                                                   unbiased for ‖∇f‖²

The second estimate can be negative if the gradient is small. The cohort of a round is such a sample too, of a size S
that may vary.
"""

import math
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction


def estimate_variance(deviation: float, sampled: int, population: int) -> float:
    """Estimate the variance of the population (divided by N) from the mean squared deviation of a sample.

    Returns NaN for a sample of one client among several.

    >>> estimate_variance(2.0, sampled=5, population=5), estimate_variance(2.0, sampled=5, population=10)
    (2.0, 2.25)
    """
    if sampled == population:
        return deviation
    return deviation * sampled * (population - 1) / ((sampled - 1) * population) if sampled > 1 else math.nan


def estimate_square_of_mean(square: float, variance: float, sampled: int, population: int) -> float:
    """Estimate the square of the population's mean from the square of a sample's mean; the estimate may be negative.

    `variance` is the result of `estimate_variance`.
    """
    if sampled == population:
        return square
    return square - (population - sampled) / (population - 1) * variance / sampled


def estimate_round_variance(noise: float, dissimilarity: float, inverse_cohort: float, population: int) -> float:
    """Estimate the variance of a round's mean gradient about ∇f, with every minibatch gradient taken at the same x.

        V = E[1/S]·noise + (N·E[1/S] − 1)/(N − 1)·σ_g²

    The mean over a cohort of size S, drawn without replacement, has variance (N − S)/(N − 1)·σ_g²/S. The second term is
    its mean over the sizes, which covers every kind of participation.

    Args:
        noise: The mean over clients of E‖a client's mean gradient over its round − ∇f_i‖².
        dissimilarity: σ_g².
        inverse_cohort: E[1/S] over the rounds with a non-empty cohort.
        population: N.
    """
    factor = max(population * inverse_cohort - 1, 0.0) / (population - 1) if population > 1 else 0.0
    return inverse_cohort * noise + factor * dissimilarity


def compute_noise_share(passes: Sequence[Sequence[int]], examples: int) -> float:
    """Return the share of one minibatch's noise that is left in the mean over a round: E‖mean − ∇f_i‖² / σ_l².

    A pass draws the n examples without replacement, so the errors of its minibatches partly cancel. With s² the
    variance of an example's gradient (divided by n − 1), K minibatches of b_k examples, and r_p of them in pass p,

        σ_l² = s²·(1/K)·Σ_k (1/b_k − 1/n)        of the mean: s²·(Σ_k 1/b_k − Σ_p r_p²/n)/K²

    The share is 0 for whole passes of equal minibatches, and 1/K if each of K passes has one minibatch. If every
    minibatch has all examples, there is no such noise; other noise, such as dropout, is independent in each minibatch,
    so its share is 1/K.

    Args:
        passes: The sizes of the minibatches of each pass.
        examples: n, the number of examples of the client.

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
