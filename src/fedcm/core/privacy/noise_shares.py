"""Shares of the noise: several parties add a discrete Gaussian each, and nobody knows all of the noise.

The sum of n discrete Gaussians N_Z(0, s²) is not one exactly, but almost: Kairouz, Liu & Steinke, "The Distributed
Discrete Gaussian Mechanism for Federated Learning with Secure Aggregation" (ICML 2021), theorem 1, bound the privacy
loss of such a sum by that of the Gaussian with variance n·s², plus a term that grows with the dimension times

    τ = 10 · Σ_{k=1}^{n−1} exp(−2π² s² · k / (k + 1))  ≤  10 · (n − 1) · exp(−π² s²)

From s = 16 steps on, exp(−π² s²) is below 10⁻¹⁰⁹⁷, so τ is nothing for any number of parties and any model.
"""

import math

from fedcm.core.privacy.clipping import choose_grid_bits

LEAST_SHARE = 16  # steps of the grid


def compute_share(noise_multiplier: float, bits: int, shares: int) -> int:
    """Return s, the parameter of one share in steps of the grid: `shares` of them have the variance of all the noise.

    >>> compute_share(1.0, bits=20, shares=4) == 2**19
    True
    """
    return math.ceil(noise_multiplier * 2**bits / math.sqrt(shares))


def compute_least_noise(shares: int) -> float:
    """Return the least noise multiplier whose shares have at least `LEAST_SHARE` steps.

    >>> compute_share(compute_least_noise(4), 20, 4)
    16
    """
    return LEAST_SHARE * math.sqrt(shares) / 2 ** choose_grid_bits(1.0)
