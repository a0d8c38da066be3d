"""The progress of a search: a bar over all trials with the remaining time, and a line per trial in progress."""

import sys
import time
from collections.abc import Iterator

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn
from rich.table import Column

from fedcm.api.progress import say
from fedcm.cli.terminal.tuning import describe_settings
from fedcm.system.formatting import format_estimate
from fedcm.tuning.search import Search
from fedcm.tuning.trials import TuningTrial, find_best

_PLAIN_EVERY = 30.0  # seconds between plain lines at most


def show_search_progress(ended: Iterator[TuningTrial | None], search: Search) -> Iterator[TuningTrial]:
    """Yield the trials that have ended, and show the progress of all on stderr."""
    console = Console(stderr=True)
    display = _show_live if console.is_terminal else _show_plain
    for trial in display(ended, search, console):
        best = find_best(search.list_trials(trial.algorithm))
        result = trial.state if trial.metric is None or trial.score is None else trial.metric.format(trial.score)
        mark = ", the best so far" if trial is best else ""
        say(
            f"{len(search.ended)}/{search.total} {trial.algorithm} trial {trial.number}: "
            f"{describe_settings(trial.settings)}: {result}{mark}"
        )
        yield trial


def _show_live(ended: Iterator[TuningTrial | None], search: Search, console: Console) -> Iterator[TuningTrial]:
    columns = (
        TextColumn("{task.description}", table_column=Column(overflow="fold", max_width=max(console.width // 2, 10))),
        BarColumn(bar_width=None),
        MofNCompleteColumn(table_column=Column(no_wrap=True)),
        TextColumn("{task.fields[left]}", table_column=Column(no_wrap=True)),
    )
    pace = _Pace(search)
    with Progress(*columns, console=console, refresh_per_second=4) as bar:
        whole = bar.add_task("[bold]all trials", total=search.total, left="")
        lines: dict[str, TaskID] = {}
        for one in ended:
            bar.update(whole, completed=len(search.ended), left=f"{format_estimate(pace.estimate())} left")
            running = {trial.run: task for trial, task in search.running}
            for name in [name for name in lines if name not in running]:
                bar.remove_task(lines.pop(name))
            for name, task in running.items():
                if name not in lines:
                    lines[name] = bar.add_task(name, total=task.rounds, left="")
                bar.update(lines[name], completed=task.rounds_done)
            if one is not None:
                yield one


def _show_plain(ended: Iterator[TuningTrial | None], search: Search, console: Console) -> Iterator[TuningTrial]:
    last, pace = time.monotonic(), _Pace(search)
    for one in ended:
        left = pace.estimate()
        if time.monotonic() - last >= _PLAIN_EVERY:
            last = time.monotonic()
            active = ", ".join(f"{trial.run} {task.rounds_done}/{task.rounds}" for trial, task in search.running)
            print(f"{active}; {format_estimate(left)} left for all trials", file=sys.stderr, flush=True)
        if one is not None:
            yield one


class _Pace:
    """Estimates the remaining time from the trials that have ended since the start."""

    def __init__(self, search: Search) -> None:
        self.search, self._since, self._first = search, time.monotonic(), len(search.ended)

    def estimate(self) -> float | None:
        """Return the remaining seconds; None before the first trial has ended."""
        ended = len(self.search.ended)
        if ended == self._first:
            return None
        return (time.monotonic() - self._since) / (ended - self._first) * (self.search.total - ended)
