"""Measure the memory of a process and its descendants, as the system counts it."""

from pathlib import Path


def list_descendants(process: int) -> list[int]:
    """Return the process and all its descendants."""
    parents = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:  # the process has just ended
                continue
    processes = [process]
    for each in processes:  # grows while iterating
        processes += [child for child, parent in parents.items() if parent == each]
    return processes


def measure_anonymous(process: int) -> int:
    """Return the bytes of anonymous memory; memory shared by n processes counts as 1/n. 0 if the process has ended."""
    rollup = Path(f"/proc/{process}/smaps_rollup")
    return _read_kibibytes(rollup, "Pss_Anon:") + _read_kibibytes(rollup, "Pss_Shmem:")


def measure_pss(process: int) -> int:
    """Return all bytes in memory; memory shared by n processes counts as 1/n (PSS)."""
    return _read_kibibytes(Path(f"/proc/{process}/smaps_rollup"), "Pss:")


def measure_file_cache() -> int:
    """Return the bytes of the whole system's file cache."""
    return _read_kibibytes(Path("/proc/meminfo"), "Cached:")


def _read_kibibytes(path: Path, name: str) -> int:
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return 0
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith(name)), 0)
