"""Fetch a run from the server into a run's folder like any other."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedcm.errors import UserError
from fedcm.federation.admin.session import AdminSession
from fedcm.federation.outcome import LOG, RESULT
from fedcm.federation.trust.manifest import verify_manifest
from fedcm.runs.archive import make_archive_path, move_to_archive
from fedcm.runs.evidence.verification import reject_damage
from fedcm.runs.folder import RunFolder


def fetch_run(session: AdminSession, run: str, runs_dir: Path, notify: Callable[[str], None], *, replace: bool) -> Path:
    """Download the newest results of a run and return its folder.

    Args:
        session: The session of the admin who owns the run.
        run: The run's name.
        runs_dir: Where the folder is made.
        notify: Called with one sentence if a folder is moved to the archive.
        replace: Whether to move a folder of the same name to the archive instead of rejecting it.
    """
    run_folder = runs_dir / run
    with session.download(session.find_newest_job(run).id) as folder:
        results = [file.parent for file in folder.rglob(f"{RESULT}/experiment.toml")]
        if not results:
            raise UserError(f"the run {run!r} has no result yet; `fedcm federation status {run}` shows its state")
        if run_folder.exists() and not replace:
            raise UserError(
                f"{str(run_folder)!r} exists already; give another --runs-dir, or --fresh to move it to the "
                "archive there"
            )
        _reject_other_run(verify_manifest(results[0], session.kit.root.read_bytes()), run)
        install_run(results[0], run_folder, notify)
    return run_folder


def _reject_other_run(signed: dict[str, Any], run: str) -> None:
    if signed.get("run") != run:
        raise UserError(f"the server must send the run {run!r}, but signed these files as {signed.get('run')!r}")


def install_run(downloaded: Path, run_folder: Path, notify: Callable[[str], None]) -> None:
    """Copy a downloaded run to its folder, and move a run that is there to the archive.

    Raises:
        UserError: If a downloaded file is not what the server wrote.
    """
    reject_damage(RunFolder(downloaded))
    run_folder.parent.mkdir(parents=True, exist_ok=True)
    unfinished = run_folder.with_name(f".{run_folder.name}.fetched")
    shutil.rmtree(unfinished, ignore_errors=True)
    shutil.copytree(downloaded, unfinished)
    if run_folder.exists():
        archived = move_to_archive(run_folder, make_archive_path(run_folder.parent))
        notify(f"moved the previous run {run_folder} to {archived}")
    unfinished.rename(run_folder)


def reject_local_run(run_folder: Path) -> None:
    """Raise UserError if the folder is a run that was not fetched, because fetching would replace it."""
    if run_folder.exists() and not (run_folder / LOG).is_file():
        raise UserError(
            f"{str(run_folder)!r} is a run of this machine, which the fetched run would replace; give another --name "
            "or --runs-dir"
        )
