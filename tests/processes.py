"""Commands as processes of their own, and the workers that they start."""

import subprocess
import sys
from pathlib import Path


def command(*words: object) -> list[str]:
    return [sys.executable, "-m", "fedcm", *map(str, words)]


def run_with_workers(experiment: Path, folder: Path, workers: int) -> None:
    words = command("run", experiment, "--runs-dir", folder.parent, "--name", folder.name, "--workers", workers)
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


def worker_processes(folder: Path) -> list[int]:
    """Processes whose command line says `follow` and this folder."""
    found = []
    for proc in Path("/proc").iterdir():
        if proc.name.isdecimal():
            try:
                words = (proc / "cmdline").read_bytes().decode().split("\0")
            except OSError:
                continue
            if "follow" in words and str(folder) in words:
                found.append(int(proc.name))
    return found
