"""With a local optimiser, the simulator follows the papers' pseudocode with u = Opt(g) in place of every gradient.

u is computed by torch.optim, in float64; see `transcripts` and `torch_optimizers`.
"""

from typing import Any

import pytest
import test_origins_reference as origins
import test_reference as basic
import test_successors_reference as successors
from transcripts import Row, check_same_trajectory

from fedcm.core.contract.costs import measure_costs

ROWS: dict[str, Row] = {**basic.ROWS, **origins.ROWS, **successors.ROWS}
CHOSEN = [name for name, row in ROWS.items() if not measure_costs(row.algorithm).full_gradients]
OPTIMIZERS: dict[str, dict[str, Any]] = {
    "momentum": {"name": "sgd", "momentum": 0.5, "dampening": 0.2},
    "nesterov": {"name": "sgd", "momentum": 0.5, "nesterov": True},
    "adam": {"name": "adam", "betas": [0.8, 0.95], "eps": 0.1},
    "adamw": {"name": "adamw", "betas": [0.8, 0.95], "eps": 0.1, "weight_decay": 0.05},
}
QUICK = ("FedAvg", "FedCM", "SCAFFOLD II", "FedDyn", "FedSAM")
LIMIT = 1e-12  # torch's u is the difference of two vectors of size ~1


def test_algorithms_with_full_gradients_are_the_only_ones_left_out() -> None:
    assert set(ROWS) - set(CHOSEN) == {"SCAFFOLD I", "Mime", "MimeLite", "FedDANE"}


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in CHOSEN]
)
def test_every_algorithm_uses_what_the_optimiser_moves_by(name: str) -> None:
    check_same_trajectory(slow_down(ROWS[name]), optimizer=OPTIMIZERS["adamw"], limit=LIMIT)


@pytest.mark.parametrize("optimizer", ["momentum", "nesterov", "adam"])
@pytest.mark.parametrize("name", QUICK)
def test_the_other_optimisers_are_those_of_torch(name: str, optimizer: str) -> None:
    check_same_trajectory(slow_down(ROWS[name]), optimizer=OPTIMIZERS[optimizer], limit=LIMIT)


@pytest.mark.parametrize("name", QUICK)
def test_weight_decay_and_clipping_come_before_the_optimiser(name: str) -> None:
    check_same_trajectory(
        slow_down(ROWS[name]), weight_decay=0.1, clip=0.5, optimizer=OPTIMIZERS["momentum"], limit=LIMIT
    )


@pytest.mark.parametrize("optimizer", ["nesterov", "adamw"])
@pytest.mark.parametrize("name", QUICK)
def test_stacked_clients_take_the_same_steps(name: str, optimizer: str) -> None:
    check_same_trajectory(slow_down(ROWS[name]), stack=3, optimizer=OPTIMIZERS[optimizer], limit=LIMIT)


def slow_down(row: Row) -> Row:
    """Adam's u is longer than these gradients."""
    return row._replace(client_lr=row.client_lr / 3)
