"""`fedcm follow`: one worker of a run. `fedcm run --workers` starts these processes."""

from pathlib import Path

from fedcm.cli.options import DataDir
from fedcm.system.signals import StopSignals


def follow(run: Path, data_dir: DataDir = None) -> None:
    """Work on a run that another process leads."""
    from fedcm.runs.worker import run_pool_worker

    with StopSignals(quiet=True) as stop_requested:
        run_pool_worker(run, data_dir, stop_requested)
