"""A party's request for a certificate, read before it is signed: it comes from outside, and may say anything."""

import io
import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from fedcm.errors import UserError
from fedcm.federation.certificate import fingerprint_of_key
from fedcm.federation.plan import FederationPlan, Party
from fedcm.federation.provision.archive import LARGEST, member

KINDS = {"site": "site", "server": "server", "user": "admin"}  # the engine's word, and ours


@final
@dataclass(frozen=True)
class Request:
    kind: str
    name: str
    role: str
    organisation: str
    federation: str
    hosts: tuple[str, ...]  # other names that a server's certificate is to be good for
    fingerprint: str  # of the public key that is to be signed
    content: bytes  # of the file: what was looked at is what is signed


def read_request(path: Path) -> Request:
    try:
        content = _bytes(path)
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            told = json.loads(member(archive, "request.json"))
            name = str(told["name"])
            site = _yaml(member(archive, "site.yaml"))["participants"][0]
            key = _public_key(member(archive, f"{name}.csr"))
        return Request(
            kind=KINDS[told["kind"]],
            name=name,
            role=str(told["cert_type"]),
            organisation=str(told["org"]),
            federation=str(told["project"]),
            hosts=_hosts(site),
            fingerprint=fingerprint_of_key(key),
            content=content,
        )
    except FileNotFoundError:
        raise UserError(f"there is no request {str(path)!r}") from None
    except (OSError, zipfile.BadZipFile, ValueError, LookupError, TypeError, RuntimeError) as error:
        raise UserError(
            f"{str(path)!r} must be a request that `fedcm federation request` made, and cannot be read as one ({error})"
        ) from None


def reject_unplanned(request: Request, plan: FederationPlan) -> Party:
    """The plan says who may have which certificate, whatever the request says."""
    if request.federation != plan.name:
        raise UserError(f"this is the federation {plan.name!r}, and the request is for {request.federation!r}")
    party = plan.party(request.kind, request.name)
    for what, got, planned in (
        ("role", request.role, party.role),
        ("organisation", request.organisation, plan.org),
        ("other hosts", sorted(request.hosts), sorted(plan.server.also) if party.kind == "server" else []),
    ):
        if got != planned:
            raise UserError(
                f"the request of {party.name!r} asks for the {what} {got!r}, and the plan has {planned!r}; ask for a "
                "request made from this federation's invitation"
            )
    return party


def _bytes(path: Path) -> bytes:
    with path.open("rb") as file:
        content = file.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise ValueError(f"it has more than {LARGEST} bytes")
    return content


def _yaml(content: bytes) -> Any:
    import yaml

    try:
        return yaml.safe_load(content)
    except yaml.YAMLError as error:
        raise ValueError(f"site.yaml is not YAML: {error}") from None


def _public_key(content: bytes) -> Any:
    from cryptography import x509
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

    try:
        asked = x509.load_pem_x509_csr(content)
        key = asked.public_key()
        if not asked.is_signature_valid:
            raise ValueError("whoever asks does not have the key")
    except UnsupportedAlgorithm as error:
        raise ValueError(str(error)) from None
    if not (isinstance(key, RSAPublicKey) and key.key_size >= 2048):
        raise ValueError("the key must be an RSA key of at least 2048 bits")
    return key


def _hosts(site: Mapping[str, Any]) -> tuple[str, ...]:
    hosts = site.get("host_names") or []
    return tuple(map(str, [hosts] if isinstance(hosts, str) else hosts))
