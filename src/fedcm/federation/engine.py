"""What several roles must know about the engine, NVIDIA FLARE: that it is installed, and which of our classes it loads.

The engine loads these classes by dotted path. A kit's `local/resources.json` and every job name them, so a kit made by
another version of fedcm may name classes that do not exist any more.
"""

import json
import shlex
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fedcm.errors import UserError
from fedcm.federation.kit import Kit

CONTROLLER = "fedcm.federation.server.controller.FederatedTraining"
EXECUTOR = "fedcm.federation.site.executor.SiteExecutor"
JOB_VALIDATOR = "fedcm.federation.plugins.ConfigurationOnly"
STORAGE = "fedcm.federation.plugins.KitStorage"
CLASSES = frozenset({CONTROLLER, EXECUTOR, JOB_VALIDATOR, STORAGE})

RUN_TOPIC = "fedcm"  # topic of the engine's app commands by which an admin queries a run


def require_engine() -> None:
    """Raise UserError if NVIDIA FLARE is not installed."""
    if find_spec("nvflare") is None:
        raise UserError("a federation needs NVIDIA FLARE: install it with `pip install 'fedcm[federation]'`")


def reject_outdated_kit(kit: Kit) -> None:
    """Raise UserError if the kit names classes that this version of fedcm does not have."""
    try:
        resources = json.loads((kit.path / "local" / "resources.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return  # the engine explains a missing or damaged file itself
    if names_unknown_classes(resources):
        raise UserError(f"the kit {str(kit.path)!r} was made by another version of fedcm; {_explain_renewal(kit)}")


def names_unknown_classes(resources: Any) -> bool:
    """Return whether a table of the engine's settings names classes that this version of fedcm does not have."""
    return any(text.startswith("fedcm.") and text not in CLASSES for text in _find_strings(resources))


def _explain_renewal(kit: Kit) -> str:
    """Name the command that writes the kit's `local/` again."""
    for folder in kit.path.parents[:2]:
        if (folder / "authority" / "plan.toml").is_file():
            return f"renew it with `fedcm federation renew {_quote(folder)} --only {kit.name}`"
    return (
        f"renew it with `fedcm federation renew {_quote(kit.path)}`, and join the organiser's answer with "
        f"`fedcm federation join {kit.name}.signed.zip {_quote(kit.path)}`"
    )


def _quote(path: Path) -> str:
    return shlex.quote(str(path))


def _find_strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _find_strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from _find_strings(item)
