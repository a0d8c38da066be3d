"""A run that the server has, brought home as a run's folder like any other."""

import shutil
from pathlib import Path

from fedcm.federation.admin import Admin, downloaded
from fedcm.federation.outcome import RESULT
from fedcm.refusal import Refused


def fetched(admin: Admin, job: str, run: str, runs_dir: Path, *, fresh: bool) -> Path:
    place = runs_dir / run
    with downloaded(admin, job) as folder:
        found = [file.parent for file in folder.rglob(f"{RESULT}/experiment.toml")]
        if not found:
            raise Refused(f"the run {run!r} has no result yet; `fedcm federation status {run}` tells how it stands")
        if place.exists() and not fresh:
            raise Refused(f"{str(place)!r} is there already; give another --runs-dir, or --fresh to replace it")
        runs_dir.mkdir(parents=True, exist_ok=True)
        making, old = runs_dir / f".{run}.fetched", runs_dir / f".{run}.before"
        for leftover in (making, old):
            shutil.rmtree(leftover, ignore_errors=True)
        shutil.copytree(found[0], making)
        if place.exists():
            place.rename(old)
        making.rename(place)
        shutil.rmtree(old, ignore_errors=True)
    return place


def refuse_other_run(place: Path) -> None:
    """What was fetched before is fetched again; a run of one's own is not to be replaced by it."""
    if place.exists() and not (place / "federation.log").is_file():
        raise Refused(
            f"{str(place)!r} is a run of its own, which the fetched one would replace; give another --name or "
            "--runs-dir"
        )
