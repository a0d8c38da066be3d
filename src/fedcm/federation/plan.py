"""A federation's plan, `PLAN.toml`: who takes part, and where the server is.

name = "hospitals"                 # letters, digits, - and _
organisation = "charite"           # optional: letters, digits and _
sites = ["berlin", "paris"]
admins = ["lead@example.org"]      # may run experiments, and stop and fetch their own
viewers = ["guest@example.org"]    # optional: may look, and nothing more
[server]
host = "fl.example.org"            # as the sites reach it: a name or an IPv4 address
port = 8002
admin_port = 8003                  # optional: port + 1
also = ["10.0.0.5"]                # optional: other names and addresses for its certificate
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, final

import tomli_w
from pydantic import AfterValidator, Field

from fedcm.config.schema import Section, read_section, read_toml
from fedcm.errors import UserError, suggest

Kind = Literal["server", "site", "admin"]

_LONGEST = 64  # of a name in a certificate
_LABEL = r"[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?"
_RESERVED = ("server", "all", "admin", "root")  # the engine's own words for parties


def _name(given: str) -> str:
    return _matching(r"[A-Za-z0-9][A-Za-z0-9_-]*", given, "a name is letters, digits, - and _, such as berlin-1")


def _word(given: str) -> str:
    return _matching(r"[A-Za-z0-9_]+", given, "an organisation is letters, digits and _, such as charite")


def _address(given: str) -> str:
    return _matching(
        r"[A-Za-z0-9][A-Za-z0-9._-]*@[A-Za-z0-9.-]+\.[A-Za-z]{2,}",
        given,
        "an admin goes by an e-mail address, such as lead@example.org",
    )


def _host(given: str) -> str:
    return _matching(rf"({_LABEL}\.)*{_LABEL}", given, "a host is a name or an IPv4 address, such as fl.example.org")


def _matching(pattern: str, given: str, rule: str) -> str:
    if len(given) > _LONGEST or not re.fullmatch(pattern, given):
        raise ValueError(f"{rule}, of at most {_LONGEST} characters, got {given[:80]!r}")
    return given


Name = Annotated[str, AfterValidator(_name)]
Host = Annotated[str, AfterValidator(_host)]
Address = Annotated[str, AfterValidator(_address)]
Port = Annotated[int, Field(ge=1, le=65535)]


class PlannedServer(Section):
    host: Host
    port: Port
    admin_port: Port | None = None  # port + 1; may be the port itself
    also: list[Host] = Field(default=[])  # other names for its certificate

    @property
    def port_for_admins(self) -> int:
        return self.port + 1 if self.admin_port is None else self.admin_port


@final
@dataclass(frozen=True)
class Party:
    """Somebody with a certificate."""

    kind: Kind
    name: str
    role: str  # in the certificate, in the engine's words

    @property
    def place(self) -> Path:
        """Of its kit, in the folder of a whole federation."""
        return Path("server") if self.kind == "server" else Path(f"{self.kind}s") / self.name


class FederationPlan(Section):
    name: Name
    organisation: Annotated[str, AfterValidator(_word)] | None = None  # the name's, unless given
    sites: Annotated[list[Name], Field(min_length=1)]
    admins: Annotated[list[Address], Field(min_length=1)]  # the role lead: submit, view, stop, fetch
    viewers: list[Address] = Field(default=[])  # the role member: view
    server: PlannedServer

    @property
    def org(self) -> str:
        return self.organisation or self.name.replace("-", "_")

    @property
    def parties(self) -> list[Party]:
        return [
            Party("server", self.server.host, "server"),
            *(Party("site", name, "client") for name in self.sites),
            *(Party("admin", name, "lead") for name in self.admins),
            *(Party("admin", name, "member") for name in self.viewers),
        ]

    def party(self, kind: str, name: str) -> Party:
        """UserError where the plan does not have it."""
        known = {party.name: party for party in self.parties if party.kind == kind}
        if name not in known:
            raise UserError(f"the plan of {self.name!r} has no {kind} {name!r}; {suggest(name, known)}")
        return known[name]


def read_plan(path: Path) -> FederationPlan:
    return plan_from(read_toml(path, "plan"), path)


def plan_from(table: Mapping[str, Any], path: Path) -> FederationPlan:
    """A plan from the table that a file holds."""
    try:
        _reject_unknown(FederationPlan, table)
        if "server" in table:
            if isinstance(table["server"], Mapping):
                _reject_unknown(PlannedServer, table["server"], "server.")
            table = {**table, "server": read_section(PlannedServer, table["server"], "server")}
        plan = read_section(FederationPlan, table)
        _reject_confusion(plan)
    except UserError as refusal:
        raise UserError(f"{str(path)!r}: {refusal}") from None
    return plan


def _reject_unknown(kind: type[Section], table: Mapping[str, Any], where: str = "") -> None:
    """Said before a key is missed that stands there misspelt."""
    for key in table:
        if key not in kind.model_fields:
            raise UserError(f"there is no setting {where + key!r}; {suggest(key, kind.model_fields)}")


def _reject_confusion(plan: FederationPlan) -> None:
    for what, names in (("sites", plan.sites), ("admins and viewers", [*plan.admins, *plan.viewers])):
        lower = [name.lower() for name in names]
        for name in names:
            if lower.count(name.lower()) > 1:
                raise UserError(f"{what} must differ in more than capitals, got {name!r} more than once")
    # a site's certificate is good for a server of the site's name too
    taken = {name.lower() for name in (*_RESERVED, plan.server.host, *plan.server.also)}
    for site in plan.sites:
        if site.lower() in taken:
            others = ", ".join(_RESERVED)
            raise UserError(f"a site must have a name of its own, other than the server's and {others}, got {site!r}")
    if plan.server.port_for_admins > 65535:
        raise UserError("server.admin_port must be given where server.port is 65535, because port + 1 is none")


def plan_table(plan: FederationPlan) -> dict[str, Any]:
    return plan.model_dump(exclude_defaults=True)


def plan_text(plan: FederationPlan) -> str:
    return tomli_w.dumps(plan_table(plan))
