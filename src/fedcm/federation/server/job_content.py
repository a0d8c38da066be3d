"""What a job may bring to the server or a site: its configuration, and nothing else. Only the engine imports this.

Code in a job's folder for code is refused by the policy. But the engine looks for its own settings in every folder of a
kit, those of jobs too, and by such settings any file of a job can be run. So every file must be one of these.
"""

from pathlib import Path
from typing import final

from nvflare.apis.app_validation import AppValidator

ALLOWED = frozenset({"config/config_fed_server.json", "config/config_fed_client.json"})
_SIGNATURES = frozenset({".__nvfl_sig.json", ".__nvfl_submitter.crt"})  # the submitter's, in every folder


@final
class ConfigurationAlone(AppValidator):
    def validate(self, app_folder: str) -> tuple[str, dict]:
        """The reason to refuse a job, or an empty one; and what was found out about it."""
        for path in sorted(Path(app_folder).rglob("*")):
            place = path.relative_to(app_folder).as_posix()
            known = place == "config" if path.is_dir() else place in ALLOWED or path.name in _SIGNATURES
            if path.is_symlink() or not known:
                return f"a job here must bring nothing but {', '.join(sorted(ALLOWED))}, got {place!r}", {}
        return "", {}
