"""Checkpoints of a run: tensors as safetensors, and beside them a JSON file with their checksum.

The JSON file is written last, so a checkpoint exists only when both files are complete. Nothing is unpickled.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from safetensors import SafetensorError, safe_open
from torch import Tensor

from fedcm.system.callbacks import Notify
from fedcm.system.checksum import compute_file_sha256
from fedcm.system.files import atomic_write, write_text
from fedcm.system.formatting import format_count
from fedcm.system.storage.tensor_files import save_tensors

FORMAT = 1


class Checkpoint(NamedTuple):
    """The state of a run between two rounds."""

    next_round: int
    server: Any  # the algorithm's server state
    client_states: dict[str, Tensor]


class DamagedCheckpointError(Exception):
    """A checkpoint is not what was written."""


def write_checkpoint(folder: Path, checkpoint: Checkpoint, keep: int) -> None:
    """Write a checkpoint, then delete all but the newest `keep`."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {
        f"server.{name}": field for name, field in zip(checkpoint.server._fields, checkpoint.server, strict=True)
    }
    tensors |= {f"client.{name}": field for name, field in checkpoint.client_states.items()}
    target = folder / f"round-{checkpoint.next_round:06d}.safetensors"
    with atomic_write(target) as temporary:
        save_tensors(tensors, temporary, {"next_round": str(checkpoint.next_round)})
        digest = compute_file_sha256(temporary)
    note = {"format": FORMAT, "sha256": digest}
    write_text(target.with_suffix(".json"), json.dumps(note) + "\n")
    for old in _list_notes(folder)[keep:]:
        old.unlink(missing_ok=True)
        old.with_suffix(".safetensors").unlink(missing_ok=True)


def read_newest_checkpoint(
    folder: Path,
    template: Any,
    accept_client_states: Callable[[dict[str, Tensor]], str | None],
    notify: Notify,
    latest: int | None = None,
) -> Checkpoint | None:
    """Return the newest complete checkpoint; None if there is none.

    Args:
        folder: The folder of checkpoints.
        template: A server state of the algorithm, with the required fields and shapes.
        accept_client_states: Accepts the client states, or returns what is wrong with them.
        notify: Called with one sentence about each damaged checkpoint that is skipped.
        latest: The largest number of rounds that the checkpoint may have; any by default.
    """
    for note in _list_notes(folder):
        if latest is not None and _read_round(note) > latest:
            continue
        try:
            checkpoint = _read_checkpoint(note, template)
            if wrong := accept_client_states(checkpoint.client_states):
                raise DamagedCheckpointError(wrong)
            return checkpoint
        except DamagedCheckpointError as damage:
            notify(f"checkpoint {note.stem} is damaged ({damage}); the one before it is used")
    return None


def list_checkpoints(folder: Path) -> list[int]:
    """Return the numbers of rounds before each checkpoint, complete or damaged, newest first."""
    return [_read_round(note) for note in _list_notes(folder)]


def clear_checkpoints_after(folder: Path, next_round: int) -> None:
    """Delete newer checkpoints, which are damaged, and files that a killed process was writing or deleting."""
    for note in _list_notes(folder):
        if _read_round(note) > next_round:
            note.unlink()
    for unfinished in folder.glob(".round-*"):
        unfinished.unlink()
    for tensors in folder.glob("round-*.safetensors"):
        if not tensors.with_suffix(".json").exists():
            tensors.unlink()


def rebuild_state(fields: Mapping[str, Tensor], template: Any) -> Any | None:
    """Return a state with these fields, in the dtype and on the device of the template's.

    Args:
        fields: The tensors of a server state or a client state, by field.
        template: A state of the same kind.

    Returns:
        The state; None if the template has other fields or shapes.
    """
    expected = {name: field.shape for name, field in zip(template._fields, template, strict=True)}
    if {name: field.shape for name, field in fields.items()} != expected:
        return None
    return type(template)(**{name: fields[name].to(getattr(template, name)) for name in template._fields})


def _read_checkpoint(note: Path, template: Any) -> Checkpoint:
    tensors_path = note.with_suffix(".safetensors")
    try:
        table = json.loads(note.read_text(encoding="utf-8"))
        version, digest = table["format"], table["sha256"]
    except (OSError, ValueError, KeyError, TypeError):
        raise DamagedCheckpointError("its JSON cannot be read") from None
    if version != FORMAT:
        raise DamagedCheckpointError(f"its format is {version!r}, this version reads {FORMAT}")
    try:
        if compute_file_sha256(tensors_path) != digest:
            raise DamagedCheckpointError("its checksum does not match")
        with safe_open(tensors_path, "pt") as file:
            next_round = int(file.metadata()["next_round"])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - it is not a dict
    except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
        raise DamagedCheckpointError(f"its tensors cannot be read: {error}") from None
    if next_round != _read_round(note):
        raise DamagedCheckpointError(f"it holds the state after {format_count(next_round, 'round')}")
    return Checkpoint(next_round, _read_server(tensors, template), _select_by_prefix(tensors, "client."))


def _read_server(tensors: dict[str, Tensor], template: Any) -> Any:
    server = rebuild_state(_select_by_prefix(tensors, "server."), template)
    if server is None:
        raise DamagedCheckpointError("its tensors are not those of this experiment")
    return server


def _select_by_prefix(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def _list_notes(folder: Path) -> list[Path]:
    """The JSON files, newest first."""
    notes = [note for note in folder.glob("round-*.json") if note.stem.removeprefix("round-").isdecimal()]
    return sorted(notes, key=_read_round, reverse=True)


def _read_round(note: Path) -> int:
    return int(note.stem.removeprefix("round-"))
