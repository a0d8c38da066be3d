"""A federation's authority: the root certificate, and the certificates that were signed with it.

plan.toml       who may have one; a site that joins later is added here
rootCA.pem      the root certificate
rootCA.key      its key: whoever has it is the federation
issued.jsonl    a line for every certificate
profile.yml     ca.json  .nvflare/     the engine's
"""

import json
import secrets
import threading
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, final

from fedcm.errors import UserError
from fedcm.federation.certificate import Certificate, certificate_from, read_certificate
from fedcm.federation.plan import FederationPlan, Party, plan_text, read_plan
from fedcm.federation.provision.certificate_tool import run_tool
from fedcm.federation.provision.invitation import Invitation
from fedcm.federation.provision.request import Request, reject_unplanned
from fedcm.federation.provision.signed import member_of
from fedcm.system.files import write_text

FOLDER = "authority"
ROOT_DAYS = 3650
_recording = threading.Lock()


@final
@dataclass(frozen=True)
class Issued:
    """A certificate that was signed."""

    party: Party
    ends: datetime
    serial: str


@final
class Authority:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._plan = folder / "plan.toml"
        self._issued = folder / "issued.jsonl"
        self._profile = folder / "profile.yml"

    @classmethod
    def create(cls, folder: Path, plan: FederationPlan) -> "Authority":
        authority = cls(folder)
        folder.mkdir(mode=0o700)
        write_text(authority._plan, plan_text(plan))
        write_text(authority._profile, _profile(plan))
        # no organisation: the tool signs in the name of a root that has none, and chains to any other do not hold
        days = ("--valid-days", str(ROOT_DAYS))
        run_tool("cert", "init", "--profile", authority._profile, "-o", folder, *days, home=folder)
        return authority

    @classmethod
    def open(cls, folder: Path) -> "Authority":
        """Its own folder, or the federation's that it is in."""
        authority = cls((folder / FOLDER if (folder / FOLDER).is_dir() else folder).resolve())
        if not ((authority.folder / "rootCA.key").is_file() and authority._plan.is_file()):
            raise UserError(
                f"there is no authority in {str(folder)!r}: give the folder that `fedcm federation init` made, or its "
                f"{FOLDER}/"
            )
        return authority

    @property
    def plan(self) -> FederationPlan:
        return read_plan(self._plan)

    @property
    def root(self) -> Certificate:
        return read_certificate(self.folder / "rootCA.pem")

    @property
    def invitation(self) -> Invitation:
        return Invitation(self.plan, self.root.fingerprint)

    def sign(self, request: Request, signed: Path, days: int) -> Issued:
        """The answer to a request, which holds the certificate, at `signed`; an older answer to the same party, as
        there is when a certificate is renewed, is replaced, and nothing else."""
        plan = self.plan
        party = reject_unplanned(request, plan)
        if signed.exists() and not _answers(signed, party):
            raise UserError(f"{str(signed)!r} is there already; give another place with -o")
        write_text(self._profile, _profile(plan))
        asked = self.folder / f".{secrets.token_hex(6)}.request.zip"
        making = signed.absolute().with_name(f".{secrets.token_hex(6)}.signed.zip")
        try:
            asked.write_bytes(request.content)
            into = ("--out", making, "--valid-days", str(days))
            run_tool(
                "cert", "approve", asked, "--ca-dir", self.folder, "--profile", self._profile, *into, home=self.folder
            )
            making.replace(signed)
        finally:
            asked.unlink(missing_ok=True)
            making.unlink(missing_ok=True)
        made = certificate_from(member_of(signed, f"{party.name}.crt"))
        issued = Issued(party, made.ends, made.serial)
        self._record(issued, request.fingerprint)
        return issued

    def issued(self) -> list[Issued]:
        """The last one of each party, the first to end first."""
        last: dict[tuple[str, str], Issued] = {}
        for line in self._lines():
            party = Party(line["kind"], line["name"], line["role"])
            last[party.kind, party.name] = Issued(party, datetime.fromisoformat(line["ends"]), line["serial"])
        return sorted(last.values(), key=lambda one: (one.ends, one.party.kind, one.party.name))

    def _lines(self) -> list[dict[str, Any]]:
        if not self._issued.is_file():
            return []
        try:
            return [json.loads(line) for line in self._issued.read_text(encoding="utf-8").splitlines()]
        except ValueError as error:
            raise UserError(f"{str(self._issued)!r} is damaged: every line must be JSON ({error})") from None

    def _record(self, issued: Issued, key: str) -> None:
        line = {
            "name": issued.party.name,
            "kind": issued.party.kind,
            "role": issued.party.role,
            "serial": issued.serial,
            "ends": issued.ends.isoformat(),
            "key": key,
            "signed": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        with _recording, self._issued.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def _profile(plan: FederationPlan) -> str:
    """JSON is YAML."""
    server = {
        "host": plan.server.host,
        "fed_learn_port": plan.server.port,
        "admin_port": plan.server.port_for_admins,
    }
    table = {"name": plan.name, "scheme": "grpc", "connection_security": "mtls", "server": server}
    return json.dumps(table, indent=2) + "\n"


def _answers(signed: Path, party: Party) -> bool:
    """Is this an answer to that party?"""
    try:
        member_of(signed, f"{party.name}.crt")
    except UserError:
        return False
    return True
