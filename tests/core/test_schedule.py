"""The learning rates of a round."""

from typing import Any

import pytest

from fedcm.core.schedule import Schedule


def test_the_client_rate_decays_by_a_factor_per_round() -> None:
    schedule, rate = Schedule(client_lr=0.3, decay=0.9, server_lr=0.7), 0.3
    for round in range(50):
        assert schedule.client_lr_at(round) == pytest.approx(rate, rel=1e-12)
        rate *= 0.9
    assert schedule.server_lr == 0.7


def test_without_decay_the_rate_is_constant() -> None:
    assert [Schedule(0.2).client_lr_at(round) for round in (0, 1, 4000)] == [0.2, 0.2, 0.2]
    assert (Schedule().client_lr_at(7), Schedule().server_lr) == (0.1, 1.0), "the defaults of an experiment"


@pytest.mark.parametrize(
    "wrong",
    [{"client_lr": 0.0}, {"client_lr": -0.1}, {"server_lr": 0.0}, {"server_lr": -1.0}]
    + [{"decay": decay} for decay in (0.0, -0.5, 1.0001)],
    ids=str,
)
def test_rates_out_of_range_raise(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must be positive and lr_decay in"):
        Schedule(**wrong)
