"""Classes that the engine loads because a kit's `local/resources.json` names them. Only the engine imports them."""

from pathlib import Path
from typing import final

from nvflare.apis.app_validation import AppValidator
from nvflare.app_common.storages.filesystem_storage import FilesystemStorage

ALLOWED_FILES = frozenset({"config/config_fed_server.json", "config/config_fed_client.json"})
_SIGNATURES = frozenset({".__nvfl_sig.json", ".__nvfl_submitter.crt"})  # the submitter's, in every folder of a job


@final
class ConfigurationOnly(AppValidator):
    """Rejects jobs that contain anything but their two configuration files.

    The policy already rejects code in a job's folder for code. But the engine searches every folder of a kit for its
    settings, including those of jobs, and such settings can run any file of a job. So every file must be known.
    """

    def validate(self, app_folder: str) -> tuple[str, dict]:
        """Return the reason to reject a job, empty if there is none, and an empty table of job properties."""
        for path in sorted(Path(app_folder).rglob("*")):
            name = path.relative_to(app_folder).as_posix()
            known = name == "config" if path.is_dir() else name in ALLOWED_FILES or path.name in _SIGNATURES
            if path.is_symlink() or not known:
                return f"a job may contain only {', '.join(sorted(ALLOWED_FILES))}, got {name!r}", {}
        return "", {}


@final
class KitStorage(FilesystemStorage):
    """The engine's file storage in a folder of the kit, so that a kit can be moved."""

    def __init__(self, folder: str) -> None:
        """Use `folder` relative to the kit, which is the engine's working directory when it loads this class."""
        super().__init__(root_dir=str(Path(folder).resolve()), uri_root="/")
