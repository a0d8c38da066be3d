"""Small kits with certificates that are made here, without the engine's tool."""

import datetime
import json
import socket
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from fedcm.federation.kit import Kit, read_kit

NOW = datetime.datetime.now(datetime.UTC)
DAY = datetime.timedelta(days=1)


class Root:
    """A certificate that signs others."""

    def __init__(self, name: str = "hospitals") -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        constraint = x509.BasicConstraints(ca=True, path_length=None)
        made = _certificate(self.name, self.name, self.key.public_key(), NOW - 2 * DAY, NOW + 3650 * DAY)
        self.pem = _pem(made.add_extension(constraint, critical=True).sign(self.key, hashes.SHA256()))

    def sign(
        self,
        name: str,
        key: ec.EllipticCurvePrivateKey,
        starts: datetime.datetime = NOW - DAY,
        ends: datetime.datetime = NOW + 360 * DAY,
    ) -> bytes:
        subject = [(NameOID.COMMON_NAME, name), (NameOID.ORGANIZATION_NAME, "charite")]
        who = x509.Name([x509.NameAttribute(kind, text) for kind, text in subject])
        names = x509.SubjectAlternativeName([x509.DNSName(name)])
        made = _certificate(who, self.name, key.public_key(), starts, ends).add_extension(names, critical=False)
        return _pem(made.sign(self.key, hashes.SHA256()))


def make_kit(folder: Path, kind: str, root: Root, port: int, name: str = "", **dates: datetime.datetime) -> Kit:
    """Make the kit of a server, site or admin, with everything that a check reads."""
    startup = folder / "startup"
    startup.mkdir(parents=True)
    (folder / "local").mkdir()
    name = name or {"server": "localhost", "site": "berlin", "admin": "lead@example.org"}[kind]
    service = {"name": "hospitals", "service": {"target": f"localhost:{port}", "scheme": "grpc"}}
    if kind == "server":
        owner, table = "server", {"servers": [{**service, "admin_port": port + 1}]}
    elif kind == "site":
        owner, table = "client", {"servers": [service], "client": {"fqsn": name}}
    else:
        owner = "client"
        table = {"admin": {"project_name": "hospitals", "username": name, "host": "localhost", "port": port}}
    file = {"server": "fed_server.json", "site": "fed_client.json", "admin": "fed_admin.json"}[kind]
    (startup / file).write_text(json.dumps(table))
    key = ec.generate_private_key(ec.SECP256R1())
    (startup / f"{owner}.crt").write_bytes(root.sign(name, key, **dates))
    write_key(startup / f"{owner}.key", key)
    (startup / "rootCA.pem").write_bytes(root.pem)
    return read_kit(folder)


def write_key(path: Path, key: ec.EllipticCurvePrivateKey | None = None) -> None:
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    path.write_bytes((key or ec.generate_private_key(ec.SECP256R1())).private_bytes(*form))
    path.chmod(0o600)


def free_port() -> int:
    """Return a free port whose next port is free too."""
    while True:
        with socket.socket() as first, socket.socket() as second:
            first.bind(("", 0))
            port = first.getsockname()[1]
            try:
                second.bind(("", port + 1))
            except (OSError, OverflowError):
                continue
            return port


def _certificate(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    starts: datetime.datetime,
    ends: datetime.datetime,
) -> x509.CertificateBuilder:
    made = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key)
    return made.serial_number(x509.random_serial_number()).not_valid_before(starts).not_valid_after(ends)


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
