"""A run's state on disk, whole or not at all: tensors as safetensors, and beside them a JSON with their checksum.

The JSON is written last, so a checkpoint exists only when both are there. Nothing is ever unpickled.
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
    next_round: int
    server: Any  # the algorithm's server state
    client_states: dict[str, Tensor]


class Damaged(Exception):  # noqa: N818
    """A checkpoint that is not what was written."""


def write(folder: Path, checkpoint: Checkpoint, keep: int) -> None:
    """Add a checkpoint, then drop all but the newest `keep`."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {
        f"server.{name}": field for name, field in zip(checkpoint.server._fields, checkpoint.server, strict=True)
    }
    tensors |= {f"client.{name}": field for name, field in checkpoint.client_states.items()}
    target = folder / f"round-{checkpoint.next_round:06d}.safetensors"
    with atomic_write(target) as temporary:
        save_tensors(tensors, temporary, {"next_round": str(checkpoint.next_round)})
        digest = sha256(temporary)
    note = {"format": FORMAT, "sha256": digest}
    write_text(target.with_suffix(".json"), json.dumps(note) + "\n")
    for old in _notes(folder)[keep:]:
        old.unlink(missing_ok=True)
        old.with_suffix(".safetensors").unlink(missing_ok=True)


def save_tensors(tensors: Mapping[str, Tensor], path: Path, metadata: dict[str, str] | None = None) -> None:
    """safetensors, whose own error for a full disk is turned into the usual one."""
    apart: dict[str, Tensor] = {}
    memories: set[int] = set()
    for name, tensor in tensors.items():  # the format has no two names for one memory
        memory = tensor.untyped_storage().data_ptr()
        apart[name] = tensor.detach().clone() if memory in memories else tensor.detach().cpu().contiguous()
        memories.add(memory)
    try:
        save_file(apart, path, metadata)
    except SafetensorError as error:
        raise OSError(f"{path.parent} cannot be written: {error}") from None


def newest(
    folder: Path, template: Any, take: Callable[[dict[str, Tensor]], str | None], say: Callable[[str], None]
) -> Checkpoint | None:
    """The newest checkpoint that is whole, None if there is none; every damaged one passed over is said in a line.

    `template` is a server state of the algorithm: the fields and shapes that must be found. `take` is given the
    clients' states and says what is wrong with them, if anything is.
    """
    for note in _notes(folder):
        try:
            found = _read(note, template)
            if wrong := take(found.client_states):
                raise Damaged(wrong)
            return found
        except Damaged as damage:
            say(f"checkpoint {note.stem} is damaged ({damage}); the one before it is used")
    return None


def exists(folder: Path) -> bool:
    return bool(_notes(folder))


def clear_after(folder: Path, next_round: int) -> None:
    """What a killed process was still writing or deleting, and checkpoints passed over as damaged."""
    for note in _notes(folder):
        if _round_of(note) > next_round:
            note.unlink()
    for half in folder.glob(".round-*"):
        half.unlink()
    for tensors in folder.glob("round-*.safetensors"):
        if not tensors.with_suffix(".json").exists():
            tensors.unlink()


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _read(note: Path, template: Any) -> Checkpoint:
    tensors_path = note.with_suffix(".safetensors")
    try:
        said = json.loads(note.read_text(encoding="utf-8"))
        version, digest = said["format"], said["sha256"]
    except (OSError, ValueError, KeyError, TypeError):
        raise Damaged("its JSON cannot be read") from None
    if version != FORMAT:
        raise Damaged(f"its format is {version!r}, this version reads {FORMAT}")
    try:
        if sha256(tensors_path) != digest:
            raise Damaged("its checksum does not match")
        with safe_open(tensors_path, "pt") as file:
            next_round = int(file.metadata()["next_round"])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - it is not a dict
    except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
        raise Damaged(f"its tensors cannot be read: {error}") from None
    if next_round != _round_of(note):
        raise Damaged(f"it holds the state after {next_round} rounds")
    return Checkpoint(next_round, _server(tensors, template), _with_prefix(tensors, "client."))


def _server(tensors: dict[str, Tensor], template: Any) -> Any:
    fields = _with_prefix(tensors, "server.")
    expected = {name: field.shape for name, field in zip(template._fields, template, strict=True)}
    if {name: field.shape for name, field in fields.items()} != expected:
        raise Damaged("its tensors are not those of this experiment")
    return type(template)(**{name: fields[name].to(getattr(template, name)) for name in template._fields})


def _with_prefix(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def _notes(folder: Path) -> list[Path]:
    """Newest first."""
    found = [note for note in folder.glob("round-*.json") if note.stem.removeprefix("round-").isdecimal()]
    return sorted(found, key=_round_of, reverse=True)


def _round_of(note: Path) -> int:
    return int(note.stem.removeprefix("round-"))
