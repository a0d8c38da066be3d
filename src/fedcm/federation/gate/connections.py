"""The engine's manager of connections, which lets the gatekeeper decide before a connection gets a name."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from nvflare.fuel.f3.cellnet.fqcn import FQCN
from nvflare.fuel.f3.comm_error import CommError
from nvflare.fuel.f3.drivers.driver_params import DriverParams
from nvflare.fuel.f3.sfm.constants import HandshakeKeys, Types
from nvflare.fuel.utils.admin_name_utils import is_valid_admin_client_name

from fedcm.federation.certificate import Certificate
from fedcm.federation.gate.limited_connections import LimitedConnManager, comes_from_outside, read_peer_certificate
from fedcm.federation.trust.foreign_text import clean_text

_PING_TIMEOUT = 3.0  # seconds in which a live connection answers
_POLL = 0.05


class GuardedConnManager(LimitedConnManager):
    """Accepts connections of members only, and one per name."""

    def __init__(self, *args: Any, **options: Any) -> None:
        """Start without connections; called by the engine."""
        super().__init__(*args, **options)
        self._reserved = set[str]()
        self._reserving = threading.Lock()

    def update_endpoint(self, sfm_conn: Any, data: dict[str, Any]) -> None:
        """Give a connection the name that its handshake claims; called by the engine."""
        if not comes_from_outside(sfm_conn.conn):
            super().update_endpoint(sfm_conn, data)
            return
        name = FQCN.normalize(str(data.get(HandshakeKeys.ENDPOINT_NAME)))
        with self._reserve(name) as is_reserved:
            reason = self._find_objection(sfm_conn, name) if is_reserved else "another connection asks for this name"
            if not reason:
                super().update_endpoint(sfm_conn, data)
                return
        sfm_conn.conn.close()
        raise CommError(CommError.BAD_DATA, f"the connection of {name} was refused: {reason}")

    @contextmanager
    def _reserve(self, name: str) -> Iterator[bool]:
        """Reserve a name while its connection is checked, so that two connections cannot get it at the same time."""
        with self._reserving:
            is_reserved = name not in self._reserved
            self._reserved.add(name)
        try:
            yield is_reserved
        finally:
            if is_reserved:
                self._reserved.discard(name)

    def close_removed(self) -> list[str]:
        """Close all connections whose holders are not members any more, and return their names."""
        closed = []
        for sfm_conn in list(self.sfm_conns.values()):
            certificate = read_peer_certificate(sfm_conn.conn)
            if certificate is None or not (reason := self.gatekeeper.find_objection(certificate)):
                continue
            endpoint = sfm_conn.sfm_endpoint.endpoint.name if sfm_conn.sfm_endpoint else certificate.name
            closed.append(certificate.name)
            self.gatekeeper.logger.info(f"closed the connection of {endpoint}: {reason}")
            self.gatekeeper.audit.append(
                "disconnected", name=endpoint, certificate=certificate.fingerprint, reason=reason
            )
            sfm_conn.conn.close()
        return sorted(set(closed))

    def _find_objection(self, sfm_conn: Any, name: str) -> str:
        """Return why a connection may not have a name; empty if it may."""
        certificate = read_peer_certificate(sfm_conn.conn)
        if certificate is None:
            return "it has no certificate"
        address = str(sfm_conn.conn.get_conn_properties().get(DriverParams.PEER_ADDR.value, "?"))
        reason = self.gatekeeper.find_objection(certificate) or _find_wrong_name(certificate, name)
        if reason:
            what = f"{certificate.name} was refused: {reason}"
            self.gatekeeper.raise_alarm(what, about=f"connections of {certificate.name}", address=address)
            return reason
        if sfm_conn.sfm_endpoint is not None and sfm_conn.sfm_endpoint.endpoint.name != name:
            return "it has another name already"
        endpoint = self.sfm_endpoints.get(name)
        others = [other for other in endpoint.connections if other is not sfm_conn] if endpoint is not None else []
        if not others:
            return ""
        if any(_answers(other) for other in others):
            self.gatekeeper.raise_alarm(
                f"a second process with the certificate of {certificate.name} was refused; the first one stays",
                name=name,
                address=address,
                certificate=certificate.fingerprint,
            )
            return "another process with this certificate is connected"
        for other in others:  # the link is broken, and the system has not noticed yet
            other.conn.close()
        return ""


def _find_wrong_name(certificate: Certificate, name: str) -> str:
    """Return why a certificate's holder may not have a connection of this name; empty if it may.

    A site's processes have the site's name, or that name and a job's. An admin's sessions have names that the engine
    makes.
    """
    is_admins = is_valid_admin_client_name(name)
    if certificate.role == "client":
        is_right = not is_admins and (name == certificate.name or name.startswith(f"{certificate.name}."))
    else:
        is_right = is_admins
    return "" if is_right else f"it must not have the name {clean_text(name, 80)}"


def _answers(sfm_conn: Any) -> bool:
    """Return whether the other end of a connection answers a ping."""
    asked = time.time()
    try:
        sfm_conn.send_heartbeat(Types.PING)
    except Exception:  # the engine raises many types for a closed connection
        return False
    until = time.monotonic() + _PING_TIMEOUT
    while time.monotonic() < until:
        if sfm_conn.last_activity > asked:
            return True
        if getattr(sfm_conn.conn, "closing", False):
            return False
        time.sleep(_POLL)
    return False
