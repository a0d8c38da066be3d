"""A hostile program with a site's real certificate: it speaks gRPC with the server as it likes."""

import itertools
import socket
import ssl
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, final

import grpc
import msgpack
from nvflare.fuel.f3.drivers.grpc.streamer_pb2 import Frame
from nvflare.fuel.f3.drivers.grpc.streamer_pb2_grpc import StreamerStub
from nvflare.fuel.f3.sfm.constants import HandshakeKeys, Types
from nvflare.fuel.f3.sfm.prefix import PREFIX_LEN, Prefix

from fedcm.federation.kit import read_kit

_numbers = itertools.count()


def make_frame(kind: int, payload: Any) -> bytes:
    """Return a frame of the engine's protocol."""
    body = bytes(msgpack.packb(payload) or b"")
    frame = bytearray(PREFIX_LEN + len(body))
    Prefix(len(frame), 0, kind, 0, 0, 0, 1, 0).to_buffer(frame, 0)
    frame[PREFIX_LEN:] = body
    return bytes(frame)


def hello(name: str) -> bytes:
    return make_frame(Types.HELLO, {HandshakeKeys.ENDPOINT_NAME: name, HandshakeKeys.TIMESTAMP: 0})


def pings() -> Iterator[bytes]:
    return itertools.repeat(make_frame(Types.PING, None))


@final
class Intruder:
    """Uses the key and certificate of a kit."""

    def __init__(self, kit: Path) -> None:
        self.kit = read_kit(kit)
        self._credentials = grpc.ssl_channel_credentials(
            self.kit.root.read_bytes(), self.kit.key.read_bytes(), self.kit.certificate.read_bytes()
        )

    @contextmanager
    def connect(self, frames: Iterable[bytes]) -> Iterator[Any]:
        """Open a connection of its own, send these frames, and return what the server sends."""
        options = [("number", next(_numbers)), ("grpc.use_local_subchannel_pool", 1)]
        target = f"{self.kit.host}:{self.kit.port}"
        with grpc.secure_channel(target, self._credentials, options=options) as channel:
            stub: Any = StreamerStub(channel)
            call = stub.Stream(Frame(seq=number, data=data) for number, data in enumerate(frames))
            yield call  # gRPC cancels a call that nobody refers to

    def open_socket(self) -> socket.socket:
        """Open a TCP connection and send nothing."""
        return socket.create_connection((self.kit.host, self.kit.port))

    def begin_handshake(self, share: float) -> socket.socket:
        """Send the beginning of the first message of a TLS handshake, and nothing more."""
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        context = ssl.create_default_context(cafile=str(self.kit.root))
        context.set_alpn_protocols(["h2"])
        handshake = context.wrap_bio(incoming, outgoing, server_hostname=self.kit.host)
        with suppress(ssl.SSLWantReadError):
            handshake.do_handshake()
        first = outgoing.read()
        made = self.open_socket()
        made.sendall(first[: int(len(first) * share)])
        return made
