"""The two files between a party and the organiser: the request for a certificate, and the signed answer.

Both come from somebody else, so they are read with limits and checked before they are used.
"""

import io
import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from fedcm.errors import UserError
from fedcm.federation.certificate import fingerprint_key, parse_certificate
from fedcm.federation.plan import FederationPlan, Party

KINDS = {"site": "site", "server": "server", "user": "admin"}  # the engine's word, and ours
_MAX_BYTES = 100_000  # of an archive and of each file in it; real ones have about two thousand
_READ_ERRORS = (OSError, zipfile.BadZipFile, ValueError, LookupError, TypeError, RuntimeError)


@final
@dataclass(frozen=True)
class CertificateRequest:
    """A party's request for a certificate, as it describes itself."""

    kind: str
    name: str
    role: str
    organisation: str
    federation: str
    hosts: tuple[str, ...]  # additional host names for a server's certificate
    fingerprint: str  # of the public key to be signed
    content: bytes  # of the file, so that exactly what was checked is signed


@final
@dataclass(frozen=True)
class SignedAnswer:
    """The organiser's answer to a request."""

    request: str  # id of the request that it answers
    root: str  # fingerprint of the root certificate in it


def read_request(path: Path) -> CertificateRequest:
    """Read a request and check that its sender holds the key.

    Raises:
        UserError: If the file is missing or is not a request.
    """
    try:
        content = _read_limited(path)
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            fields = json.loads(_read_archived(archive, "request.json"))
            name = str(fields["name"])
            site = _parse_yaml(_read_archived(archive, "site.yaml"))["participants"][0]
            key = _read_public_key(_read_archived(archive, f"{name}.csr"))
        return CertificateRequest(
            kind=KINDS[fields["kind"]],
            name=name,
            role=str(fields["cert_type"]),
            organisation=str(fields["org"]),
            federation=str(fields["project"]),
            hosts=_read_hosts(site),
            fingerprint=fingerprint_key(key),
            content=content,
        )
    except FileNotFoundError:
        raise UserError(f"there is no request {str(path)!r}") from None
    except _READ_ERRORS as error:
        raise UserError(
            f"{str(path)!r} must be a request that `fedcm federation request` made, but cannot be read ({error})"
        ) from None


def find_planned_party(request: CertificateRequest, plan: FederationPlan) -> Party:
    """Return the party that requests a certificate.

    Raises:
        UserError: If the request differs from the plan, which alone decides who gets which certificate.
    """
    if request.federation != plan.name:
        raise UserError(f"this is the federation {plan.name!r}, but the request is for {request.federation!r}")
    party = plan.get_party(request.kind, request.name)
    for what, requested, planned in (
        ("role", request.role, party.role),
        ("organisation", request.organisation, plan.certificate_organisation),
        ("other hosts", sorted(request.hosts), sorted(plan.server.also) if party.kind == "server" else []),
    ):
        if requested != planned:
            raise UserError(
                f"the request of {party.name!r} has the {what} {requested!r}, but the plan has {planned!r}; ask for a "
                "request made from this federation's invitation"
            )
    return party


def read_answer(path: Path) -> SignedAnswer:
    """Read the organiser's signed answer.

    Raises:
        UserError: If the file is missing or is not an answer.
    """
    try:
        root = parse_certificate(read_member(path, "rootCA.pem"))
        return SignedAnswer(str(json.loads(read_member(path, "signed.json"))["request_id"]), root.fingerprint)
    except FileNotFoundError:
        raise UserError(f"there is no signed answer {str(path)!r}") from None
    except _READ_ERRORS as error:
        raise UserError(
            f"{str(path)!r} must be an answer that `fedcm federation approve` made, but cannot be read ({error})"
        ) from None


def read_member(path: Path, name: str) -> bytes:
    """Read one file of an archive."""
    with zipfile.ZipFile(path) as archive:
        return _read_archived(archive, name)


def add_member(path: Path, name: str, content: bytes) -> None:
    """Add a file to an archive."""
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(name, content)


def copy_without(source: Path, target: Path, name: str) -> bytes | None:
    """Copy an archive without one of its files, and return that file; None if it has no such file."""
    taken = None
    with zipfile.ZipFile(source) as archive, zipfile.ZipFile(target, "w") as copy:
        for member in archive.namelist():
            content = _read_archived(archive, member)
            if member == name:
                taken = content
            else:
                copy.writestr(member, content)
    return taken


def _read_archived(archive: zipfile.ZipFile, name: str) -> bytes:
    """Read at most the allowed size, whatever size the archive declares."""
    with archive.open(name) as file:
        content = file.read(_MAX_BYTES + 1)
    if len(content) > _MAX_BYTES:
        raise ValueError(f"{name} has more than {_MAX_BYTES} bytes")
    return content


def _read_limited(path: Path) -> bytes:
    with path.open("rb") as file:
        content = file.read(_MAX_BYTES + 1)
    if len(content) > _MAX_BYTES:
        raise ValueError(f"it has more than {_MAX_BYTES} bytes")
    return content


def _parse_yaml(content: bytes) -> Any:
    import yaml

    try:
        return yaml.safe_load(content)
    except yaml.YAMLError as error:
        raise ValueError(f"site.yaml is not YAML: {error}") from None


def _read_public_key(content: bytes) -> Any:
    from cryptography import x509
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

    try:
        signing_request = x509.load_pem_x509_csr(content)
        key = signing_request.public_key()
        if not signing_request.is_signature_valid:
            raise ValueError("its sender does not have the key")
    except UnsupportedAlgorithm as error:
        raise ValueError(str(error)) from None
    if not (isinstance(key, RSAPublicKey) and key.key_size >= 2048):
        raise ValueError("the key must be an RSA key of at least 2048 bits")
    return key


def _read_hosts(site: Mapping[str, Any]) -> tuple[str, ...]:
    hosts = site.get("host_names") or []
    return tuple(map(str, [hosts] if isinstance(hosts, str) else hosts))
