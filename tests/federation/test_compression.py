"""Vectors and messages between processes: rounding, and framing over a pipe."""

import io

import numpy as np
import pytest
import torch

from fedcm.config.sections import Link
from fedcm.federation.compression import get_wire_dtype, pack, unpack
from fedcm.federation.frames import receive, send


@pytest.mark.parametrize(
    ("link", "kind", "relative"),
    [("exact", np.float32, 0.0), ("float16", np.float16, 2**-11), ("bfloat16", np.uint16, 2**-8)],
)
def test_a_vector_survives_a_round_trip_within_the_precision_of_the_link(
    link: Link, kind: type, relative: float
) -> None:
    vector = torch.randn(1000, generator=torch.Generator().manual_seed(1))
    array = pack(vector, link)
    back = unpack(array, link, torch.float32)
    assert array.dtype == get_wire_dtype(link, torch.float32) == kind
    assert array.nbytes == (4000 if link == "exact" else 2000)
    assert ((back - vector).abs() <= relative * vector.abs() + 2**-25).all()
    assert torch.equal(back, vector) == (link == "exact")


def test_numbers_too_large_for_float16_become_infinite() -> None:
    assert torch.isinf(unpack(pack(torch.tensor([1e6]), "float16"), "float16", torch.float32)).all()


def test_messages_survive_a_pipe_and_a_cut_raises_eof() -> None:
    stream = io.BytesIO()
    arrays = {"a": np.arange(5, dtype=np.float32), "b": np.array([1, 2], np.uint16)}
    send(stream, {"round": 3, "loss": 0.1}, arrays)
    send(stream, {"kind": "describe"})
    whole = stream.getvalue()
    stream.seek(0)
    fields, back = receive(stream)
    assert fields == {"round": 3, "loss": 0.1}
    assert all(np.array_equal(back[name], arrays[name]) and back[name].dtype == arrays[name].dtype for name in arrays)
    assert receive(stream) == ({"kind": "describe"}, {})
    for cut in (0, 7, 20, len(whole) // 2):
        with pytest.raises(EOFError):
            receive(io.BytesIO(whole[:cut]))
