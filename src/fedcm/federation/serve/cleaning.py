"""Remove from a kit what ended jobs and finished runs leave behind.

the folder of an ended job in the kit          if there are 5 newer ones
an ended job in the server's store, `jobs/`    when the server starts, if its run has a newer job, which a resume uses
client states of a finished run at a site      `storage.days` after the run finished

Nothing else of a run that can be resumed is removed.
"""

import json
import re
import shutil
import tomllib
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from fedcm.federation.kit import SITE_FILE, STATES, Kit
from fedcm.federation.site.finished_runs import KEPT_DAYS, remove_finished_states, remove_unfinished_files
from fedcm.system.formatting import format_count

KEPT_JOBS = 5  # newest folders of jobs that stay in a kit
_JOB_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_STORE = Path("jobs", "all")  # the engine's store of jobs in the server's kit
_ENDED = "FINISHED"  # the engine's states of ended jobs begin with this


def clean_kit(kit: Kit, running: Collection[str] = (), *, idle: bool) -> Iterator[str]:
    """Remove what is not needed any more, and yield a sentence about each kind of thing that was removed.

    Args:
        kit: The kit of a server or site.
        running: Text in which the ids of running jobs occur, such as the command lines of their processes.
        idle: Whether the engine is not running.
    """
    with suppress(OSError):
        if removed := remove_old_jobs(kit.path, running):
            yield f"removed {format_count(len(removed), 'folder')} of ended jobs from the kit: {', '.join(removed)}"
        if kit.kind == "server" and idle and (removed := remove_superseded_jobs(kit.path / _STORE)):
            yield f"removed {format_count(len(removed), 'ended job')} of runs with a newer job: {', '.join(removed)}"
        if kit.kind == "site":
            if idle:
                remove_unfinished_files(kit.path / STATES)
            if removed := remove_finished_states(kit.path / STATES, _read_days(kit.path)):
                yield f"removed the client states of {format_count(len(removed), 'finished run')}: {', '.join(removed)}"


def remove_old_jobs(kit: Path, running: Collection[str] = ()) -> list[str]:
    """Remove the folders of ended jobs from a kit, except for the newest, and return the jobs' ids."""
    folders = [path for path in kit.iterdir() if _JOB_ID.fullmatch(path.name) and _is_folder(path)]
    folders.sort(key=lambda folder: folder.stat().st_mtime, reverse=True)
    old = [folder for folder in folders[KEPT_JOBS:] if not any(folder.name in text for text in running)]
    return _remove(old)


def remove_superseded_jobs(store: Path) -> list[str]:
    """Remove ended jobs from the engine's store if the same admin has a newer job of the same run; return their ids."""
    jobs: dict[tuple[str, str], list[tuple[float, str, Path]]] = {}
    for folder in store.iterdir() if store.is_dir() else ():
        meta = _read_meta(folder / "meta")
        if meta is not None and _JOB_ID.fullmatch(folder.name) and _is_folder(folder):
            key = str(meta.get("name")), str(meta.get("submitter_name"))
            jobs.setdefault(key, []).append((float(meta["submit_time"]), str(meta.get("status")), folder))
    old = [
        folder
        for of_run in jobs.values()
        for submitted, status, folder in of_run
        if submitted < max(of_run)[0] and status.startswith(_ENDED)
    ]
    return _remove(old)


def _remove(folders: list[Path]) -> list[str]:
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
    return sorted(folder.name for folder in folders if not folder.exists())


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _read_meta(file: Path) -> dict[str, Any] | None:
    try:
        meta = json.loads(file.read_text(encoding="utf-8"))
        return meta if isinstance(meta, dict) and isinstance(meta.get("submit_time"), int | float) else None
    except (OSError, ValueError):
        return None


def _read_days(kit: Path) -> float:
    """Return `storage.days` of `site.toml`; states stay if it cannot be read."""
    try:
        storage = tomllib.loads((kit / SITE_FILE).read_text(encoding="utf-8")).get("storage", {})
        return float(storage.get("days", KEPT_DAYS))
    except (OSError, ValueError, TypeError, AttributeError):
        return float("inf")
