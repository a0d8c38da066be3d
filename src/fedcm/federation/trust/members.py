"""The list of members, `members.json`: who may connect to the server, signed with the federation's root key.

A party may connect if the list names it and does not name its certificate as removed. A certificate that the organiser
signs later for a named party needs no new list. A list has a number; the server never goes back to a lower one.
"""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from fedcm.config.schema import Section
from fedcm.errors import UserError
from fedcm.federation.certificate import Certificate
from fedcm.federation.plan import FederationPlan
from fedcm.federation.trust.signature import is_signed, sign

MEMBERS_FILE = "members.json"  # in the authority's folder and in the server's kit


class Member(Section):
    """A party that may connect."""

    kind: str  # site or admin
    name: str
    role: str  # in its certificate


class RemovedCertificate(Section):
    """A certificate that is not accepted any more."""

    name: str
    serial: str
    removed: str  # when


class MemberList(Section):
    """Who may connect to a federation's server."""

    federation: str
    number: int  # one more with every change
    changed: str  # when
    members: list[Member]
    removed: list[RemovedCertificate]

    def find_objection(self, certificate: Certificate) -> str:
        """Return why a certificate's holder may not connect; empty if it may."""
        if any(certificate.serial == removed.serial for removed in self.removed):
            return "its certificate was removed"
        if not any((certificate.name, certificate.role) == (member.name, member.role) for member in self.members):
            return "it is not a member"
        return ""


def make_member_list(
    plan: FederationPlan, removed: Sequence[RemovedCertificate], before: MemberList | None
) -> MemberList:
    """Return the list for a plan: the list before if nothing has changed, otherwise one with a higher number."""
    members = [Member(kind=party.kind, name=party.name, role=party.role) for party in plan.parties[1:]]
    if before is not None and (before.members, before.removed) == (members, list(removed)):
        return before
    return MemberList(
        federation=plan.name,
        number=1 if before is None else before.number + 1,
        changed=datetime.now(UTC).isoformat(timespec="seconds"),
        members=members,
        removed=list(removed),
    )


def sign_members(members: MemberList, root_key: Path) -> str:
    """Return the text of `members.json`."""
    text = members.model_dump_json()
    return json.dumps({"members": text, "signature": sign(root_key, text.encode())}, indent=2) + "\n"


def read_members(file: Path, root: Path) -> MemberList:
    """Read a list and check that the root key signed it.

    Args:
        file: The list.
        root: The root certificate in PEM.

    Raises:
        UserError: If the list is missing or damaged, or another key signed it.
    """
    try:
        return _parse(json.loads(file.read_text(encoding="utf-8")), root.read_bytes(), file)
    except FileNotFoundError as error:
        raise UserError(f"there is no {str(error.filename)!r}; get the list of members from the organiser") from None
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise UserError(f"{str(file)!r} must be the organiser's list of members, but is damaged ({error})") from None


def _parse(table: Any, root: bytes, file: Path) -> MemberList:
    text = str(table["members"])
    if not is_signed(root, text.encode(), str(table["signature"])):
        raise UserError(f"{str(file)!r} must be signed with the federation's root key, but is not; ask the organiser")
    try:
        return MemberList.model_validate_json(text)
    except ValidationError as error:
        raise ValueError(f"{error.error_count()} fields are wrong") from None
