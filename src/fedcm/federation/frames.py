"""Messages between two processes of one machine over a pipe: numbers and words as JSON, vectors as safetensors."""

import json
import struct
from collections.abc import Mapping
from typing import Any, BinaryIO

import numpy as np
from safetensors.numpy import load, save

Arrays = dict[str, np.ndarray]

_LENGTHS = struct.Struct("<QQ")
_NO_ARRAYS: Arrays = {}


def send(stream: BinaryIO, words: Mapping[str, Any], arrays: Mapping[str, np.ndarray] = _NO_ARRAYS) -> None:
    head = json.dumps(words).encode()
    body = save({name: np.ascontiguousarray(array) for name, array in arrays.items()}) if arrays else b""
    stream.write(_LENGTHS.pack(len(head), len(body)))
    stream.write(head)
    stream.write(body)
    stream.flush()


def receive(stream: BinaryIO) -> tuple[dict[str, Any], Arrays]:
    """EOFError when the other end is gone."""
    head, body = _LENGTHS.unpack(_exactly(stream, _LENGTHS.size))
    words = json.loads(_exactly(stream, head))
    return words, load(_exactly(stream, body)) if body else {}


def _exactly(stream: BinaryIO, size: int) -> bytes:
    data = stream.read(size)
    if data is None or len(data) < size:
        raise EOFError
    return data
