"""What trackers wrote, read with their own readers: (round, value) pairs by name, in the order they were written."""

import json
import os
import struct
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Series = dict[str, list[tuple[int, float]]]

_BLOCK = 32768  # of the log format that W&B's offline files have in common with LevelDB


def series(tracker: str, folder: Path) -> Series:
    return {"tensorboard": _events, "mlflow": _metrics, "wandb": _history}[tracker](folder)


def expected(folder: Path) -> Series:
    """The same of the run's own metrics."""
    found: Series = defaultdict(list)
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
                found[key].append((index, value))
    return dict(found)


def accumulated(folder: Path) -> Any:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    return EventAccumulator(str(folder / "tensorboard"), size_guidance={"scalars": 0}).Reload()


def _events(folder: Path) -> Series:
    events = accumulated(folder)
    return {tag: [(event.step, event.value) for event in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def mlflow_run(folder: Path) -> tuple[Any, Any]:
    from mlflow import MlflowClient

    client = MlflowClient(os.environ["MLFLOW_TRACKING_URI"])
    return client, client.get_run((folder / "mlflow-run-id").read_text().strip())


def _metrics(folder: Path) -> Series:
    client, run = mlflow_run(folder)
    names = [name for name in run.data.metrics if not name.startswith("summary/")]
    return {name: [(m.step, m.value) for m in client.get_metric_history(run.info.run_id, name)] for name in names}


def wandb_records(folder: Path) -> Iterator[Any]:
    """wandb itself has no reader of offline files in Python; its messages are its own."""
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
        if kind in (1, 4):  # whole, or the last piece
            yield Record.FromString(message)
            message = b""


def _history(folder: Path) -> Series:
    found: Series = defaultdict(list)
    for record in wandb_records(folder):
        if record.WhichOneof("record_type") == "history":
            values = {item.key or item.nested_key[0]: json.loads(item.value_json) for item in record.history.item}
            for key, value in values.items():
                if not key.startswith("_"):
                    found[key].append((int(values["_step"]), value))
    return dict(found)
