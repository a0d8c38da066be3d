"""What a party needs in order to ask for its certificate: the plan, and the root certificate's fingerprint. No secret.

Whoever joins trusts the root that has this fingerprint, so two people should compare it by another way than the file's.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import final

import tomli_w

from fedcm.config.schema import read_toml
from fedcm.errors import UserError
from fedcm.federation.plan import FederationPlan, plan_from, plan_table

FILE = "invitation.toml"
_FINGERPRINT = "root_fingerprint"


@final
@dataclass(frozen=True)
class Invitation:
    plan: FederationPlan
    root: str  # the fingerprint of the root certificate

    def text(self) -> str:
        return tomli_w.dumps({_FINGERPRINT: self.root, **plan_table(self.plan)})


def read_invitation(path: Path) -> Invitation:
    table = read_toml(path, "invitation")
    root = table.pop(_FINGERPRINT, None)
    if not (isinstance(root, str) and re.fullmatch(r"SHA256(:[0-9A-F]{2}){32}", root)):
        raise UserError(
            f"{str(path)!r}: {_FINGERPRINT} must be SHA256: and 32 bytes, as in the {FILE} that "
            f"`fedcm federation init` made, got {root!r}"
        )
    return Invitation(plan_from(table, path), root)
