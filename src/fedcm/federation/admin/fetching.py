"""A run that the server has, brought home as a run's folder like any other."""

import shutil
from pathlib import Path

from fedcm.errors import UserError
from fedcm.federation.admin.admin import Admin, downloaded
from fedcm.federation.outcome import RESULT
from fedcm.runs.archive import move_to_archive, new_archive
from fedcm.runs.progress import say


def fetched(admin: Admin, job: str, run: str, runs_dir: Path, *, fresh: bool) -> Path:
    place = runs_dir / run
    with downloaded(admin, job) as folder:
        found = [file.parent for file in folder.rglob(f"{RESULT}/experiment.toml")]
        if not found:
            raise UserError(f"the run {run!r} has no result yet; `fedcm federation status {run}` tells how it stands")
        if place.exists() and not fresh:
            raise UserError(
                f"{str(place)!r} is there already; give another --runs-dir, or --fresh to move it to the archive there"
            )
        install_fetched(found[0], place)
    return place


def install_fetched(found: Path, place: Path) -> None:
    """What was there before, fetched when the run was not as far or by another federation, goes to the archive."""
    place.parent.mkdir(parents=True, exist_ok=True)
    making = place.with_name(f".{place.name}.fetched")
    shutil.rmtree(making, ignore_errors=True)
    shutil.copytree(found, making)
    if place.exists():
        before = move_to_archive(place, new_archive(place.parent))
        say(f"the run that was {place} is {before} now")
    making.rename(place)


def reject_other_run(place: Path) -> None:
    """What was fetched before is fetched again; a run of one's own is not to be replaced by it."""
    if place.exists() and not (place / "federation.log").is_file():
        raise UserError(
            f"{str(place)!r} is a run of its own, which the fetched one would replace; give another --name or "
            "--runs-dir"
        )
