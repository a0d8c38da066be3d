"""Which clients are hostile: the same ones in every round, a pure function of the seed."""

import numpy as np

from fedcm.core.attacks.kinds import Attack
from fedcm.errors import UserError
from fedcm.rng import Purpose, make_generator


def draw_hostile(attack: Attack, population: int, seed: int) -> np.ndarray:
    """Return the hostile clients, sorted.

    Raises:
        UserError: If a listed client does not exist, or the share makes no client hostile.
    """
    if isinstance(attack.clients, tuple):
        if max(attack.clients) >= population:
            raise UserError(
                f"attack.clients must be clients from 0 to {population - 1}, got {max(attack.clients)}; there are "
                f"{population} clients"
            )
        return np.array(sorted(attack.clients), dtype=np.int64)
    count = round(attack.clients * population)
    if count < 1:
        raise UserError(
            f"attack.clients = {attack.clients} makes none of the {population} clients hostile; raise it, or leave "
            "[attack] out"
        )
    drawn = make_generator(seed, Purpose.HOSTILE).choice(population, count, replace=False, shuffle=False)
    return np.sort(drawn)
