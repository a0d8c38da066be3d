"""`fedcm worker`: one worker of a run. `fedcm run --workers` starts these processes."""

from pathlib import Path

from fedcm.cli.options import DataDir
from fedcm.system.signals import StopSignals


def worker(run: Path, data_dir: DataDir = None) -> None:
    """Train a share of each cohort of a run whose rank 0 is another process."""
    from fedcm.runs.workers.worker import run_pool_worker

    with StopSignals(quiet=True) as stop_requested:
        run_pool_worker(run, data_dir, stop_requested)
