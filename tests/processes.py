"""Run commands in separate processes, and find the workers that they start."""

import subprocess
import sys
from pathlib import Path


def make_command(*words: object) -> list[str]:
    """Return the command line of `fedcm` with these arguments."""
    return [sys.executable, "-m", "fedcm", *map(str, words)]


def run_with_workers(experiment: Path, folder: Path, workers: int) -> None:
    """Run an experiment into `folder` with that number of workers."""
    words = make_command("run", experiment, "--runs-dir", folder.parent, "--name", folder.name, "--workers", workers)
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


def find_worker_processes(folder: Path, rank_0: int) -> list[int]:
    """Return the ids of a run's workers, also after rank 0 has died: new processes, and forks of rank 0."""
    spawned, forked = {"worker", str(folder)}, {"--runs-dir", str(folder.parent), folder.name}
    ids = []
    for proc in Path("/proc").iterdir():
        if proc.name.isdecimal() and int(proc.name) != rank_0:
            try:
                words = set((proc / "cmdline").read_bytes().decode().split("\0"))
            except OSError:
                continue
            if words >= spawned or words >= forked:
                ids.append(int(proc.name))
    return ids
