"""Rows of schedules and optimisers: the trajectory is the literal one, with factors and steps by torch."""

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


def make_optimizer_rows() -> dict[str, Row]:
    """Return the rows of `client.optimizer`. Adam moves by about 1 per unit of the rate, so the rate is small."""
    base = {"client": {"epochs": 2, "batch_size": 4, "lr": 0.03}}
    values: dict[str, tuple[Any, Any, dict[str, Any]]] = {
        "sgd": (None, None, {"momentum": 0.9}),
        "sgd.momentum": (None, 0.9, {}),
        "sgd.dampening": (None, 0.5, {"momentum": 0.9}),
        "sgd.nesterov": (None, True, {"momentum": 0.9}),
        "adam": (None, None, {}),
        "adam.betas": (None, [0.5, 0.6], {}),
        "adam.eps": (None, 0.1, {}),
        "adamw": (None, None, {}),
        "adamw.betas": (None, [0.5, 0.6], {}),
        "adamw.eps": (None, 0.1, {}),
        "adamw.weight_decay": (None, 0.5, {}),
    }
    rows: dict[str, Row] = {"client.optimizer": changes_the_trajectory(None, {"name": "adam"}, **base)}
    for setting, (one, other, more) in values.items():
        name, _, field = setting.partition(".")
        tables: list[Any] = [
            {"name": name, **more} | ({field: value} if field and value is not None else {}) for value in (one, other)
        ]
        rows[f"client.optimizer.{setting}"] = _set_whole_table(
            "client.optimizer", tables[0], tables[1] if field else None, **base
        )
    return rows
