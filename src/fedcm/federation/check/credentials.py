"""Check a kit's key and certificates: the key is private, the certificate is valid, and the federation signed it."""

import stat
from collections.abc import Iterator
from datetime import UTC, datetime

from fedcm.errors import UserError
from fedcm.federation.certificate import read_certificate
from fedcm.federation.check.result import CheckResult, make_failure, make_success, make_warning
from fedcm.federation.kit import Kit

_SOON = 30  # days
_RENEW = "renew the kit with `fedcm federation renew`"


def check_key(kit: Kit) -> Iterator[CheckResult]:
    """Check that only its owner can read the private key."""
    mode = kit.key.stat().st_mode
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        yield make_failure(
            "private key",
            f"only its owner may read it, but its mode is {stat.S_IMODE(mode):o}; run `chmod 600 {kit.key}`, and if "
            "others use this machine, renew the kit with `fedcm federation renew`",
        )
    else:
        yield make_success("private key", "only its owner can read it")


def check_certificate(kit: Kit) -> Iterator[CheckResult]:
    """Check that the certificate is the kit's own and valid now."""
    certificate, now = read_certificate(kit.certificate), datetime.now(UTC)
    until = f"until {certificate.ends:%Y-%m-%d}"
    valid = f"of {certificate.name}, valid {until}, {certificate.days_left} days left"
    if certificate.name != kit.name:
        yield make_failure("certificate", f"it must be of {kit.name!r}, but is of {certificate.name!r}; {_RENEW}")
    elif now < certificate.starts:
        starts = f"{certificate.starts:%Y-%m-%d %H:%M} UTC"
        yield make_failure(
            "certificate", f"it is valid from {starts}, but here it is {now:%Y-%m-%d %H:%M} UTC; is this clock right?"
        )
    elif now > certificate.ends:
        yield make_failure("certificate", f"it was valid {until}; {_RENEW}")
    elif certificate.days_left < _SOON:
        yield make_warning("certificate", f"{valid}; {_RENEW}")
    else:
        yield make_success("certificate", valid)


def check_signature(kit: Kit) -> Iterator[CheckResult]:
    """Check that the certificate is for the kit's key and that the root signed it."""
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
        yield make_failure("key and certificate", f"the certificate must be for this key, but is for another; {_RENEW}")
    else:
        yield make_success("key and certificate", "belong together")
    now = datetime.now(UTC)
    try:
        certificate.verify_directly_issued_by(root)
    except (InvalidSignature, ValueError, TypeError):
        yield make_failure("root certificate", f"it did not sign this kit's certificate; {_RENEW}")
        return
    if not root.not_valid_before_utc <= now <= root.not_valid_after_utc:
        yield make_failure(
            "root certificate",
            f"it must be valid now, but is valid from {root.not_valid_before_utc:%Y-%m-%d} until "
            f"{root.not_valid_after_utc:%Y-%m-%d}; ask the organiser",
        )
    else:
        yield make_success(
            "root certificate", f"signed the kit's certificate; valid until {root.not_valid_after_utc:%Y-%m-%d}"
        )
