"""Measure what secure aggregation costs: `make bench-secure` (five minutes).

The protocol alone, in one process and one thread, without a network or training: keys, signatures, shares and masks of
one round with FedCM, whose report is one vector. Sites use the same class as in a federation; their certificates have
RSA keys of 2048 bits, like those of real kits. With a third of the sites lost after they dealt their shares, the server
computes the masks of every lost site with every other one.
"""

import datetime
import json
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID
from pages import describe_machine

from fedcm.federation.secure.identity import SiteIdentity
from fedcm.federation.secure.server_session import ServerSession
from fedcm.federation.secure.site_session import SiteSession

RESULTS = Path(__file__).parent / "SECURE_AGGREGATION.md"
MODELS = {"LeNet": 62_006, "ResNet-18": 11_173_962}  # parameters
COUNTS = (3, 10, 30)
CONTEXT = "00" * 32
NOW = datetime.datetime.now(datetime.UTC)
DAY = datetime.timedelta(days=1)


class Cost(NamedTuple):
    """What one round costs."""

    site: float  # seconds of one site
    server: float  # seconds
    up: float  # bytes that one site sends
    down: float  # bytes that one site receives


def main() -> None:
    identities, rows = make_identities(max(COUNTS)), []
    measure(identities, 10, 0)  # loads the libraries and the keys
    for model, size in MODELS.items():
        for count in COUNTS:
            for lost in (0, max(count // 3, 1)):
                cost = measure(identities[:count], size, lost)
                row = f"| {model} | {count} | {lost} | {cost.site:.3g} | {cost.server:.3g} "
                rows.append(row + f"| {cost.up / 2**20:.3g} | {4 * size / 2**20:.3g} | {cost.down / 2**20:.3g} |")
                print(rows[-1], flush=True)
                RESULTS.write_text(make_page(rows), encoding="utf-8")


def measure(identities: list[SiteIdentity], size: int, lost: int) -> Cost:
    """Run one round in which the masked reports of the first `lost` sites do not arrive; check the sum."""
    names, least = [own.name for own in identities], len(identities) // 2 + 1
    sites = {own.name: SiteSession(own, CONTEXT, names, least) for own in identities}
    server, clock = ServerSession(least, size), Clock()
    reports = np.random.default_rng(0).integers(-(2**50), 2**50, size).view(np.uint64)
    for name in names:
        with clock.site:
            advert = sites[name].advertise()
        clock.count_up(advert)
        with clock.server:
            server.add_advert(name, advert)
    roster = server.list_keys()
    for name in names:
        clock.count_down(roster)
        with clock.site:
            shares = sites[name].share(roster)
        clock.count_up(shares)
        with clock.server:
            server.add_shares(name, shares)
    relayed = {name: server.list_shares_for(name) for name in names}
    for name in names:
        clock.count_down(relayed)  # every site gets the shares of all, and can read its own
        with clock.site:
            masked = sites[name].mask(reports, relayed[name])
        clock.up += masked.nbytes
        if name not in names[:lost]:
            with clock.server:
                server.add_masked(name, masked)
    survivors = sorted(server.survivors)
    for name in survivors:
        with clock.site:
            signature = sites[name].confirm(survivors, lambda sites: None)
        server.add_signature(name, signature)
    signatures = server.list_signatures()
    for name in survivors:
        clock.count_down(signatures)
        with clock.site:
            revealed = sites[name].unmask(signatures, lambda sites: None)
        clock.count_up(revealed)
        server.add_revealed(name, revealed)
    with clock.server:
        total = server.remove_masks()
    assert np.array_equal(total, reports * np.uint64(len(survivors))), "the sum must be exact"
    count = len(names)
    return Cost(clock.site.seconds / count, clock.server.seconds, clock.up / count, clock.down / count)


class Stopwatch:
    """Adds up the CPU seconds of its blocks, which other processes on the machine do not change much."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __enter__(self) -> None:
        self._start = time.process_time()

    def __exit__(self, *error: object) -> None:
        self.seconds += time.process_time() - self._start


class Clock:
    """The seconds and bytes of all sites and of the server."""

    def __init__(self) -> None:
        self.site, self.server = Stopwatch(), Stopwatch()
        self.up = self.down = 0

    def count_up(self, message: Any) -> None:
        self.up += len(json.dumps(message))

    def count_down(self, message: Any) -> None:
        self.down += len(json.dumps(message))


def make_identities(count: int) -> list[SiteIdentity]:
    """Make sites with certificates of one root."""
    root_key, root_name = make_key(), make_name("root", "")
    root = make_certificate(root_name, root_name, root_key, root_key)
    identities = []
    for number in range(count):
        name, key = f"site-{number:02d}", make_key()
        certificate = make_certificate(make_name(name, "client"), root_name, key, root_key)
        form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        identities.append(SiteIdentity(name, certificate, key.private_bytes(*form), root))
    return identities


def make_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def make_name(name: str, role: str) -> x509.Name:
    pairs = [(NameOID.COMMON_NAME, name), (NameOID.UNSTRUCTURED_NAME, role)]
    return x509.Name([x509.NameAttribute(kind, text) for kind, text in pairs if text])


def make_certificate(subject: x509.Name, issuer: x509.Name, key: rsa.RSAPrivateKey, signer: rsa.RSAPrivateKey) -> bytes:
    made = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key.public_key())
    made = made.serial_number(x509.random_serial_number()).not_valid_before(NOW - DAY).not_valid_after(NOW + DAY)
    return made.sign(signer, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def make_page(rows: list[str]) -> str:
    names = ["model", "sites", "lost", "CPU s per site", "CPU s at the server", "MiB up", "MiB up, plain", "MiB down"]
    table = "\n".join([f"| {' | '.join(names)} |", "|---|---:|---:|---:|---:|---:|---:|---:|", *rows])
    return f"""# What secure aggregation costs

Written by `make bench-secure`. {describe_machine()}

The protocol of one round in one process and one thread, without a network or training: keys, RSA signatures, shares and
masks of one vector with FedCM. "Lost" sites deal their shares, and their masked reports do not arrive. "MiB up" and
"MiB down" are per site and round; what goes down comes in addition to the model. The masked report has 8 bytes per
parameter where a plain one has 4.

{table}
"""


if __name__ == "__main__":
    main()
