"""Connect to a federation's server: resolve its name, reach its port, and do a mutual TLS handshake with a kit."""

import ipaddress
import socket
import ssl
from dataclasses import dataclass
from typing import final

from fedcm.federation.certificate import Certificate, parse_certificate
from fedcm.federation.kit import Kit

_TIMEOUT = 5.0  # seconds for each answer
_REJECTED = "the server does not accept this kit's certificate, or is not a federation's server"


@final
@dataclass(frozen=True)
class Handshake:
    """The result of a TLS handshake."""

    failure: str  # empty if both sides accepted each other
    names: tuple[str, ...]  # host names in the server's certificate
    untrusted: bool = False  # whether this side did not accept the server's certificate


def resolve_host(host: str, port: int) -> list[str]:
    """Return the host's addresses, or raise OSError if its name is unknown."""
    addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[4][0]) for address in addresses))


def reach_port(host: str, port: int) -> None:
    """Raise OSError if nothing listens at the port."""
    socket.create_connection((host, port), _TIMEOUT).close()


def do_handshake(kit: Kit) -> Handshake:
    """Do a mutual TLS handshake with the server; check the names afterwards with `matches_hostname`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False  # the names are checked afterwards, so that the message can list them
    context.maximum_version = ssl.TLSVersion.TLSv1_2  # in 1.3 a client learns too late that it was rejected
    context.set_alpn_protocols(["h2"])
    try:
        context.load_verify_locations(kit.root)
        context.load_cert_chain(kit.certificate, kit.key)
        with (
            socket.create_connection((kit.host, kit.port), _TIMEOUT) as connection,
            context.wrap_socket(connection, server_hostname=kit.host) as secure,
        ):
            return Handshake("", _read_names(secure.getpeercert(binary_form=True)))
    except ssl.SSLCertVerificationError as error:
        message = f"the server's certificate is not accepted here: {error.verify_message}"
        return Handshake(message, (), untrusted=True)
    except (ssl.SSLEOFError, ssl.SSLZeroReturnError):  # which of them depends on the Python
        return Handshake(f"{_REJECTED}: it closed the connection", ())
    except ssl.SSLError as error:
        return Handshake(_describe_tls_error(error), ())
    except OSError as error:
        return Handshake(f"{_REJECTED}: {error}", ())


def read_server_certificate(kit: Kit) -> Certificate | None:
    """Return the server's certificate without checking it; None if the server does not show one.

    A failed handshake hides it. In TLS 1.3 the certificate is known before the server has judged this kit's own.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    try:
        context.load_cert_chain(kit.certificate, kit.key)
        with (
            socket.create_connection((kit.host, kit.port), _TIMEOUT) as connection,
            context.wrap_socket(connection, server_hostname=kit.host) as secure,
        ):
            der = secure.getpeercert(binary_form=True)
        return None if der is None else parse_certificate(ssl.DER_cert_to_PEM_cert(der).encode())
    except (OSError, ValueError):
        return None


def matches_hostname(host: str, names: tuple[str, ...]) -> bool:
    """Return whether a certificate with these names is valid for a host, by the rules of the engine.

    >>> matches_hostname("fl.example.org", ("*.example.org",)), matches_hostname("10.0.0.5", ("10.0.0.5",))
    (True, True)
    """
    host = host.lower().rstrip(".")
    if host in (name.lower() for name in names):
        return True
    _, _, domain = host.partition(".")
    return not _is_address(host) and "." in domain and f"*.{domain}" in (name.lower() for name in names)


def _describe_tls_error(error: ssl.SSLError) -> str:
    reason = (error.reason or str(error)).replace("_", " ").lower()
    if "alert" in reason:
        return f"the server does not accept this kit's certificate: {reason.partition('alert ')[2]}"
    return f"the handshake failed: {reason}"


def _read_names(der: bytes | None) -> tuple[str, ...]:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    assert der is not None
    certificate: x509.Certificate = x509.load_der_x509_certificate(der)
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
