"""Install a kit for its party: the files of the engine's tool, the policy, settings to fill in, and a README."""

import json
import shutil
from datetime import datetime
from pathlib import Path

from fedcm.federation.certificate import read_certificate
from fedcm.federation.kit import START_FILES, Kit, read_kit
from fedcm.federation.plan import Party
from fedcm.federation.provision import policy
from fedcm.federation.provision.invitation import INVITATION_FILE, Invitation
from fedcm.federation.provision.readme import make_readme, make_settings_files
from fedcm.system.files import write_text

OLD = "old"  # folder of a kit with its previous certificates
_STARTUP_FILES = (  # the tool also makes scripts, which our commands do not use
    *START_FILES.values(),
    *("server.crt", "server.key", "client.crt", "client.key", "rootCA.pem"),
)


def install_kit(made: Path, kit: Path, party: Party, invitation: Invitation) -> Kit:
    """Make a new kit, or renew one: `startup/`, `local/` and the README are written, everything else stays.

    Args:
        made: the folder that the engine's tool made for the party.
        kit: the kit's folder.
        party: the kit's owner.
        invitation: with the plan from which the policy is made.
    """
    startup, local = kit / ".startup.new", kit / ".local.new"
    for folder in (startup, local):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(mode=0o700)
    for name in _STARTUP_FILES:
        if (made / "startup" / name).is_file():
            shutil.copyfile(made / "startup" / name, startup / name)
            (startup / name).chmod(0o600)
    for name, table in policy.make_local_files(party, invitation.plan).items():
        _write_private(local / name, json.dumps(table, indent=2) + "\n")
    _keep_old_certificate(kit)
    _replace_folder(startup, kit / "startup")
    _replace_folder(local, kit / "local")
    if party.kind == "server":
        (kit / "transfer").mkdir(mode=0o700, exist_ok=True)
    for name, table in policy.TOP_FILES.items():
        _write_private(kit / name, json.dumps(table) + "\n")
    _write_private(kit / INVITATION_FILE, invitation.to_toml())
    for name, text in make_settings_files(party).items():
        if not (kit / name).exists():
            _write_private(kit / name, text)
    installed = read_kit(kit)
    expiry = _format_day(read_certificate(installed.certificate).ends)
    _write_private(kit / "README.md", make_readme(party, invitation, expiry))
    return installed


def _write_private(path: Path, text: str) -> None:
    write_text(path, text)
    path.chmod(0o600)


def _replace_folder(new: Path, place: Path) -> None:
    before = place.with_name(f".{place.name}.before")
    shutil.rmtree(before, ignore_errors=True)
    if place.exists():
        place.rename(before)
    new.rename(place)
    shutil.rmtree(before, ignore_errors=True)


def _keep_old_certificate(kit: Path) -> None:
    """Copy the present certificate and key to `old/`, in case the new ones do not work."""
    for file in (kit / "startup" / "server.crt", kit / "startup" / "client.crt"):
        if file.is_file():
            old = read_certificate(file)
            folder = kit / OLD / f"until-{_format_day(old.ends)}-{old.serial[:8]}"
            for made in (kit / OLD, folder):
                made.mkdir(mode=0o700, exist_ok=True)
            for source in (file, file.with_suffix(".key")):
                shutil.copy2(source, folder / source.name)


def _format_day(moment: datetime) -> str:
    return moment.date().isoformat()
