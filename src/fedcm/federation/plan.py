"""A federation's plan, `PLAN.toml`: who takes part, and where the server is. An example:

name = "hospitals"                 # letters, digits, - and _
organisation = "charite"           # optional: letters, digits and _
sites = ["berlin", "paris"]
admins = ["lead@example.org"]      # may run experiments, and stop and fetch their own runs
viewers = ["guest@example.org"]    # optional: may only look
[server]
host = "fl.example.org"            # as the sites reach it: a name or an IPv4 address
port = 8002
admin_port = 8003                  # optional: by default port + 1
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

_MAX_LENGTH = 64  # characters of a name in a certificate
_LABEL = r"[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?"
_RESERVED = ("server", "all", "admin", "root")  # names that mean something else to the engine


def _check_name(given: str) -> str:
    return _check_pattern(
        r"[A-Za-z0-9][A-Za-z0-9_-]*", given, "must consist of letters, digits, - and _, as in berlin-1"
    )


def _check_organisation(given: str) -> str:
    return _check_pattern(r"[A-Za-z0-9_]+", given, "must consist of letters, digits and _, as in charite")


def _check_address(given: str) -> str:
    return _check_pattern(
        r"[A-Za-z0-9][A-Za-z0-9._-]*@[A-Za-z0-9.-]+\.[A-Za-z]{2,}",
        given,
        "must be an e-mail address, as in lead@example.org",
    )


def _check_host(given: str) -> str:
    return _check_pattern(
        rf"({_LABEL}\.)*{_LABEL}", given, "must be a host name or an IPv4 address, as in fl.example.org"
    )


def _check_pattern(pattern: str, given: str, rule: str) -> str:
    if len(given) > _MAX_LENGTH or not re.fullmatch(pattern, given):
        raise ValueError(f"{rule}, with at most {_MAX_LENGTH} characters, got {given[:80]!r}")
    return given


Name = Annotated[str, AfterValidator(_check_name)]
Host = Annotated[str, AfterValidator(_check_host)]
Address = Annotated[str, AfterValidator(_check_address)]
Port = Annotated[int, Field(ge=1, le=65535)]


class PlannedServer(Section):
    """Where the server is."""

    host: Host
    port: Port
    admin_port: Port | None = None  # by default port + 1; may equal port
    also: list[Host] = Field(default=[])  # other names for its certificate

    @property
    def port_for_admins(self) -> int:
        """The port that admins connect to."""
        return self.port + 1 if self.admin_port is None else self.admin_port


@final
@dataclass(frozen=True)
class Party:
    """A holder of a certificate: the server, a site, an admin or a viewer."""

    kind: Kind
    name: str
    role: str  # in the certificate, as the engine calls it: server, client, lead or member

    @property
    def kit_folder(self) -> Path:
        """Path of its kit inside the organiser's folder."""
        return Path("server") if self.kind == "server" else Path(f"{self.kind}s") / self.name


class FederationPlan(Section):
    """Who takes part in a federation, and where the server is."""

    name: Name
    organisation: Annotated[str, AfterValidator(_check_organisation)] | None = None  # by default made from the name
    sites: Annotated[list[Name], Field(min_length=1)]
    admins: Annotated[list[Address], Field(min_length=1)]  # the role lead: submit, view, stop, fetch
    viewers: list[Address] = Field(default=[])  # the role member: view
    server: PlannedServer

    @property
    def certificate_organisation(self) -> str:
        """The organisation that is written into certificates."""
        return self.organisation or self.name.replace("-", "_")

    @property
    def parties(self) -> list[Party]:
        """All certificate holders, the server first."""
        return [
            Party("server", self.server.host, "server"),
            *(Party("site", name, "client") for name in self.sites),
            *(Party("admin", name, "lead") for name in self.admins),
            *(Party("admin", name, "member") for name in self.viewers),
        ]

    def get_party(self, kind: str, name: str) -> Party:
        """Return one certificate holder, or raise UserError if the plan does not name it."""
        known = {party.name: party for party in self.parties if party.kind == kind}
        if name not in known:
            raise UserError(f"the plan of {self.name!r} has no {kind} {name!r}; {suggest(name, known)}")
        return known[name]


def read_plan(path: Path) -> FederationPlan:
    """Read and check `PLAN.toml`."""
    return parse_plan(read_toml(path, "plan"), path)


def parse_plan(table: Mapping[str, Any], path: Path) -> FederationPlan:
    """Check the table of a plan; error messages name the file `path`."""
    try:
        _reject_unknown(FederationPlan, table)
        if "server" in table:
            if isinstance(table["server"], Mapping):
                _reject_unknown(PlannedServer, table["server"], "server.")
            table = {**table, "server": read_section(PlannedServer, table["server"], "server")}
        plan = read_section(FederationPlan, table)
        _reject_ambiguous_names(plan)
    except UserError as error:
        raise UserError(f"{str(path)!r}: {error}") from None
    return plan


def _reject_unknown(kind: type[Section], table: Mapping[str, Any], where: str = "") -> None:
    """Report a misspelt key before the key that is therefore missing."""
    for key in table:
        if key not in kind.model_fields:
            raise UserError(f"there is no setting {where + key!r}; {suggest(key, kind.model_fields)}")


def _reject_ambiguous_names(plan: FederationPlan) -> None:
    for what, names in (("sites", plan.sites), ("admins and viewers", [*plan.admins, *plan.viewers])):
        lower = [name.lower() for name in names]
        for name in names:
            if lower.count(name.lower()) > 1:
                raise UserError(f"{what} must differ in more than upper and lower case, got {name!r} more than once")
    # a site's certificate is also valid for a server with the site's name
    taken = {name.lower() for name in (*_RESERVED, plan.server.host, *plan.server.also)}
    for site in plan.sites:
        if site.lower() in taken:
            reserved = ", ".join(_RESERVED)
            raise UserError(f"a site's name must differ from the server's names and from {reserved}, got {site!r}")
    if plan.server.port_for_admins > 65535:
        raise UserError("server.admin_port must be given if server.port is 65535, because its default is port + 1")


def plan_to_table(plan: FederationPlan) -> dict[str, Any]:
    """Return the plan as the table of a TOML file."""
    return plan.model_dump(exclude_defaults=True)


def plan_to_toml(plan: FederationPlan) -> str:
    """Return the plan as TOML."""
    return tomli_w.dumps(plan_to_table(plan))
