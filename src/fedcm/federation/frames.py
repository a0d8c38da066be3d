"""Messages between two processes of one machine over a pipe: a JSON object, and vectors as safetensors."""

import json
import struct
from collections.abc import Mapping
from typing import Any, BinaryIO

import numpy as np
from safetensors.numpy import load, save

Arrays = dict[str, np.ndarray]

REJECTED = "refused"  # key of an answer that says why a request failed
_LENGTHS = struct.Struct("<QQ")
_NO_ARRAYS: Arrays = {}


def select_own_fields(fields: Mapping[str, Any], site: str) -> dict[str, Any]:
    """Return a request's fields as one site needs them: of `counted` and `own`, which are by site, its own part."""
    own = {key: value for key, value in fields.items() if key != "own"}
    if "counted" in own:
        own["counted"] = own["counted"][site]
    return own | dict(fields.get("own", {}).get(site, {}))


def send(stream: BinaryIO, fields: Mapping[str, Any], arrays: Mapping[str, np.ndarray] = _NO_ARRAYS) -> None:
    """Write one message, JSON fields and arrays, and flush the stream."""
    head = json.dumps(fields).encode()
    body = save({name: np.ascontiguousarray(array) for name, array in arrays.items()}) if arrays else b""
    stream.write(_LENGTHS.pack(len(head), len(body)))
    stream.write(head)
    stream.write(body)
    stream.flush()


def receive(stream: BinaryIO) -> tuple[dict[str, Any], Arrays]:
    """Read one message and return its JSON fields and its arrays.

    Raises:
        EOFError: If the other process closed the pipe.
    """
    head_length, body_length = _LENGTHS.unpack(_read_exactly(stream, _LENGTHS.size))
    fields = json.loads(_read_exactly(stream, head_length))
    return fields, load(_read_exactly(stream, body_length)) if body_length else {}


def _read_exactly(stream: BinaryIO, size: int) -> bytes:
    data = stream.read(size)
    if data is None or len(data) < size:
        raise EOFError
    return data
