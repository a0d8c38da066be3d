"""A systemd unit for a kit: started with the machine, kept running, and shut into its own folder."""

import pwd
import sys
from pathlib import Path

from fedcm.errors import UserError
from fedcm.federation.kit import Kit, read_kit
from fedcm.federation.readiness import ready_kit
from fedcm.federation.serve.serving import UNHURRIED

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
# code 2: the kit must be mended first
RestartPreventExitStatus=2
# the command is asked to end, and ends all others itself
KillMode=mixed
TimeoutStopSec={stop}
# training that took too much memory is started again by itself
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
# a site may train on a GPU, which these would hide
_NO_DEVICES = "PrivateDevices=yes\nProtectClock=yes\n"


def unit_text(path: Path, user: str | None = None) -> str:
    """The unit for the kit of a server or a site; it runs as the kit's owner unless a user is given."""
    kit = _served(path)
    name = f"fedcm-{kit.federation}-{kit.kind}" + (f"-{kit.name}" if kit.kind == "site" else "")
    return _UNIT.format(
        file=f"/etc/systemd/system/{name}.service",
        name=name,
        federation=kit.federation,
        kind=kit.kind,
        party=kit.name,
        user=_known(user or _owner(kit.path)),
        folder=_literal(kit.path),
        python=_quoted(sys.executable),
        kit=_quoted(kit.path).replace("$", "$$"),
        writable=_quoted(kit.path),
        # where the kit lies there it would be hidden
        own_tmp="no" if {Path("/tmp"), Path("/var/tmp")} & set(kit.path.parents) else "yes",
        stop=UNHURRIED.grace + 15,
        devices=_NO_DEVICES if kit.kind == "server" else "",
    )


def _served(path: Path) -> Kit:
    kit = read_kit(path.absolute())
    if kit.kind == "admin":
        raise UserError(f"a unit runs a server or a site, and {str(path)!r} is an admin's kit: admins need no service")
    return ready_kit(path, kit.kind)


def _owner(folder: Path) -> str:
    number = folder.stat().st_uid
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


def _known(user: str) -> str:
    """systemd would find out only at the start."""
    try:
        if not user.isdigit():
            pwd.getpwnam(user)
    except KeyError:
        how = f"make it with `useradd --system {user}`"
        raise UserError(f"--user must be a user of this machine, got {user!r}; {how}") from None
    return user


def _literal(path: Path | str) -> str:
    if any(ord(letter) < 32 for letter in str(path)):
        raise UserError(f"a unit can name only paths without control characters, got {str(path)!r}; move the kit")
    return str(path).replace("%", "%%")


def _quoted(path: Path | str) -> str:
    """A path as one word; one that has nothing to quote stays as it is.

    >>> _quoted("/srv/my kit")
    '"/srv/my kit"'
    """
    text = _literal(path).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"' if any(letter in text for letter in " '\"\\;") else text
