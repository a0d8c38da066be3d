"""`fedcm verify`: compare finished runs with their manifests."""

import json
from pathlib import Path
from typing import Annotated

import typer

from fedcm.cli.options import AsJson, RunsDir


def verify(
    runs: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="RUNS...",
            help="Runs, names of runs, or folders of runs; by default the folder that --runs-dir names.",
        ),
    ] = None,
    runs_dir: RunsDir = Path("runs"),
    as_json: AsJson = False,
) -> None:
    """Verify that the files of finished runs are what the runs wrote, by the checksums in their manifests.

    Prints one line per run. Exits with code 0 if no run is damaged, 1 if one is. A run that is not finished, or that an
    older version wrote, has no manifest; its line says so.

    Examples: `fedcm verify runs/demo-fedcm-seed1`, `fedcm verify runs --json`
    """
    from fedcm.runs.evidence.verification import find_runs, verify_run

    found = []
    for folder in find_runs(runs or [runs_dir], runs_dir):
        found.append(verify_run(folder))
        if not as_json:
            print(found[-1].line, flush=True)
    intact = all(one.state != "damaged" for one in found)
    if as_json:
        print(json.dumps({"good": intact, "runs": [one.table for one in found]}, indent=2))
    raise typer.Exit(0 if intact else 1)
