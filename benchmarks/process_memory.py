"""How much memory a process and those that it started take, as the system counts it."""

from pathlib import Path


def tree(process: int) -> list[int]:
    """The process and all that it started, directly or not."""
    found = [process]
    for one in found:
        try:
            for task in Path(f"/proc/{one}/task").iterdir():
                found += [int(child) for child in (task / "children").read_text().split()]
        except OSError:  # it has just ended
            continue
    return found


def proportional(process: int) -> int:
    """Bytes in memory, a page that n processes share counted as a nth (PSS); 0 for a process that has ended."""
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
