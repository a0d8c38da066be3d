"""What a round of an algorithm costs a client, found by running its functions once on example vectors."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from fedcm.core.algorithm import Algorithm, has_survey, is_decentralised
from fedcm.core.contract.templates import make_templates

_SHAPES = (torch.Size((25, 40)),)
_PARAMS = 1000


class RoundCosts(NamedTuple):
    """Costs per client and round. Vectors have the size of the model; scalars do not count."""

    down: int  # vectors that the client receives from the server, in all exchanges
    up: int  # vectors that the client sends; to each neighbour, if the algorithm is decentralised
    client_state: int  # vectors that the client keeps between rounds
    exchanges: int  # of the client with the server, or with its neighbours
    gradients_per_step: int
    full_gradients: int  # passes over all data of the client, beside the local steps


def measure_costs(algorithm: Algorithm[Any, Any, Any, Any]) -> RoundCosts:
    """Return what a round costs a client.

    >>> from fedcm.algorithms import FedCM
    >>> measure_costs(FedCM())
    RoundCosts(down=2, up=1, client_state=0, exchanges=1, gradients_per_step=1, full_gradients=0)
    """
    params, steps, full = torch.zeros(_PARAMS), _CountedGradient(), _CountedGradient()
    made = make_templates(algorithm, params, _SHAPES, gradient=steps, full_gradient=full)
    return RoundCosts(
        down=0 if is_decentralised(algorithm) else _count_vectors(made.broadcast),
        up=_count_vectors(made.survey) + _count_vectors(made.report),
        client_state=_count_vectors(made.client_state),
        exchanges=1 + has_survey(algorithm),
        gradients_per_step=steps.calls,
        full_gradients=full.calls,
    )


class _CountedGradient:
    """A zero gradient that counts its calls."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, params: Tensor) -> Tensor:
        self.calls += 1
        return torch.zeros_like(params)


def _count_vectors(message: Any) -> int:
    return sum(field.numel() // _PARAMS for field in message)
