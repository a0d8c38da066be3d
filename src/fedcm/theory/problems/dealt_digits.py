"""The real digits dealt out by label to clients of equal size, and turned into a question of yes or no.

Every client holds the same number of examples, so that the mean over clients is the mean over examples. The label skew
is the paper's, Dirichlet over the ten digits. The question is whether a digit is 5 or more; its answer is +1 or −1.
"""

import math
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from fedcm.rng import Purpose, make_generator


class DealtDigits(NamedTuple):
    features: Tensor  # (N, n, 65): pixels from 0 to 1 and a 1 for the bias, divided by √65
    answers: Tensor  # (N, n): +1 or −1


@lru_cache(maxsize=4)
def dealt_digits(clients: int, concentration: float, seed: int = 0) -> DealtDigits:
    from fedcm.data.partition import Dirichlet
    from fedcm.data.sources.digits import load

    examples = load().train
    parts = Dirichlet(clients, concentration).parts(examples.labels.numpy(), make_generator(seed, Purpose.SPLIT))
    each = min(len(part) for part in parts)  # what is left over, fewer than one a client, is not used
    chosen = torch.stack([torch.from_numpy(part[:each]) for part in parts])
    pixels = examples.features.reshape(examples.size, -1).double() / 16
    with_bias = torch.cat([pixels, torch.ones(len(pixels), 1, dtype=torch.float64)], dim=1)
    answers = torch.where(examples.labels >= 5, 1.0, -1.0).double()
    return DealtDigits((with_bias / math.sqrt(with_bias.shape[1]))[chosen], answers[chosen])
