"""The bundled digits with two classes, split by label over clients of equal size.

Every client holds the same number of examples, so the mean over clients is the mean over examples. The split is the
paper's, Dirichlet over the ten digits. The label is +1 if the digit is 5 or more, otherwise −1.
"""

import math
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from fedcm.rng import Purpose, make_generator


class ClientDigits(NamedTuple):
    """Examples of N clients with n examples each."""

    features: Tensor  # (N, n, 65): pixels from 0 to 1 and a 1 for the bias, divided by √65
    labels: Tensor  # (N, n): +1 or −1


@lru_cache(maxsize=4)
def load_client_digits(clients: int, concentration: float, seed: int = 0) -> ClientDigits:
    """Load the digits and split them over `clients` with the given Dirichlet concentration."""
    from fedcm.data.partition import Dirichlet
    from fedcm.data.sources.digits import load_digits

    examples = load_digits().train
    parts = Dirichlet(clients, concentration).partition(examples.labels.numpy(), make_generator(seed, Purpose.SPLIT))
    size = min(len(part) for part in parts)  # the remainder, less than one example per client, is not used
    chosen = torch.stack([torch.from_numpy(part[:size]) for part in parts])
    pixels = examples.features.reshape(examples.size, -1).double() / 16
    with_bias = torch.cat([pixels, torch.ones(len(pixels), 1, dtype=torch.float64)], dim=1)
    labels = torch.where(examples.labels >= 5, 1.0, -1.0).double()
    return ClientDigits((with_bias / math.sqrt(with_bias.shape[1]))[chosen], labels[chosen])
