"""A party's folder, its kit: which one it is, told from what the engine reads at its start."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from fedcm.errors import UserError
from fedcm.federation.certificate import read_certificate
from fedcm.federation.plan import Kind

REQUEST = "request"  # the folder in a kit with the key of a certificate that was asked for and is not there yet
_STARTS = {"server": "fed_server.json", "site": "fed_client.json", "admin": "fed_admin.json"}


@final
@dataclass(frozen=True)
class Kit:
    path: Path
    kind: Kind
    name: str  # in its certificate: a site's name, an admin's address, the server's host
    federation: str
    host: str  # of the server, for all of them
    port: int  # where the server listens to this kind of party; in the server's own kit where it listens to sites
    admin_port: int | None  # in the server's kit alone
    certificate: Path
    key: Path
    root: Path

    @property
    def organisation(self) -> str:
        """As the certificate has it."""
        return read_certificate(self.certificate).organisation


def read_kit(path: Path) -> Kit:
    startup = path / "startup"
    found = [kind for kind, file in _STARTS.items() if (startup / file).is_file()]
    if len(found) != 1:
        raise UserError(_what_else(path))
    kind, file = found[0], startup / _STARTS[found[0]]
    try:
        fields = _READ[kind](json.loads(file.read_text(encoding="utf-8")))
        host, port = fields.pop("host"), int(fields.pop("port"))
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise UserError(f"{str(file)!r} must be as the federation's tool wrote it, and is not ({error!r})") from None
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


def _server(table: Mapping[str, Any]) -> dict[str, Any]:
    server = table["servers"][0]
    host, _, port = server["service"]["target"].rpartition(":")
    admin_port = int(server["admin_port"])
    return {"name": host, "federation": server["name"], "host": host, "port": port, "admin_port": admin_port}


def _site(table: Mapping[str, Any]) -> dict[str, Any]:
    server = table["servers"][0]
    host, _, port = server["service"]["target"].rpartition(":")
    name = table["client"]["fqsn"]
    return {"name": name, "federation": server["name"], "host": host, "port": port, "admin_port": None}


def _admin(table: Mapping[str, Any]) -> dict[str, Any]:
    admin = table["admin"]
    return {
        "name": admin["username"],
        "federation": admin["project_name"],
        "host": admin["host"],
        "port": admin["port"],
        "admin_port": None,
    }


_READ: dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {"server": _server, "site": _site, "admin": _admin}


def _what_else(path: Path) -> str:
    """What to do with a folder that is no kit."""
    if not path.is_dir():
        return f"there is no kit {str(path)!r}: give the folder that the federation's organiser gave you"
    if (path / REQUEST).is_dir():
        return (
            f"the kit {str(path)!r} waits for the organiser's answer: send its request, then "
            f"`fedcm federation join SIGNED.zip {path}`"
        )
    if (path / "authority").is_dir():
        return f"{str(path)!r} is a whole federation: give one of the kits in it, such as {path / 'server'}"
    return f"a kit must hold startup/ with one of {', '.join(_STARTS.values())}, and {str(path)!r} does not"
