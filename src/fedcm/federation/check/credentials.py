"""A kit's papers: is its key its own secret, does its certificate hold now, and was it signed by this federation?"""

import stat
from collections.abc import Iterator
from datetime import UTC, datetime

from fedcm.errors import UserError
from fedcm.federation.certificate import read_certificate
from fedcm.federation.check.finding import Finding, failed, good, warning
from fedcm.federation.kit import Kit

_SOON = 30  # days
_RENEW = "the organiser makes a new one with `fedcm federation renew`"


def look_at_key(kit: Kit) -> Iterator[Finding]:
    mode = kit.key.stat().st_mode
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        yield failed(
            "private key",
            f"only its owner may read it, and its mode is {stat.S_IMODE(mode):o}: `chmod 600 {kit.key}`, and ask for "
            "a new certificate if others use this machine",
        )
    else:
        yield good("private key", "for its owner alone")


def look_at_certificate(kit: Kit) -> Iterator[Finding]:
    certificate, now = read_certificate(kit.certificate), datetime.now(UTC)
    until = f"until {certificate.ends:%Y-%m-%d}"
    if certificate.name != kit.name:
        yield failed(
            "certificate", f"it must be of {kit.name!r}, as this kit is, and is of {certificate.name!r}; {_RENEW}"
        )
    elif now < certificate.starts:
        starts = f"{certificate.starts:%Y-%m-%d %H:%M} UTC"
        yield failed(
            "certificate", f"it holds from {starts} on and here it is {now:%Y-%m-%d %H:%M}; is this clock right?"
        )
    elif now > certificate.ends:
        yield failed("certificate", f"it held {until}; {_RENEW}")
    elif certificate.days_left < _SOON:
        yield warning(
            "certificate", f"of {certificate.name}, holds {until}, {certificate.days_left} days more; {_RENEW}"
        )
    else:
        yield good("certificate", f"of {certificate.name}, holds {until}, {certificate.days_left} days more")


def look_at_signature(kit: Kit) -> Iterator[Finding]:
    """By the root, for the key."""
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

    form = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    try:
        certificate, root = (x509.load_pem_x509_certificate(path.read_bytes()) for path in (kit.certificate, kit.root))
        key = load_pem_private_key(kit.key.read_bytes(), password=None)
    except (TypeError, ValueError) as error:
        raise UserError(f"the kit's key and certificates cannot be read ({error}); {_RENEW}") from None
    if certificate.public_key().public_bytes(*form) != key.public_key().public_bytes(*form):
        yield failed("key and certificate", f"they must belong together and do not; {_RENEW}")
    else:
        yield good("key and certificate", "belong together")
    now = datetime.now(UTC)
    try:
        certificate.verify_directly_issued_by(root)
    except (InvalidSignature, ValueError, TypeError):
        yield failed("root certificate", f"it did not sign this kit's certificate: files of two federations; {_RENEW}")
        return
    if not root.not_valid_before_utc <= now <= root.not_valid_after_utc:
        yield failed("root certificate", f"it holds until {root.not_valid_after_utc:%Y-%m-%d}, and is not valid now")
    else:
        yield good("root certificate", f"signed it; holds until {root.not_valid_after_utc:%Y-%m-%d}")
