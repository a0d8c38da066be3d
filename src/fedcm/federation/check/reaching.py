"""The way to a federation's server: its name, its port, mutual TLS with a kit's certificate, and what its clock says.

The clock is read from the handshake. In TLS 1.2 a server's greeting begins with 32 bytes that the server chooses, and
in the engine's the first four of them are its time, in seconds, signed like the rest. Others fill them with chance,
which shows: two greetings then tell two different times.
"""

import ipaddress
import socket
import ssl
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from fedcm.federation.kit import Kit

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

_SECONDS = 5.0  # for each answer
_NEAR = 86400.0  # seconds: a time as near as this is no chance
_STEADY = 3.0  # seconds by which two readings of one clock may differ
_RANDOM = 11  # where the chosen bytes stand in a first message: record, message and version come before them


@final
@dataclass(frozen=True)
class Greeting:
    """What came of a handshake."""

    failure: str  # empty where both sides accepted each other
    names: tuple[str, ...]  # in the server's certificate
    ahead: float | None  # seconds by which the server's clock seems ahead of this machine's


def addresses(host: str, port: int) -> list[str]:
    """Raises OSError where the name is unknown."""
    return list(dict.fromkeys(str(found[4][0]) for found in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)))


def reach(host: str, port: int) -> None:
    """Raises OSError where nobody answers."""
    socket.create_connection((host, port), _SECONDS).close()


def greet(kit: Kit) -> Greeting:
    """Mutual TLS with the server; its name is judged by `is_named`."""
    greeting = _greet(kit)
    if greeting.ahead is None or abs(greeting.ahead) < _NEAR:
        return greeting
    again = _greet(kit).ahead
    told = again is not None and abs(again - greeting.ahead) < _STEADY
    return Greeting(greeting.failure, greeting.names, greeting.ahead if told else None)


def is_named(host: str, names: tuple[str, ...]) -> bool:
    """As the engine's own connections judge it.

    >>> is_named("fl.example.org", ("*.example.org",)), is_named("10.0.0.5", ("10.0.0.5",))
    (True, True)
    """
    host = host.lower().rstrip(".")
    if host in (name.lower() for name in names):
        return True
    _, _, domain = host.partition(".")
    return not _is_address(host) and "." in domain and f"*.{domain}" in (name.lower() for name in names)


def _greet(kit: Kit) -> Greeting:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False  # the names are looked at afterwards, so that the sentence can tell them
    context.maximum_version = ssl.TLSVersion.TLSv1_2  # with 1.3 a client learns only later that it was turned away
    context.set_alpn_protocols(["h2"])
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    heard = _Heard()
    try:
        context.load_verify_locations(kit.root)
        context.load_cert_chain(kit.certificate, kit.key)
        session = context.wrap_bio(incoming, outgoing, server_hostname=kit.host)
        with socket.create_connection((kit.host, kit.port), _SECONDS) as connection:
            _shake_hands(session, incoming, outgoing, connection, heard)
        return Greeting("", _names(session.getpeercert(binary_form=True)), heard.ahead)
    except ssl.SSLCertVerificationError as error:
        return Greeting(f"the server's certificate is not accepted here: {error.verify_message}", (), heard.ahead)
    except ssl.SSLError as error:
        return Greeting(_in_words(error), (), heard.ahead)
    except (OSError, EOFError) as error:
        said = str(error) or "it closed the connection"
        who = "the server does not accept this kit's certificate, or is none of a federation"
        return Greeting(f"{who}: {said}", (), heard.ahead)


class _Heard:
    """What a server has sent, and when its first answer came."""

    def __init__(self) -> None:
        self.data = b""
        self.asked = self.answered = time.time()

    def add(self, data: bytes) -> None:
        if not self.data:
            self.answered = time.time()
        self.data += data

    @property
    def ahead(self) -> float | None:
        is_greeting = len(self.data) >= _RANDOM + 4 and self.data[0] == 22 and self.data[5] == 2
        if not is_greeting:
            return None
        seconds = int.from_bytes(self.data[_RANDOM : _RANDOM + 4], "big")
        return seconds + 0.5 - (self.asked + self.answered) / 2  # the time is cut to whole seconds


def _shake_hands(
    session: ssl.SSLObject,
    incoming: ssl.MemoryBIO,
    outgoing: ssl.MemoryBIO,
    connection: socket.socket,
    heard: _Heard,
) -> None:
    """By hand, because what a server sends is not shown otherwise."""
    while True:
        try:
            session.do_handshake()
            done = True
        except ssl.SSLWantReadError:
            done = False
        if outgoing.pending:
            if not heard.data:
                heard.asked = time.time()
            connection.sendall(outgoing.read())
        if done:
            return
        data = connection.recv(65536)
        if not data:
            raise EOFError
        heard.add(data)
        incoming.write(data)


def _in_words(error: ssl.SSLError) -> str:
    reason = (error.reason or str(error)).replace("_", " ").lower()
    if "alert" in reason:
        return f"the server does not accept this kit's certificate: {reason.partition('alert ')[2]}"
    return f"the handshake failed: {reason}"


def _names(der: bytes | None) -> tuple[str, ...]:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    assert der is not None
    certificate: Certificate = x509.load_der_x509_certificate(der)
    try:
        others = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        return tuple(str(name.value) for name in others)
    except x509.ExtensionNotFound:
        return tuple(str(part.value) for part in certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME))


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
