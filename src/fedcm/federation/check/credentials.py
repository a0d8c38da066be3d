"""Check a kit's key and certificates: the key is private, the certificate is valid, and the federation signed it."""

from collections.abc import Iterator

from fedcm.errors import UserError
from fedcm.federation.certificate import read_certificate
from fedcm.federation.check.clock import describe_validity
from fedcm.federation.check.result import CheckResult, make_failure, make_success, make_warning
from fedcm.federation.file_modes import describe_exposed_key, list_exposed
from fedcm.federation.kit import Kit
from fedcm.system.formatting import format_count

_SOON = 30  # days
_RENEW = "renew the kit with `fedcm federation renew`"


def check_key(kit: Kit) -> Iterator[CheckResult]:
    """Check that only their owner can read the private key and the other files."""
    exposed = list_exposed(kit.path)
    keys = [path for path in exposed if path.suffix == ".key" and path.is_file()]
    if keys:
        yield make_failure("private key", describe_exposed_key(keys[0]))
    else:
        yield make_success("private key", "only its owner can read it")
    if others := [path for path in exposed if path not in keys]:
        names = ", ".join(path.name for path in others[:3]) + (", …" if len(others) > 3 else "")
        yield make_warning(
            "file modes",
            f"{format_count(len(others), 'file or folder', 'files and folders')} can be read by other users of this "
            f"machine ({names}); `fedcm federation {kit.kind}` makes them private when it starts"
            if kit.kind != "admin"
            else f"other users of this machine can read files of the kit ({names}); run `chmod -R go= {kit.path}`",
        )


def check_certificate(kit: Kit) -> Iterator[CheckResult]:
    """Check that the certificate is the kit's own and valid now."""
    certificate = read_certificate(kit.certificate)
    until = f"until {certificate.ends:%Y-%m-%d}"
    valid = f"of {certificate.name}, valid {until}, {certificate.days_left} days left"
    if certificate.name != kit.name:
        yield make_failure("certificate", f"it must be of {kit.name!r}, but is of {certificate.name!r}; {_RENEW}")
    elif wrong := describe_validity("it", certificate):
        yield make_failure("certificate", wrong)
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
    try:
        certificate.verify_directly_issued_by(root)
    except (InvalidSignature, ValueError, TypeError):
        yield make_failure("root certificate", f"it did not sign this kit's certificate; {_RENEW}")
        return
    if wrong := describe_validity("it", read_certificate(kit.root)):
        yield make_failure("root certificate", f"{wrong}, or ask the organiser")
    else:
        yield make_success(
            "root certificate", f"signed the kit's certificate; valid until {root.not_valid_after_utc:%Y-%m-%d}"
        )
