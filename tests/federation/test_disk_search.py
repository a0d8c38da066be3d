"""The search for secrets on a disk finds them: in plain files, in archives, as numbers of several types, as text."""

import base64
import io
import os
import zipfile
from pathlib import Path

import numpy as np
import pytest
from disk_search import holds_secret, holds_vector, read_everything

VECTOR = np.random.default_rng(0).normal(size=50).astype(np.float32)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
@pytest.mark.parametrize("before", [0, 1, 3, 4, 5])
def test_a_part_of_a_vector_is_found_at_any_place(dtype: type, before: int) -> None:
    vector = (VECTOR * 2.0**20).astype(dtype)
    data = os.urandom(before) + vector[7:12].tobytes() + os.urandom(9)
    assert holds_vector(data, vector)
    assert not holds_vector(data, vector[::-1])
    assert not holds_vector(data, vector[:7])
    assert not holds_vector(b"", vector)
    assert not holds_vector(bytes(1000), np.zeros(50, dtype))


@pytest.mark.parametrize("before", [0, 1, 2])
def test_a_secret_is_found_as_bytes_or_text(before: int) -> None:
    secret, other = os.urandom(33), os.urandom(33)
    for text in (secret, secret.hex().encode(), base64.b64encode(bytes(before) + secret + b"more")):
        assert holds_secret(b"x" * before + text + b"y", secret)
        assert not holds_secret(text, other)


def test_archives_in_archives_are_searched(tmp_path: Path) -> None:
    inner, outer = io.BytesIO(), io.BytesIO()
    with zipfile.ZipFile(inner, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.txt", "hidden" * 100)
    with zipfile.ZipFile(outer, "w") as archive:
        archive.writestr("inner.zip", inner.getvalue())
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "data").write_bytes(outer.getvalue())
    assert [name for name, data in read_everything(tmp_path) if b"hidden" * 100 in data] == [
        "store/data:inner.zip:a.txt"
    ]
