"""A kit made ready for its party: what the engine's tool made, hardened, with settings to fill in and a README."""

import json
import shutil
from datetime import datetime
from pathlib import Path

from fedcm.federation.certificate import read_certificate
from fedcm.federation.kit import Kit, read_kit
from fedcm.federation.plan import Party
from fedcm.federation.provision import policy
from fedcm.federation.provision.invitation import FILE as INVITATION
from fedcm.federation.provision.invitation import Invitation
from fedcm.federation.provision.readme import readme, settings
from fedcm.system.files import write_text

OLD = "old"  # the folder in a kit with the certificates that were renewed
_STARTUP = (  # of what the tool makes; its scripts are not for our commands
    *("fed_server.json", "fed_client.json", "fed_admin.json"),
    *("server.crt", "server.key", "client.crt", "client.key", "rootCA.pem"),
)


def install(made: Path, kit: Path, party: Party, invitation: Invitation) -> Kit:
    """Put what the engine's tool made into a kit, new or renewed; what the party keeps there stays."""
    startup, local = kit / ".startup.new", kit / ".local.new"
    for folder in (startup, local):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(mode=0o700)
    for name in _STARTUP:
        if (made / "startup" / name).is_file():
            shutil.copyfile(made / "startup" / name, startup / name)
            (startup / name).chmod(0o600)
    for name, table in policy.files(party, invitation.plan).items():
        _write(local / name, json.dumps(table, indent=2) + "\n")
    _keep_aside(kit)
    _put(startup, kit / "startup")
    _put(local, kit / "local")
    if party.kind == "server":
        (kit / "transfer").mkdir(mode=0o700, exist_ok=True)
    for name, table in policy.AT_THE_TOP.items():
        _write(kit / name, json.dumps(table) + "\n")
    _write(kit / INVITATION, invitation.text())
    for name, text in settings(party).items():
        if not (kit / name).exists():
            _write(kit / name, text)
    whole = read_kit(kit)
    _write(kit / "README.md", readme(party, invitation, _day(read_certificate(whole.certificate).ends)))
    return whole


def _write(path: Path, text: str) -> None:
    write_text(path, text)
    path.chmod(0o600)


def _put(new: Path, place: Path) -> None:
    before = place.with_name(f".{place.name}.before")
    shutil.rmtree(before, ignore_errors=True)
    if place.exists():
        place.rename(before)
    new.rename(place)
    shutil.rmtree(before, ignore_errors=True)


def _keep_aside(kit: Path) -> None:
    """The certificate before, with its key, until the new one has proved itself."""
    for file in (kit / "startup" / "server.crt", kit / "startup" / "client.crt"):
        if file.is_file():
            old = read_certificate(file)
            aside = kit / OLD / f"until-{_day(old.ends)}-{old.serial[:8]}"
            for folder in (kit / OLD, aside):
                folder.mkdir(mode=0o700, exist_ok=True)
            for one in (file, file.with_suffix(".key")):
                shutil.copy2(one, aside / one.name)


def _day(moment: datetime) -> str:
    return moment.date().isoformat()
