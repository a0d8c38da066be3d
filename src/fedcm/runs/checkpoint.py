"""Checkpoints of a run: tensors as safetensors, and beside them a JSON file with their checksum.

The JSON file is written last, so a checkpoint exists only when both files are complete. Nothing is unpickled.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from fedcm.system.files import atomic_write, write_text

FORMAT = 1


class Checkpoint(NamedTuple):
    """The state of a run between two rounds."""

    next_round: int
    server: Any  # the algorithm's server state
    client_states: dict[str, Tensor]


class DamagedError(Exception):
    """A checkpoint is not what was written."""


def write(folder: Path, checkpoint: Checkpoint, keep: int) -> None:
    """Write a checkpoint, then delete all but the newest `keep`."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {
        f"server.{name}": field for name, field in zip(checkpoint.server._fields, checkpoint.server, strict=True)
    }
    tensors |= {f"client.{name}": field for name, field in checkpoint.client_states.items()}
    target = folder / f"round-{checkpoint.next_round:06d}.safetensors"
    with atomic_write(target) as temporary:
        save_tensors(tensors, temporary, {"next_round": str(checkpoint.next_round)})
        digest = hash_file(temporary)
    note = {"format": FORMAT, "sha256": digest}
    write_text(target.with_suffix(".json"), json.dumps(note) + "\n")
    for old in _list_notes(folder)[keep:]:
        old.unlink(missing_ok=True)
        old.with_suffix(".safetensors").unlink(missing_ok=True)


def save_tensors(tensors: Mapping[str, Tensor], path: Path, metadata: dict[str, str] | None = None) -> None:
    """Write tensors as safetensors; raise an OSError if the disk is full."""
    apart: dict[str, Tensor] = {}
    memories: set[int] = set()
    for name, tensor in tensors.items():  # the format does not allow two names for the same memory
        memory = tensor.untyped_storage().data_ptr()
        apart[name] = tensor.detach().clone() if memory in memories else tensor.detach().cpu().contiguous()
        memories.add(memory)
    try:
        save_file(apart, path, metadata)
    except SafetensorError as error:
        raise OSError(f"{path.parent} cannot be written: {error}") from None


def read_newest(
    folder: Path, template: Any, take: Callable[[dict[str, Tensor]], str | None], notify: Callable[[str], None]
) -> Checkpoint | None:
    """Return the newest complete checkpoint; None if there is none.

    Args:
        folder: The folder of checkpoints.
        template: A server state of the algorithm, with the required fields and shapes.
        take: Accepts the client states, or returns what is wrong with them.
        notify: Called with one sentence about each damaged checkpoint that is skipped.
    """
    for note in _list_notes(folder):
        try:
            checkpoint = _read(note, template)
            if wrong := take(checkpoint.client_states):
                raise DamagedError(wrong)
            return checkpoint
        except DamagedError as damage:
            notify(f"checkpoint {note.stem} is damaged ({damage}); the one before it is used")
    return None


def exists(folder: Path) -> bool:
    """Return whether there is a checkpoint, complete or damaged."""
    return bool(_list_notes(folder))


def clear_after(folder: Path, next_round: int) -> None:
    """Delete newer checkpoints, which are damaged, and files that a killed process was writing or deleting."""
    for note in _list_notes(folder):
        if _read_round(note) > next_round:
            note.unlink()
    for half in folder.glob(".round-*"):
        half.unlink()
    for tensors in folder.glob("round-*.safetensors"):
        if not tensors.with_suffix(".json").exists():
            tensors.unlink()


def hash_file(path: Path) -> str:
    """Return the sha256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _read(note: Path, template: Any) -> Checkpoint:
    tensors_path = note.with_suffix(".safetensors")
    try:
        table = json.loads(note.read_text(encoding="utf-8"))
        version, digest = table["format"], table["sha256"]
    except (OSError, ValueError, KeyError, TypeError):
        raise DamagedError("its JSON cannot be read") from None
    if version != FORMAT:
        raise DamagedError(f"its format is {version!r}, this version reads {FORMAT}")
    try:
        if hash_file(tensors_path) != digest:
            raise DamagedError("its checksum does not match")
        with safe_open(tensors_path, "pt") as file:
            next_round = int(file.metadata()["next_round"])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - it is not a dict
    except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
        raise DamagedError(f"its tensors cannot be read: {error}") from None
    if next_round != _read_round(note):
        raise DamagedError(f"it holds the state after {next_round} rounds")
    return Checkpoint(next_round, _read_server(tensors, template), _with_prefix(tensors, "client."))


def _read_server(tensors: dict[str, Tensor], template: Any) -> Any:
    fields = _with_prefix(tensors, "server.")
    expected = {name: field.shape for name, field in zip(template._fields, template, strict=True)}
    if {name: field.shape for name, field in fields.items()} != expected:
        raise DamagedError("its tensors are not those of this experiment")
    return type(template)(**{name: fields[name].to(getattr(template, name)) for name in template._fields})


def _with_prefix(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def _list_notes(folder: Path) -> list[Path]:
    """The JSON files, newest first."""
    notes = [note for note in folder.glob("round-*.json") if note.stem.removeprefix("round-").isdecimal()]
    return sorted(notes, key=_read_round, reverse=True)


def _read_round(note: Path) -> int:
    return int(note.stem.removeprefix("round-"))
