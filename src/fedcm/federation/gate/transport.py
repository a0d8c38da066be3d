"""Settings of gRPC at the server: time-outs for connections that stall, and room for many of them.

gRPC reads every connection on its own, so one that stalls does not delay the others. But by default an unfinished
handshake is kept for two minutes, a link that broke without a word is never noticed, and 100 connections are served
at a time.
"""

import resource
from contextlib import suppress
from typing import Any

from nvflare.fuel.f3.drivers.grpc_driver import GrpcDriver

MAX_CONNECTIONS = 1_000  # each has a thread while it is open; a site has one, and one more per job
_MAX_FRAME = 2**26  # bytes; the gate closes a connection with a much smaller one, and names its owner
_FILES = 65_536
_SECOND = 1_000  # milliseconds
_OPTIONS = [
    ("grpc.max_receive_message_length", _MAX_FRAME),
    ("grpc.max_send_message_length", -1),
    ("grpc.max_concurrent_streams", 8),  # of one connection; each would be another connection of the engine
    ("grpc.server_handshake_timeout_ms", 15 * _SECOND),  # TCP, TLS and HTTP/2 together
    ("grpc.max_connection_idle_ms", 60 * _SECOND),  # without the engine's stream
    ("grpc.keepalive_time_ms", 30 * _SECOND),  # silence after which the other end is asked for a sign of life
    ("grpc.keepalive_timeout_ms", 60 * _SECOND),  # a link may be cut for as long without losing the connection
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),  # no limit
]


def harden_transport() -> None:
    """Use these settings for all ports that this process opens from now on."""
    prepare: Any = GrpcDriver.__init__

    def prepare_hardened(self: Any) -> None:
        prepare(self)
        self.max_workers = MAX_CONNECTIONS
        self.options = _OPTIONS

    GrpcDriver.__init__ = prepare_hardened
    _raise_limit_of_files()


def _raise_limit_of_files() -> None:
    """Allow many open sockets, as far as the system lets this user."""
    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES if most == resource.RLIM_INFINITY else min(_FILES, most)
    if now != resource.RLIM_INFINITY and now < wanted:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))
