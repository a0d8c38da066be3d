"""What a person sees while a series of runs goes by: a bar over all rounds with the time left, a line for each run."""

import sys
import time
from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn
from rich.table import Column

from fedcm.runs.progress import say
from fedcm.sweeps.run_parallel import SweepTask

_PLAIN_EVERY = 30.0  # seconds between plain lines at most


def shown_series(passing: Iterator[SweepTask | None], tasks: Sequence[SweepTask], jobs: int) -> Iterator[SweepTask]:
    """The tasks that are over, as they come, with how far all are shown on stderr."""
    pace = _Pace(tasks, jobs)
    console = Console(stderr=True)
    display = _live if console.is_terminal else _plain
    for task in display(passing, tasks, pace, console):
        done = sum(task.over for task in tasks)
        why = f": {task.why}" if task.why else ""
        say(f"{done}/{len(tasks)} {task.run.name} {task.state}{why}")
        yield task


def _live(
    passing: Iterator[SweepTask | None], tasks: Sequence[SweepTask], pace: "_Pace", console: Console
) -> Iterator[SweepTask]:
    # names with several settings in them go on in the next line rather than push everything else out of sight
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
        for over in passing:
            bar.update(whole, completed=sum(task.done for task in tasks), left=f"{spoken(pace.left())} left")
            for task in tasks:
                name = task.run.name
                if task.state == "running" and name not in lines:
                    lines[name] = bar.add_task(name, total=task.rounds, left="")
                elif task.over and name in lines:
                    bar.remove_task(lines.pop(name))
                if name in lines:
                    bar.update(lines[name], completed=task.done)
            if over is not None:
                yield over


def _plain(
    passing: Iterator[SweepTask | None], tasks: Sequence[SweepTask], pace: "_Pace", console: Console
) -> Iterator[SweepTask]:
    last = time.monotonic()
    for over in passing:
        left = pace.left()  # every time, since it is from these looks that the pace is known
        if time.monotonic() - last >= _PLAIN_EVERY:
            last = time.monotonic()
            active = ", ".join(
                f"{task.run.name} {task.done}/{task.rounds}" for task in tasks if task.state == "running"
            )
            print(f"{active}; {spoken(left)} left for all", file=sys.stderr, flush=True)
        if over is not None:
            yield over


class _Pace:
    """The time left, from how long a round of runs with the same labels takes."""

    def __init__(self, tasks: Sequence[SweepTask], jobs: int) -> None:
        self.tasks, self.jobs = tasks, jobs
        self._began: dict[str, tuple[float, int]] = {}  # when a run was first seen running, and its rounds then
        self._paces: dict[str, float] = {}  # seconds a round

    def left(self) -> float | None:
        now = time.monotonic()
        for task in self.tasks:
            if task.state == "running":
                since, first = self._began.setdefault(task.run.name, (now, task.done))
                if task.done > first:
                    self._paces[_kind(task)] = (now - since) / (task.done - first)
        if not self._paces:
            return None
        usual, left = sum(self._paces.values()) / len(self._paces), [task for task in self.tasks if not task.over]
        seconds = sum((task.rounds - task.done) * self._paces.get(_kind(task), usual) for task in left)
        return seconds / max(min(self.jobs, len(left)), 1)


def _kind(task: SweepTask) -> str:
    return str(task.run.experiment.cell.labels)


def spoken(seconds: float | None) -> str:
    """
    >>> spoken(75.0), spoken(3 * 3600 + 120), spoken(90 * 86400.0)
    ('1 min', '3 h 2 min', '90 days')
    """
    if seconds is None:
        return "…"
    if seconds < 60:
        return f"{seconds:.0f} s"
    if seconds < 3600:
        return f"{seconds / 60:.0f} min"
    if seconds < 2 * 86400:
        return f"{seconds // 3600:.0f} h {seconds % 3600 // 60:.0f} min"
    return f"{seconds / 86400:.0f} days"
