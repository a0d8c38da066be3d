"""`fedcm runs`: list the runs."""

import json
from pathlib import Path

from fedcm.cli.options import AsJson, RunsDir


def runs(runs_dir: RunsDir = Path("runs"), as_json: AsJson = False) -> None:
    """List the runs in a folder and its subfolders: date, data, seed, settings that differ, progress and scores.

    Example: `fedcm runs --runs-dir runs/demo`
    """
    from fedcm.cli.terminal.run_table import print_runs
    from fedcm.runs.folder import list_runs
    from fedcm.runs.overview import make_overview

    described = make_overview(list_runs(runs_dir, nested=True), runs_dir)
    if as_json:
        print(json.dumps(described, indent=2, default=str))
    elif described:
        print_runs(described)
    else:
        print(f"no runs in {runs_dir}; `fedcm run EXPERIMENT` makes one")
