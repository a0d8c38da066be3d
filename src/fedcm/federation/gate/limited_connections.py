"""The engine's manager of connections, which delays and refuses what one party does too often."""

import threading
import time
from typing import Any

from nvflare.fuel.f3.cellnet.identity import is_mtls_connection
from nvflare.fuel.f3.drivers.connector_info import Mode
from nvflare.fuel.f3.sfm.conn_manager import ConnManager

from fedcm.federation.certificate import Certificate, parse_certificate
from fedcm.federation.gate.gatekeeper import Gatekeeper
from fedcm.federation.gate.rates import Rate, RateLimit

MESSAGES = Rate(per_second=500, burst=5_000)  # a site in a run sends about 40 per second
CONNECTIONS = Rate(per_second=0.5, burst=30)
MAX_OPEN = 16  # connections of one party; a site has one, and one more per job
MAX_FRAME = 2**22  # bytes; the engine divides messages into chunks of 1 MiB
NAME_TIMEOUT = 30.0  # seconds in which a new connection must say its name
_LARGE = 2**16  # bytes of a frame whose transport costs more than its processing
_LARGE_COST = 0.1  # messages
_TICK = 1.0  # seconds between two looks at nameless connections


class LimitedConnManager(ConnManager):
    """Bounds the connections and messages of each certificate's holder; those of the server itself are free."""

    gatekeeper: Gatekeeper  # set before the engine starts

    def __init__(self, *args: Any, **options: Any) -> None:
        """Start without connections; called by the engine."""
        super().__init__(*args, **options)
        self._messages = RateLimit(MESSAGES)
        self._new_connections = RateLimit(CONNECTIONS)
        self._holders: dict[str, str] = {}  # by connection
        self._opened: dict[str, float] = {}  # when each connection was opened

    def start(self) -> None:
        """Start to listen; called by the engine."""
        super().start()
        threading.Thread(target=self._watch_nameless, name="nameless", daemon=True).start()

    def handle_new_connection(self, connection: Any) -> None:
        """Take a new connection, or close it; called by the engine."""
        certificate = read_peer_certificate(connection) if comes_from_outside(connection) else None
        if certificate is not None:
            if reason := self._find_excess(certificate.name):
                self.gatekeeper.raise_alarm(reason)
                connection.close()
                return
            self._opened[connection.name] = time.monotonic()
            self._holders[connection.name] = certificate.name
        super().handle_new_connection(connection)

    def close_connection(self, connection: Any) -> None:
        """Forget a connection that was closed; called by the engine."""
        self._holders.pop(connection.name, None)
        self._opened.pop(connection.name, None)
        super().close_connection(connection)

    def process_frame(self, sfm_conn: Any, frame: Any) -> None:
        """Take a message; called by the engine in a thread of this connection.

        While this thread sleeps, gRPC reads no more from the connection than a small buffer holds.
        """
        holder = self._holders.get(sfm_conn.get_name())
        if holder is not None:
            if len(frame) > MAX_FRAME:
                self.gatekeeper.raise_alarm(
                    f"{holder} sent a message of more than {MAX_FRAME >> 20} MiB; its connection was closed"
                )
                sfm_conn.conn.close()
                return
            delay = self._messages.take(holder, _LARGE_COST if len(frame) > _LARGE else 1.0)
            if delay:
                self.gatekeeper.raise_alarm(
                    f"{holder} sends more than {MESSAGES.per_second:g} messages per second; they are delayed"
                )
                time.sleep(delay)
        super().process_frame(sfm_conn, frame)

    def _find_excess(self, holder: str) -> str:
        """Return why a party may not open one more connection now; empty if it may."""
        if not self._new_connections.allow(holder):
            return f"{holder} opens connections again and again; new ones are refused for now"
        if list(self._holders.values()).count(holder) >= MAX_OPEN:
            return f"{holder} has {MAX_OPEN} connections; further ones are refused"
        return ""

    def _watch_nameless(self) -> None:
        while not self.stopped:
            time.sleep(_TICK)
            for sfm_conn in list(self.sfm_conns.values()):
                opened = self._opened.get(sfm_conn.get_name())
                if sfm_conn.sfm_endpoint is None and opened and time.monotonic() - opened > NAME_TIMEOUT:
                    holder = self._holders.get(sfm_conn.get_name())
                    self.gatekeeper.raise_alarm(f"{holder} opened a connection and did not say its name; it was closed")
                    sfm_conn.conn.close()


def comes_from_outside(connection: Any) -> bool:
    """Return whether a connection was opened by another party, and not by one of the server's own processes."""
    connector = connection.connector
    return connector.mode == Mode.PASSIVE and is_mtls_connection(connector.params)


def read_peer_certificate(connection: Any) -> Certificate | None:
    """Return the certificate with which the other end of a connection proved its identity in the TLS handshake."""
    context = getattr(connection, "context", None)
    pems = context.auth_context().get("x509_pem_cert") if context is not None else None
    return parse_certificate(pems[0]) if pems else None
