"""Vectors between server and site."""

import io

import numpy as np
import pytest
import torch

from fedcm.config.experiment import Link
from fedcm.federation.compression import packed, unpacked, wire_type
from fedcm.federation.frames import receive, send


@pytest.mark.parametrize(
    ("link", "kind", "relative"),
    [("exact", np.float32, 0.0), ("float16", np.float16, 2**-11), ("bfloat16", np.uint16, 2**-8)],
)
def test_a_vector_comes_back_within_the_links_precision(link: Link, kind: type, relative: float) -> None:
    vector = torch.randn(1000, generator=torch.Generator().manual_seed(1))
    array = packed(vector, link)
    back = unpacked(array, link, torch.float32)
    assert array.dtype == wire_type(link, torch.float32) == kind
    assert array.nbytes == (4000 if link == "exact" else 2000)
    assert ((back - vector).abs() <= relative * vector.abs() + 2**-25).all()
    assert torch.equal(back, vector) == (link == "exact")


def test_what_float16_cannot_hold_arrives_as_infinite() -> None:
    assert torch.isinf(unpacked(packed(torch.tensor([1e6]), "float16"), "float16", torch.float32)).all()


def test_messages_pass_through_a_pipe_whole_and_an_end_is_noticed() -> None:
    stream = io.BytesIO()
    arrays = {"a": np.arange(5, dtype=np.float32), "b": np.array([1, 2], np.uint16)}
    send(stream, {"round": 3, "loss": 0.1}, arrays)
    send(stream, {"kind": "describe"})
    whole = stream.getvalue()
    stream.seek(0)
    words, back = receive(stream)
    assert words == {"round": 3, "loss": 0.1}
    assert all(np.array_equal(back[name], arrays[name]) and back[name].dtype == arrays[name].dtype for name in arrays)
    assert receive(stream) == ({"kind": "describe"}, {})
    for cut in (0, 7, 20, len(whole) // 2):
        with pytest.raises(EOFError):
            receive(io.BytesIO(whole[:cut]))
