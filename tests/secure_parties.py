"""Sites with certificates for tests of secure aggregation, and a whole round between them without any network."""

import datetime
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from made_kits import NOW, Root

from fedcm.federation.secure.identity import SiteIdentity
from fedcm.federation.secure.server_session import ServerSession
from fedcm.federation.secure.site_session import SiteSession

CONTEXT = "ab" * 32
PERMIT = lambda survivors: None  # noqa: E731
PEM = serialization.Encoding.PEM


@cache
def shared_root() -> Root:
    return Root()


def make_identity(name: str, root: Root | None = None, role: str = "client", days: int = 9) -> SiteIdentity:
    """Make a site's identity; `days` from now its certificate ends."""
    signer, key = root or shared_root(), ec.generate_private_key(ec.SECP256R1())
    subject = [(NameOID.COMMON_NAME, name), (NameOID.UNSTRUCTURED_NAME, role)]
    made = x509.CertificateBuilder().subject_name(x509.Name([x509.NameAttribute(*pair) for pair in subject]))
    made = made.issuer_name(signer.name).public_key(key.public_key()).serial_number(x509.random_serial_number())
    made = made.not_valid_before(NOW - datetime.timedelta(days=30)).not_valid_after(NOW + datetime.timedelta(days=days))
    form = (PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    certificate = made.sign(signer.key, hashes.SHA256()).public_bytes(PEM)
    return SiteIdentity(name, certificate, key.private_bytes(*form), shared_root().pem)


@cache
def shared_identity(name: str) -> SiteIdentity:
    return make_identity(name)


def write_identity(kit: Path, name: str) -> None:
    """Add to a site's kit what the engine's tool would: the start file, the certificate, its key and the root."""
    startup, identity = kit / "startup", shared_identity(name)
    startup.mkdir()
    server = {"name": "hospitals", "service": {"target": "localhost:9", "scheme": "grpc"}}
    (startup / "fed_client.json").write_text(json.dumps({"servers": [server], "client": {"fqsn": name}}))
    for file, data in (
        ("client.crt", identity.certificate),
        ("client.key", identity.key),
        ("rootCA.pem", identity.root),
    ):
        (startup / file).write_bytes(data)


def name_sites(count: int) -> list[str]:
    return [f"s{number:02d}" for number in range(count)]


def make_sites(names: Sequence[str], least: int = 2, context: str = CONTEXT) -> dict[str, SiteSession]:
    return {name: SiteSession(shared_identity(name), context, names, least) for name in names}


Change = Callable[[str, str, Any], Any]  # step, site, its answer → what the server gets


def run_round(
    sites: Mapping[str, SiteSession],
    reports: Mapping[str, np.ndarray],
    least: int = 2,
    lost: Mapping[str, Collection[str]] | None = None,
    change: Change = lambda step, site, answer: answer,
) -> tuple[np.ndarray, ServerSession]:
    """Run all steps; `lost` names the sites that answer nothing from a step on. Return the sum and the session."""
    lost = lost or {}
    server, gone = ServerSession(least, len(next(iter(reports.values())))), set[str]()

    def go(step: str, members: Collection[str], answer: Callable[[str], Any], add: Callable[[str, Any], None]) -> None:
        gone.update(lost.get(step, ()))
        for name in [name for name in sorted(members, reverse=True) if name not in gone]:
            add(name, change(step, name, answer(name)))

    go("advertise", sites, lambda name: sites[name].advertise(), server.add_advert)
    go("share", server.roster, lambda name: sites[name].share(server.list_keys()), server.add_shares)
    go(
        "mask",
        server.sharers,
        lambda name: sites[name].mask(reports[name], server.list_shares_for(name)),
        server.add_masked,
    )
    survivors = sorted(server.survivors)
    go("confirm", survivors, lambda name: sites[name].confirm(survivors, PERMIT), server.add_signature)
    signatures = server.list_signatures()
    go("unmask", list(signatures), lambda name: sites[name].unmask(signatures, PERMIT), server.add_revealed)
    return server.remove_masks(), server


def draw_reports(names: Sequence[str], length: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Draw integers of all sizes, negative ones as two's complement."""
    generator = np.random.default_rng(seed)
    return {name: generator.integers(-(2**61), 2**61, length).astype(np.uint64) for name in names}


def add_up(reports: Mapping[str, np.ndarray], names: Collection[str]) -> np.ndarray:
    """Add reports with Python's integers, modulo 2**64."""
    rows = [reports[name].tolist() for name in names]
    return np.array([sum(column) % 2**64 for column in zip(*rows, strict=True)], dtype=np.uint64)
