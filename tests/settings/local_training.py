"""Rows of the schedules: the trajectory is the literal one with the factors that torch computes."""

from typing import Any

from trajectories import Row, changes_the_trajectory

FEDAVG = {"algorithm": {"name": "fedavg"}}
FALL = "torch_schedules:fall"

# by kind and setting: two values, and what else the table must have
_VALUES: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "constant": (None, None, {}),
    "constant.warmup": (None, 3, {}),
    "exponential.decay": (0.9, 0.4, {}),
    "exponential.warmup": (None, 3, {"decay": 0.6}),
    "step": (None, None, {"every": 2}),
    "step.factor": (None, 0.6, {"every": 1}),
    "step.every": (1, 2, {}),
    "step.milestones": ([1], [2, 3], {}),
    "step.warmup": (None, 2, {"every": 1}),
    "cosine": (None, None, {}),
    "cosine.final": (None, 0.5, {}),
    "cosine.over": (None, 2, {}),
    "cosine.warmup": (None, 2, {}),
    "polynomial": (None, None, {}),
    "polynomial.power": (None, 3.0, {}),
    "polynomial.final": (None, 0.5, {}),
    "polynomial.over": (None, 2, {}),
    "polynomial.warmup": (None, 2, {}),
    "function.function": (FALL, None, {}),
    "function.over": (None, 2, {"function": FALL}),
    "function.warmup": (None, 2, {"function": FALL}),
}


def make_schedule_rows(place: str) -> dict[str, Row]:
    """Return the rows of `client.schedule`, `server.schedule` or `client.step_schedule`.

    The literal run scales the gradients of the steps, so the rows of `client.step_schedule` are for FedAvg.
    """
    base = FEDAVG if place == "client.step_schedule" else {}
    rows: dict[str, Row] = {place: changes_the_trajectory(None, {"kind": "cosine"}, **base)}
    for name, (one, other, more) in _VALUES.items():
        kind, _, field = name.partition(".")
        tables = [
            {"kind": kind, **more} | ({field: value} if field and value is not None else {}) for value in (one, other)
        ]
        if one == other or field == "function":  # the choice itself: it differs from no schedule at all
            tables = [tables[0], None if kind != "constant" else {"kind": "cosine"}]
        rows[f"{place}.{name}"] = _set_whole_table(place, *tables, **base)
    return rows


def _set_whole_table(place: str, *tables: Any, **base: Any) -> Row:
    return lambda bench, setting: changes_the_trajectory(*tables, **base)(bench, place)
