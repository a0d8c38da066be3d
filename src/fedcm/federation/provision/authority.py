"""A federation's authority: the root certificate, and the certificates that were signed with it.

plan.toml       who may have a certificate; add a site here to let it join later
rootCA.pem      the root certificate
rootCA.key      its key: its holder can make a certificate for anybody
issued.jsonl    one line per certificate
members.json    who may connect to the server, signed with the root key; the server's kit has a copy
profile.yml     ca.json  .nvflare/     files of the engine's tool
"""

import json
import secrets
import threading
import zipfile
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, final

from fedcm.errors import UserError, suggest
from fedcm.federation.certificate import Certificate, parse_certificate, read_certificate
from fedcm.federation.plan import FederationPlan, Party, plan_to_toml, read_plan
from fedcm.federation.provision.certificate_tool import run_tool
from fedcm.federation.provision.invitation import Invitation
from fedcm.federation.provision.request import (
    CertificateRequest,
    add_member,
    find_planned_party,
    read_member,
)
from fedcm.federation.trust.members import (
    MEMBERS_FILE,
    MemberList,
    RemovedCertificate,
    make_member_list,
    read_members,
    sign_members,
)
from fedcm.system.files import write_text

AUTHORITY_FOLDER = "authority"
ROOT_DAYS = 3650
_recording = threading.Lock()


@final
@dataclass(frozen=True)
class IssuedCertificate:
    """A certificate that the authority signed."""

    party: Party
    ends: datetime
    serial: str


