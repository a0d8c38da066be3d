"""Client states of finished runs on a site's disk: when they are removed.

When a run has finished, the server says so, and the site marks it. States of a marked run are removed after
`storage.days` of `site.toml`: until then, a server that is restored from a backup can still resume the run, which
removes the mark. States of runs that are not marked are never removed, because such a run can be resumed. The sums that
the site has helped to reveal stay in any case, those of the run and those of all runs (`state/sums.json` and
`state/masked.json`): no server may get another sum of the same round.
"""

import re
import time
from collections.abc import Iterable
from pathlib import Path

KEPT_DAYS = 7.0  # default of storage.days
_MARK = "finished"
_DAY = 24 * 3600.0


def mark_finished(states: Path, runs: Iterable[str]) -> None:
    """Note that these runs have finished; runs of which this site has no states are ignored.

    Args:
        states: The folder of all client states of the site.
        runs: Ids of runs.
    """
    for run in runs:
        folder = states / run
        if re.fullmatch(r"[0-9a-f]{8,64}", run) and folder.is_dir() and not (folder / _MARK).exists():
            (folder / _MARK).touch(mode=0o600)


def unmark(folder: Path) -> None:
    """Note that a run continues; `folder` has its states."""
    (folder / _MARK).unlink(missing_ok=True)


def remove_finished_states(states: Path, days: float) -> list[str]:
    """Remove the states of runs that finished more than `days` days ago, and return the ids of these runs."""
    removed = []
    for mark in sorted(states.glob(f"*/{_MARK}")):
        files = list(mark.parent.glob("round-*"))
        if files and time.time() - mark.stat().st_mtime >= days * _DAY:
            for file in files:
                file.unlink(missing_ok=True)
            removed.append(mark.parent.name)
    return removed


def remove_unfinished_files(states: Path) -> None:
    """Remove parts of states that a killed process was writing; call this while the site does not train."""
    for file in states.glob("*/.round-*"):
        file.unlink(missing_ok=True)
