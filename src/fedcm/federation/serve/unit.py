"""Make a systemd unit that starts a kit with the machine, keeps it running, and confines it to the kit's folder."""

import pwd
import sys
from pathlib import Path

from fedcm.errors import UserError
from fedcm.federation.kit import Kit, read_kit
from fedcm.federation.readiness import read_servable_kit
from fedcm.federation.serve.supervisor import DEFAULT_TIMES

_UNIT = """\
# {file}; after `systemctl daemon-reload`, start it with `systemctl enable --now {name}`
[Unit]
Description=fedcm federation {federation}: {kind} {party}
Wants=network-online.target
After=network-online.target

[Service]
Type=exec
User={user}
WorkingDirectory={folder}
ExecStart={python} -m fedcm federation {kind} {kit}
Restart=on-failure
RestartSec=5
# code 2: the kit must be repaired first
RestartPreventExitStatus=2
# the command ends its other processes itself
KillMode=mixed
TimeoutStopSec={stop}
# the site restarts training that ran out of memory
OOMPolicy=continue

UMask=0077
NoNewPrivileges=yes
CapabilityBoundingSet=
ProtectSystem=strict
ProtectHome=read-only
ReadWritePaths={writable}
PrivateTmp={own_tmp}
ProtectKernelTunables=yes
ProtectKernelModules=yes
ProtectKernelLogs=yes
ProtectControlGroups=yes
ProtectHostname=yes
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX AF_NETLINK
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
SystemCallArchitectures=native
{devices}
[Install]
WantedBy=multi-user.target
"""
# not for a site, which may train on a GPU
_NO_DEVICES = "PrivateDevices=yes\nProtectClock=yes\n"


def make_unit(path: Path, user: str | None = None) -> str:
    """Return the unit for the kit of a server or site; by default it runs as the owner of the kit's folder."""
    kit = _read_kit_of_service(path)
    name = f"fedcm-{kit.federation}-{kit.kind}" + (f"-{kit.name}" if kit.kind == "site" else "")
    return _UNIT.format(
        file=f"/etc/systemd/system/{name}.service",
        name=name,
        federation=kit.federation,
        kind=kit.kind,
        party=kit.name,
        user=_check_user(user or _find_owner(kit.path)),
        folder=_escape(kit.path),
        python=_quote(sys.executable),
        kit=_quote(kit.path).replace("$", "$$"),
        writable=_quote(kit.path),
        # a private /tmp would hide a kit that is stored there
        own_tmp="no" if {Path("/tmp"), Path("/var/tmp")} & set(kit.path.parents) else "yes",
        stop=DEFAULT_TIMES.grace + 15,
        devices=_NO_DEVICES if kit.kind == "server" else "",
    )


def _read_kit_of_service(path: Path) -> Kit:
    kit = read_kit(path.absolute())
    if kit.kind == "admin":
        raise UserError(
            f"a unit needs the kit of a server or site, but {str(path)!r} is an admin's: admins need no service"
        )
    return read_servable_kit(path, kit.kind)


def _find_owner(folder: Path) -> str:
    number = folder.stat().st_uid
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


def _check_user(user: str) -> str:
    """Raise UserError for an unknown user, which systemd would report only when the unit starts."""
    try:
        if not user.isdigit():
            pwd.getpwnam(user)
    except KeyError:
        advice = f"make it with `useradd --system {user}`"
        raise UserError(f"--user must be a user of this machine, got {user!r}; {advice}") from None
    return user


def _escape(path: Path | str) -> str:
    if any(ord(letter) < 32 for letter in str(path)):
        raise UserError(
            f"the path of a kit with a unit must have no control characters, got {str(path)!r}; move the kit"
        )
    return str(path).replace("%", "%%")


def _quote(path: Path | str) -> str:
    """Return a path as one word of a unit file, quoted if it needs to be.

    >>> _quote("/srv/my kit")
    '"/srv/my kit"'
    """
    text = _escape(path).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"' if any(letter in text for letter in " '\"\\;") else text
