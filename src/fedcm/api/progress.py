"""Progress and messages on stderr, for the API and the command line.

On a terminal, progress is a live line; elsewhere, a plain line every few seconds. Packages below the API print nothing:
they take a function that shows progress (`fedcm.trackers.observation.ShowProgress`) and one that receives messages.
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from fedcm.core.metrics import describe_score

_PLAIN_EVERY = 10.0  # seconds between plain lines


def show_progress(
    rounds: Iterator[Any], total: int, first: int = 0, title: str = "training", hidden: bool = False
) -> Iterator[Any]:
    """Yield the rounds unchanged and show their progress on stderr.

    Args:
        rounds: Metrics as dicts, or finished rounds.
        total: The number of rounds of the whole run.
        first: The first round to come.
        title: The first words of the line.
        hidden: Show nothing.
    """
    if hidden:
        yield from rounds
        return
    console = Console(stderr=True)
    display = _show_live if console.is_terminal else _show_plain
    yield from display(rounds, total, first, title, console)


@contextmanager
def show_probe_progress(total: int, *, hidden: bool = False) -> Iterator[Callable[[int], None]]:
    """Show a progress bar for the rounds of a probe, on a terminal only.

    Args:
        total: The number of rounds of all trials.
        hidden: Show nothing.

    Yields:
        A function that is called with the number of rounds that are done.
    """
    if hidden:
        yield lambda rounds: None
        return
    with make_progress_bar(Console(stderr=True), transient=True) as progress:
        task = progress.add_task("probe", total=total, status="rounds")
        yield lambda rounds: progress.advance(task, rounds)


def make_progress_bar(console: Console, *, transient: bool = False) -> Progress:
    """Return a progress bar that is visible only on a terminal; its tasks have a field `status`."""
    return Progress(
        TextColumn("[bold]{task.description}"),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TextColumn("{task.fields[status]}"),
        TimeRemainingColumn(),
        TextColumn("left"),
        console=console,
        refresh_per_second=8,
        disable=not console.is_terminal,
        transient=transient,
    )


def _show_live(rounds: Iterator[Any], total: int, first: int, title: str, console: Console) -> Iterator[Any]:
    with make_progress_bar(console) as bar:
        task = bar.add_task(title, total=total, completed=first, status="")
        format_round = _RoundFormatter(first)
        for item in rounds:
            bar.update(task, advance=1, status=format_round(_read_metrics(item)))
            yield item


def _show_plain(rounds: Iterator[Any], total: int, first: int, title: str, console: Console) -> Iterator[Any]:
    format_round, last = _RoundFormatter(first), time.monotonic()
    started = last
    for item in rounds:
        metrics = _read_metrics(item)
        line = format_round(metrics)
        done = metrics["round"] + 1
        now = time.monotonic()
        if now - last >= _PLAIN_EVERY or done == total:
            left = (now - started) / max(done - first, 1) * (total - done)
            print(f"{title}: round {done}/{total}, {line}, {left:.0f} s left", file=sys.stderr, flush=True)
            last = now
        yield item


class _RoundFormatter:
    """Describes a round: loss, headline metric (or test loss, if there is none) and speed."""

    def __init__(self, first: int) -> None:
        self.first = first
        self.started = time.monotonic()
        self.score: str | None = None

    def __call__(self, metrics: dict[str, Any]) -> str:
        self.score = describe_score(metrics) or self.score
        rate = (metrics["round"] + 1 - self.first) / max(time.monotonic() - self.started, 1e-9)
        parts = ["empty cohort" if metrics["loss"] is None else f"loss {metrics['loss']:.3f}"]
        if self.score is not None:
            parts.append(self.score)
        if "epsilon" in metrics:
            parts.append(f"ε {metrics['epsilon']:.3g}")
        parts.append(f"{rate:.1f} rounds/s" if rate >= 1 else f"{1 / rate:.1f} s/round")
        return "  ".join(parts)


def _read_metrics(item: Any) -> dict[str, Any]:
    return item.metrics.to_dict() if hasattr(item, "metrics") else item


def say(sentence: str) -> None:
    """Print a line on stderr, beside the results on stdout."""
    print(sentence, file=sys.stderr, flush=True)