@final
class Authority:
    """The folder that holds the root key and signs requests."""

    def __init__(self, folder: Path) -> None:
        """Use `Authority.create` or `Authority.open` instead."""
        self.folder = folder
        self._plan = folder / "plan.toml"
        self._issued = folder / "issued.jsonl"
        self._profile = folder / "profile.yml"
        self.members_file = folder / MEMBERS_FILE

    @classmethod
    def create(cls, folder: Path, plan: FederationPlan) -> "Authority":
        """Make a new authority in a folder that does not exist yet."""
        authority = cls(folder)
        folder.mkdir(mode=0o700)
        write_text(authority._plan, plan_to_toml(plan))
        write_text(authority._profile, _make_profile(plan))
        # no organisation: the tool signs as if the root had none, so chains to a root that has one are not valid
        days = ("--valid-days", str(ROOT_DAYS))
        run_tool("cert", "init", "--profile", authority._profile, "-o", folder, *days, home=folder)
        authority.update_members()
        return authority

    @classmethod
    def open(cls, folder: Path) -> "Authority":
        """Open an existing authority: its own folder, or the organiser's folder that contains it."""
        authority = cls((folder / AUTHORITY_FOLDER if (folder / AUTHORITY_FOLDER).is_dir() else folder).resolve())
        if not ((authority.folder / "rootCA.key").is_file() and authority._plan.is_file()):
            raise UserError(
                f"there is no authority in {str(folder)!r}: give the folder that `fedcm federation init` made, or its "
                f"{AUTHORITY_FOLDER}/"
            )
        return authority

    @property
    def plan(self) -> FederationPlan:
        """The plan, read from `plan.toml`."""
        return read_plan(self._plan)

    @property
    def root(self) -> Certificate:
        """The root certificate."""
        return read_certificate(self.folder / "rootCA.pem")

    @property
    def invitation(self) -> Invitation:
        """The invitation that parties need to request a certificate."""
        return Invitation(self.plan, self.root.fingerprint)

    def sign(self, request: CertificateRequest, signed: Path, days: int) -> IssuedCertificate:
        """Sign a request and write the answer, with the certificate in it, to `signed`.

        An older answer to the same party is replaced, as at a renewal; any other file is not.
        """
        plan = self.plan
        party = find_planned_party(request, plan)
        if signed.exists() and not _is_answer_to(signed, party):
            raise UserError(f"{str(signed)!r} exists already; give another file with -o")
        write_text(self._profile, _make_profile(plan))
        self.update_members()
        copy = self.folder / f".{secrets.token_hex(6)}.request.zip"
        unfinished = signed.absolute().with_name(f".{secrets.token_hex(6)}.signed.zip")
        try:
            copy.write_bytes(request.content)
            options = ("--out", unfinished, "--valid-days", str(days))
            run_tool(
                "cert", "approve", copy, "--ca-dir", self.folder, "--profile", self._profile, *options, home=self.folder
            )
            if party.kind == "server":
                add_member(unfinished, MEMBERS_FILE, self.members_file.read_bytes())
            unfinished.replace(signed)
        finally:
            copy.unlink(missing_ok=True)
            unfinished.unlink(missing_ok=True)
        certificate = parse_certificate(read_member(signed, f"{party.name}.crt"))
        issued = IssuedCertificate(party, certificate.ends, certificate.serial)
        self._record(issued, request.fingerprint)
        return issued

    def update_members(self) -> bool:
        """Write the list of members again if the plan has changed, and return whether it has."""
        before = self._read_members()
        return self._write_members(before, [] if before is None else before.removed)

    def take_out_of_plan(self, name: str) -> None:
        """Write the plan without a site, admin or viewer; nothing if the plan does not name it."""
        plan = self.plan
        left = {key: [one for one in getattr(plan, key) if one != name] for key in ("sites", "admins", "viewers")}
        for key in ("sites", "admins"):
            if not left[key]:
                raise UserError(
                    f"a federation must have at least one of its {key}, and {name!r} is the last one; add another to "
                    f"{str(self._plan)!r} first, or give --keep-place"
                )
        write_text(self._plan, plan_to_toml(plan.model_copy(update=left)))

    def remove_certificates(self, name: str) -> list[str]:
        """Add all certificates that were signed for a party to the removed ones, and return their serial numbers.

        Raises:
            UserError: If the authority has signed no certificate for this name.
        """
        issued = {line["serial"]: line["name"] for line in self._read_lines() if line["kind"] != "server"}
        serials = [serial for serial, owner in issued.items() if owner == name]
        if not serials:
            raise UserError(f"no certificate was signed for {name!r}; {suggest(name, set(issued.values()))}")
        before = self._read_members()
        known = [] if before is None else before.removed
        now = datetime.now(UTC).isoformat(timespec="seconds")
        new = [serial for serial in serials if serial not in {removed.serial for removed in known}]
        self._write_members(
            before, [*known, *(RemovedCertificate(name=name, serial=serial, removed=now) for serial in new)]
        )
        return new

    def _read_members(self) -> MemberList | None:
        """Return the present list; None if this authority was made by a version of fedcm without one."""
        if not self.members_file.exists():
            return None
        return read_members(self.members_file, self.folder / "rootCA.pem")

    def _write_members(self, before: MemberList | None, removed: list[RemovedCertificate]) -> bool:
        members = make_member_list(self.plan, removed, before)
        if members == before:
            return False
        write_text(self.members_file, sign_members(members, self.folder / "rootCA.key"))
        self.members_file.chmod(0o600)
        return True

    def list_issued(self) -> list[IssuedCertificate]:
        """Return the last certificate of each party, in the order in which they expire."""
        last: dict[tuple[str, str], IssuedCertificate] = {}
        for line in self._read_lines():
            party = Party(line["kind"], line["name"], line["role"])
            ends = datetime.fromisoformat(line["ends"])
            last[party.kind, party.name] = IssuedCertificate(party, ends, line["serial"])
        return sorted(last.values(), key=lambda issued: (issued.ends, issued.party.kind, issued.party.name))

    def _read_lines(self) -> list[dict[str, Any]]:
        if not self._issued.is_file():
            return []
        try:
            return [json.loads(line) for line in self._issued.read_text(encoding="utf-8").splitlines()]
        except ValueError as error:
            raise UserError(f"{str(self._issued)!r} is damaged: every line must be JSON ({error})") from None

    def _record(self, issued: IssuedCertificate, key: str) -> None:
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


def _make_profile(plan: FederationPlan) -> str:
    """Return the tool's YAML profile, written as JSON, which is valid YAML."""
    server = {
        "host": plan.server.host,
        "fed_learn_port": plan.server.port,
        "admin_port": plan.server.port_for_admins,
    }
    table = {"name": plan.name, "scheme": "grpc", "connection_security": "mtls", "server": server}
    return json.dumps(table, indent=2) + "\n"


def _is_answer_to(signed: Path, party: Party) -> bool:
    try:
        read_member(signed, f"{party.name}.crt")
    except (UserError, LookupError, OSError, ValueError, zipfile.BadZipFile):
        return False
    return True
