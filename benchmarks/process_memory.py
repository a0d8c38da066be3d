"""How much memory a process and those that it started take, as the system counts it."""

from pathlib import Path


def tree(process: int) -> list[int]:
    """The process and all that it started, directly or not."""
    parents = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:  # it has just ended
                continue
    found = [process]
    for one in found:
        found += [child for child, parent in parents.items() if parent == one]
    return found


def own(process: int) -> int:
    """Bytes in memory that are no file's, what n processes share counted as a nth; 0 for a process that has ended."""
    rollup = Path(f"/proc/{process}/smaps_rollup")
    return _kibibytes(rollup, "Pss_Anon:") + _kibibytes(rollup, "Pss_Shmem:")


def shares(process: int) -> int:
    """All bytes in memory, what n processes share counted as a nth (PSS): less where others use the same libraries."""
    return _kibibytes(Path(f"/proc/{process}/smaps_rollup"), "Pss:")


def cached() -> int:
    """Bytes of the whole system's file cache."""
    return _kibibytes(Path("/proc/meminfo"), "Cached:")


def _kibibytes(path: Path, name: str) -> int:
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return 0
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith(name)), 0)
