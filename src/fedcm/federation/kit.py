"""A kit: the folder of one federation participant, with its key, its certificate and the engine's settings."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from fedcm.errors import UserError
from fedcm.federation.certificate import read_certificate
from fedcm.federation.plan import Kind

REQUEST = "request"  # folder of a kit that holds the key of a certificate that is requested but not yet signed
SITE_FILE = "site.toml"  # a site's own settings
SERVER_FILE = "server.toml"  # the server's own settings
RUNS = "runs"  # folder of the server's kit with its runs
STATES = "state"  # folder of a site's kit with its client states
START_FILES = {"server": "fed_server.json", "site": "fed_client.json", "admin": "fed_admin.json"}


@final
@dataclass(frozen=True)
class Kit:
    """Where a kit is, and what the engine's start file says about its owner and the server."""

    path: Path
    kind: Kind
    name: str  # as in the certificate: a site's name, an admin's address, the server's host
    federation: str
    host: str  # of the server
    port: int  # of the server: for admins in an admin's kit, for sites in the others
    admin_port: int | None  # only in the server's kit
    certificate: Path
    key: Path
    root: Path

    @property
    def organisation(self) -> str:
        """The organisation in the kit's certificate."""
        return read_certificate(self.certificate).organisation


def read_kit(path: Path) -> Kit:
    """Read whose kit a folder is.

    Raises:
        UserError: If the folder is not a kit, or its start file is damaged.
    """
    startup = path / "startup"
    kinds = [kind for kind, file in START_FILES.items() if (startup / file).is_file()]
    if len(kinds) != 1:
        raise UserError(_explain_no_kit(path))
    kind, file = kinds[0], startup / START_FILES[kinds[0]]
    try:
        fields = _PARSERS[kind](json.loads(file.read_text(encoding="utf-8")))
        host, port = fields.pop("host"), int(fields.pop("port"))
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise UserError(
            f"{str(file)!r} must be unchanged since `fedcm federation` wrote it, but cannot be read ({error!r})"
        ) from None
    owner = "server" if kind == "server" else "client"
    return Kit(
        path=path,
        kind=kind,  # pyright: ignore[reportArgumentType]
        host=host,
        port=port,
        certificate=startup / f"{owner}.crt",
        key=startup / f"{owner}.key",
        root=startup / "rootCA.pem",
        **fields,
    )


def _parse_server(table: Mapping[str, Any]) -> dict[str, Any]:
    server = table["servers"][0]
    host, _, port = server["service"]["target"].rpartition(":")
    admin_port = int(server["admin_port"])
    return {"name": host, "federation": server["name"], "host": host, "port": port, "admin_port": admin_port}


def _parse_site(table: Mapping[str, Any]) -> dict[str, Any]:
    server = table["servers"][0]
    host, _, port = server["service"]["target"].rpartition(":")
    name = table["client"]["fqsn"]
    return {"name": name, "federation": server["name"], "host": host, "port": port, "admin_port": None}


def _parse_admin(table: Mapping[str, Any]) -> dict[str, Any]:
    admin = table["admin"]
    return {
        "name": admin["username"],
        "federation": admin["project_name"],
        "host": admin["host"],
        "port": admin["port"],
        "admin_port": None,
    }


_PARSERS: dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
    "server": _parse_server,
    "site": _parse_site,
    "admin": _parse_admin,
}


def _explain_no_kit(path: Path) -> str:
    if not path.is_dir():
        return f"there is no kit {str(path)!r}: give the folder of your kit"
    if (path / REQUEST).is_dir():
        return (
            f"the kit {str(path)!r} is waiting for the organiser's answer: send its request to the organiser, then run "
            f"`fedcm federation join SIGNED.zip {path}`"
        )
    if (path / "authority").is_dir():
        return f"{str(path)!r} is a whole federation: give one of the kits in it, such as {path / 'server'}"
    return f"a kit must contain startup/ with one of {', '.join(START_FILES.values())}, but {str(path)!r} does not"
