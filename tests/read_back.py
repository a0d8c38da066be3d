"""Read what trackers wrote, with their own readers: (round, value) pairs by name, in the order of writing."""

import json
import os
import struct
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Series = dict[str, list[tuple[int, float]]]

_BLOCK = 32768  # of the LevelDB log format, which W&B's offline files use


def read_series(tracker: str, folder: Path) -> Series:
    """Read all metrics that a tracker recorded for a run."""
    return {"tensorboard": _read_tensorboard, "mlflow": _read_mlflow, "wandb": _read_wandb}[tracker](folder)


def read_expected_series(folder: Path) -> Series:
    """Read the same from the run's own metrics.jsonl."""
    read_series: Series = defaultdict(list)
    total = {"bytes_down": 0, "bytes_up": 0}
    for line in (folder / "metrics.jsonl").read_text().splitlines():
        metrics = json.loads(line)
        index = metrics.pop("round")
        metrics.pop("clients")
        for key in total:
            total[key] += metrics.pop(key)
            metrics[f"total_{key}"] = total[key]
        for key, value in metrics.items():
            if value is not None:
                read_series[key].append((index, value))
    return dict(read_series)


def load_events(folder: Path) -> Any:
    """Load a run's TensorBoard events."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    return EventAccumulator(str(folder / "tensorboard"), size_guidance={"scalars": 0}).Reload()


def _read_tensorboard(folder: Path) -> Series:
    events = load_events(folder)
    return {tag: [(event.step, event.value) for event in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def load_mlflow_run(folder: Path) -> tuple[Any, Any]:
    """Return an MLflow client and the run in MLflow."""
    from mlflow import MlflowClient

    client = MlflowClient(os.environ["MLFLOW_TRACKING_URI"])
    return client, client.get_run((folder / "mlflow-run-id").read_text().strip())


def _read_mlflow(folder: Path) -> Series:
    client, run = load_mlflow_run(folder)
    names = [name for name in run.data.metrics if not name.startswith("summary/")]
    return {name: [(m.step, m.value) for m in client.get_metric_history(run.info.run_id, name)] for name in names}


def read_wandb_records(folder: Path) -> Iterator[Any]:
    """Read the records of a W&B offline file, for which wandb has no reader in Python."""
    from wandb.proto.wandb_internal_pb2 import Record  # pyright: ignore[reportAttributeAccessIssue]

    (path,) = folder.glob("wandb/offline-run-*/run-*.wandb")
    raw, at, message = path.read_bytes(), 7, b""
    assert raw.startswith(b":W&B")
    while at + 7 <= len(raw):
        left = _BLOCK - at % _BLOCK
        if left < 7:
            at += left
            continue
        _, size, kind = struct.unpack_from("<IHB", raw, at)
        message += raw[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):  # a complete record or its last piece
            yield Record.FromString(message)
            message = b""


def _read_wandb(folder: Path) -> Series:
    read_series: Series = defaultdict(list)
    for record in read_wandb_records(folder):
        if record.WhichOneof("record_type") == "history":
            values = {item.key or item.nested_key[0]: json.loads(item.value_json) for item in record.history.item}
            for key, value in values.items():
                if not key.startswith("_"):
                    read_series[key].append((int(values["_step"]), value))
    return dict(read_series)
