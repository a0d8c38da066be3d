"""Fetch a run from the server into a run's folder like any other."""

import shutil
from pathlib import Path

from fedcm.errors import UserError
from fedcm.federation.admin.session import AdminSession
from fedcm.federation.outcome import LOG, RESULT
from fedcm.runs.archive import make_archive_path, move_to_archive
from fedcm.runs.progress import say


def fetch_run(session: AdminSession, run: str, runs_dir: Path, *, replace: bool) -> Path:
    """Download the newest results of a run and return its folder.

    Args:
        session: of the admin who owns the run.
        run: the run's name.
        runs_dir: where the folder is made.
        replace: move a folder of the same name to the archive instead of rejecting it.
    """
    place = runs_dir / run
    with session.download(session.find_newest_job(run).id) as folder:
        found = [file.parent for file in folder.rglob(f"{RESULT}/experiment.toml")]
        if not found:
            raise UserError(f"the run {run!r} has no result yet; `fedcm federation status {run}` shows its state")
        if place.exists() and not replace:
            raise UserError(
                f"{str(place)!r} exists already; give another --runs-dir, or --fresh to move it to the archive there"
            )
        install_run(found[0], place)
    return place


def install_run(downloaded: Path, place: Path) -> None:
    """Copy a downloaded run to its place, and move a run that is there to the archive."""
    place.parent.mkdir(parents=True, exist_ok=True)
    unfinished = place.with_name(f".{place.name}.fetched")
    shutil.rmtree(unfinished, ignore_errors=True)
    shutil.copytree(downloaded, unfinished)
    if place.exists():
        archived = move_to_archive(place, make_archive_path(place.parent))
        say(f"moved the previous run {place} to {archived}")
    unfinished.rename(place)


def reject_local_run(place: Path) -> None:
    """Raise UserError if the folder is a run that was not fetched, because fetching would replace it."""
    if place.exists() and not (place / LOG).is_file():
        raise UserError(
            f"{str(place)!r} is a run of this machine, which the fetched run would replace; give another --name or "
            "--runs-dir"
        )
