"""An invitation: the plan and the root certificate's fingerprint, with which a party requests its certificate.

It holds no secret. A party trusts the root that has this fingerprint, so the party and the organiser should compare the
fingerprint through another channel than the one that carried the file.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import final

import tomli_w

from fedcm.config.schema import read_toml
from fedcm.errors import UserError
from fedcm.federation.plan import FederationPlan, parse_plan, plan_to_table

INVITATION_FILE = "invitation.toml"
_FINGERPRINT = "root_fingerprint"


@final
@dataclass(frozen=True)
class Invitation:
    """A plan and the root certificate to trust."""

    plan: FederationPlan
    root: str  # fingerprint of the root certificate

    def to_toml(self) -> str:
        """Return the text of `invitation.toml`."""
        return tomli_w.dumps({_FINGERPRINT: self.root, **plan_to_table(self.plan)})


def read_invitation(path: Path) -> Invitation:
    """Read `invitation.toml`."""
    table = read_toml(path, "invitation")
    root = table.pop(_FINGERPRINT, None)
    if not (isinstance(root, str) and re.fullmatch(r"SHA256(:[0-9A-F]{2}){32}", root)):
        raise UserError(
            f"{str(path)!r}: {_FINGERPRINT} must be SHA256: and 32 bytes, as in the {INVITATION_FILE} that "
            f"`fedcm federation init` made, got {root!r}"
        )
    return Invitation(parse_plan(table, path), root)
