"""Install a kit for its party: the files of the engine's tool, the policy, settings to fill in, and a README."""

import json
import shutil
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from fedcm.federation.certificate import read_certificate
from fedcm.federation.file_modes import make_private
from fedcm.federation.kit import START_FILES, Kit, read_kit
from fedcm.federation.plan import Party
from fedcm.federation.provision import policy
from fedcm.federation.provision.invitation import INVITATION_FILE, Invitation
from fedcm.federation.provision.local_files import (
    CHECKSUMS_FILE,
    LOCAL,
    find_operator_files,
    format_checksums,
    write_local_files,
)
from fedcm.federation.provision.readme import make_readme, make_settings_files
from fedcm.system.files import write_text

OLD = "old"  # folder of a kit with its previous certificates
_STARTUP_FILES = (  # the tool also makes scripts, which our commands do not use
    *START_FILES.values(),
    *("server.crt", "server.key", "client.crt", "client.key", "rootCA.pem"),
)


def install_kit(
    source: Path,
    kit: Path,
    party: Party,
    invitation: Invitation,
    notify: Callable[[str], None] = lambda message: None,
) -> Kit:
    """Make a new kit, or renew one: `startup/`, `local/` and the README are written, everything else stays.

    Files in `local/` that the operator has changed or added stay too; see `local_files` for the exceptions.

    Args:
        source: The folder that the engine's tool made for the party.
        kit: The kit's folder.
        party: The kit's owner.
        invitation: The invitation with the plan from which the policy is made.
        notify: Called with a message about the operator's files that were kept, and those that were replaced.
    """
    startup, local = kit / ".startup.new", kit / ".local.new"
    for folder in (startup, local):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(mode=0o700)
    for name in _STARTUP_FILES:
        if (source / "startup" / name).is_file():
            shutil.copyfile(source / "startup" / name, startup / name)
            (startup / name).chmod(0o600)
    tables = policy.make_local_files(party)
    texts = {name: json.dumps(table, indent=2) + "\n" for name, table in tables.items()}
    kept, replaced = find_operator_files(kit, texts)
    write_local_files(local, kit, texts, kept)
    old = _keep_old_certificate(kit)
    for name in replaced:
        copy = (old or kit / OLD) / LOCAL / name
        copy.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        shutil.copy2(kit / LOCAL / name, copy)
        notify(
            f"{party.name}: {LOCAL}/{name} was replaced, because it may be of another version; the old one is {copy}"
        )
    _replace_folder(startup, kit / "startup")
    _replace_folder(local, kit / LOCAL)
    _write_private(kit / CHECKSUMS_FILE, format_checksums(texts))
    if kept:
        names = ", ".join(f"{LOCAL}/{name}" for name in kept)
        notify(f"{party.name}: kept the files that were changed or added in this kit: {names}")
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
    make_private(kit)  # copies of the operator's files have their old modes
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


def _keep_old_certificate(kit: Path) -> Path | None:
    """Copy the present certificate and key to a folder in `old/`, in case the new ones do not work.

    Returns:
        The folder; None if the kit has no certificate yet.
    """
    for file in (kit / "startup" / "server.crt", kit / "startup" / "client.crt"):
        if file.is_file():
            old = read_certificate(file)
            folder = kit / OLD / f"until-{_format_day(old.ends)}-{old.serial[:8]}"
            for parent in (kit / OLD, folder):
                parent.mkdir(mode=0o700, exist_ok=True)
            for source in (file, file.with_suffix(".key")):
                shutil.copy2(source, folder / source.name)
            return folder
    return None


def _format_day(moment: datetime) -> str:
    return moment.date().isoformat()
