"""The progress of a sweep: a bar over all rounds with the remaining time, and a line per run in progress."""

import sys
import time
from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn
from rich.table import Column

from fedcm.api.progress import say
from fedcm.sweeps.tasks import SweepTask
from fedcm.system.formatting import format_estimate

_PLAIN_EVERY = 30.0  # seconds between plain lines at most


def show_sweep_progress(
    ended: Iterator[SweepTask | None], tasks: Sequence[SweepTask], jobs: int
) -> Iterator[SweepTask]:
    """Yield the tasks that have ended, and show the progress of all on stderr."""
    pace = _Pace(tasks, jobs)
    console = Console(stderr=True)
    display = _show_live if console.is_terminal else _show_plain
    for task in display(ended, tasks, pace, console):
        done = sum(task.has_ended for task in tasks)
        reason = f": {task.reason}" if task.reason else ""
        say(f"{done}/{len(tasks)} {task.run.name} {task.outcome}{reason}")
        yield task


def _show_live(
    ended: Iterator[SweepTask | None], tasks: Sequence[SweepTask], pace: "_Pace", console: Console
) -> Iterator[SweepTask]:
    # long names wrap, so that they do not push the other columns out of sight
    named = Column(overflow="fold", max_width=max(console.width // 2, 10))
    columns = (
        TextColumn("{task.description}", table_column=named),
        BarColumn(bar_width=None),
        MofNCompleteColumn(table_column=Column(no_wrap=True)),
        TextColumn("{task.fields[left]}", table_column=Column(no_wrap=True)),
    )
    total = sum(task.rounds for task in tasks)
    with Progress(*columns, console=console, refresh_per_second=4) as bar:
        whole = bar.add_task("[bold]all rounds", total=total, left="")
        lines: dict[str, TaskID] = {}
        for one in ended:
            bar.update(
                whole,
                completed=sum(task.rounds_done for task in tasks),
                left=f"{format_estimate(pace.estimate())} left",
            )
            for task in tasks:
                name = task.run.name
                if task.outcome == "running" and name not in lines:
                    lines[name] = bar.add_task(name, total=task.rounds, left="")
                elif task.has_ended and name in lines:
                    bar.remove_task(lines.pop(name))
                if name in lines:
                    bar.update(lines[name], completed=task.rounds_done)
            if one is not None:
                yield one


def _show_plain(
    ended: Iterator[SweepTask | None], tasks: Sequence[SweepTask], pace: "_Pace", console: Console
) -> Iterator[SweepTask]:
    last = time.monotonic()
    for one in ended:
        left = pace.estimate()  # at every poll, because polls measure the pace
        if time.monotonic() - last >= _PLAIN_EVERY:
            last = time.monotonic()
            active = ", ".join(
                f"{task.run.name} {task.rounds_done}/{task.rounds}" for task in tasks if task.outcome == "running"
            )
            print(f"{active}; {format_estimate(left)} left for all runs", file=sys.stderr, flush=True)
        if one is not None:
            yield one


class _Pace:
    """Estimates the remaining time from the rounds of runs with the same labels."""

    def __init__(self, tasks: Sequence[SweepTask], jobs: int) -> None:
        self.tasks, self.jobs = tasks, jobs
        self._first_seen: dict[str, tuple[float, int]] = {}  # by run: when it was first in progress, its rounds then
        self._paces: dict[str, float] = {}  # seconds per round

    def estimate(self) -> float | None:
        """Return the remaining seconds; None if no pace is known yet."""
        now = time.monotonic()
        for task in self.tasks:
            if task.outcome == "running":
                since, first = self._first_seen.setdefault(task.run.name, (now, task.rounds_done))
                if task.rounds_done > first:
                    self._paces[_get_kind(task)] = (now - since) / (task.rounds_done - first)
        if not self._paces:
            return None
        usual, left = sum(self._paces.values()) / len(self._paces), [task for task in self.tasks if not task.has_ended]
        seconds = sum((task.rounds - task.rounds_done) * self._paces.get(_get_kind(task), usual) for task in left)
        return seconds / max(min(self.jobs, len(left)), 1)


def _get_kind(task: SweepTask) -> str:
    return str(task.run.experiment.cell.labels)
