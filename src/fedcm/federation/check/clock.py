"""Compare the dates of certificates with this machine's clock.

A machine whose clock is wrong finds good certificates not valid yet, or expired, and never connects. Only the dates in
the certificates are used: they say what is wrong here, and nothing about the clock of the other side.
"""

from datetime import UTC, datetime

from fedcm.errors import UserError
from fedcm.federation.certificate import Certificate, read_certificate
from fedcm.federation.check.connection import read_server_certificate
from fedcm.federation.kit import Kit


def read_clock() -> datetime:
    """Return what this machine's clock says."""
    return datetime.now(UTC)


def describe_validity(owner: str, certificate: Certificate) -> str:
    """Say that a certificate is not valid by this machine's clock; empty if it is.

    Args:
        owner: Whose certificate it is, as the beginning of a sentence.
        certificate: The certificate.
    """
    now = read_clock()
    clock = f"this machine's clock says {_format(now)}"
    if now < certificate.starts:
        return f"{owner} is not valid yet: it is valid from {_format(certificate.starts)}, but {clock}; set the clock"
    if now > certificate.ends:
        return (
            f"{owner} has expired: it was valid until {_format(certificate.ends)}, and {clock}; set the clock if it is "
            "wrong, or else renew the certificate with `fedcm federation renew`"
        )
    return ""


def find_invalid_certificate(kit: Kit, *, ask_server: bool) -> str:
    """Say which certificate is not valid by this machine's clock: the kit's, the root's or the server's.

    Args:
        kit: The kit.
        ask_server: Whether to connect to the server for its certificate, if the others are valid. If it does not
            answer, nothing is said about it.

    Returns:
        One sentence; empty if there is nothing to say.
    """
    try:
        for owner, path in (("the certificate of this kit", kit.certificate), ("the root certificate", kit.root)):
            if wrong := describe_validity(owner, read_certificate(path)):
                return wrong
    except UserError:
        return ""  # other checks say what is wrong with a file
    certificate = read_server_certificate(kit) if ask_server else None
    return "" if certificate is None else describe_validity("the certificate of the server", certificate)


def _format(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M} UTC"
