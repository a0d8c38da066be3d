"""What a person sees while rounds go by: a live line on a terminal, plain lines now and then elsewhere."""

import sys
import time
from collections.abc import Iterator
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

_PLAIN_EVERY = 10.0  # seconds between plain lines at most


def show_progress(
    rounds: Iterator[Any], total: int, first: int = 0, title: str = "training", hidden: bool = False
) -> Iterator[Any]:
    """The same rounds, shown on stderr as they pass; items are metrics, or carry them as `.metrics`."""
    if hidden:
        yield from rounds
        return
    console = Console(stderr=True)
    display = _live if console.is_terminal else _plain
    yield from display(rounds, total, first, title, console)


def make_progress_bar(console: Console, *, transient: bool = False) -> Progress:
    """On a terminal alone; a task has a field `said`."""
    return Progress(
        TextColumn("[bold]{task.description}"),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TextColumn("{task.fields[said]}"),
        TimeRemainingColumn(),
        TextColumn("left"),
        console=console,
        refresh_per_second=8,
        disable=not console.is_terminal,
        transient=transient,
    )


def _live(rounds: Iterator[Any], total: int, first: int, title: str, console: Console) -> Iterator[Any]:
    with make_progress_bar(console) as bar:
        task = bar.add_task(title, total=total, completed=first, said="")
        said = _Line(first)
        for item in rounds:
            bar.update(task, advance=1, said=said(_metrics(item)))
            yield item


def _plain(rounds: Iterator[Any], total: int, first: int, title: str, console: Console) -> Iterator[Any]:
    said, last = _Line(first), time.monotonic()
    started = last
    for item in rounds:
        metrics = _metrics(item)
        line = said(metrics)
        done = metrics["round"] + 1
        now = time.monotonic()
        if now - last >= _PLAIN_EVERY or done == total:
            left = (now - started) / max(done - first, 1) * (total - done)
            print(f"{title}: round {done}/{total}, {line}, {left:.0f} s left", file=sys.stderr, flush=True)
            last = now
        yield item


class _Line:
    """Loss, accuracy (or where labels are no classes the test loss) and speed in a few words."""

    def __init__(self, first: int) -> None:
        self.first = first
        self.started = time.monotonic()
        self.accuracy: float | None = None
        self.test_loss: float | None = None

    def __call__(self, metrics: dict[str, Any]) -> str:
        self.accuracy = metrics.get("test_accuracy", self.accuracy)
        self.test_loss = metrics.get("test_loss", self.test_loss)
        rate = (metrics["round"] + 1 - self.first) / max(time.monotonic() - self.started, 1e-9)
        words = ["nobody took part" if metrics["loss"] is None else f"loss {metrics['loss']:.3f}"]
        if self.accuracy is not None:
            words.append(f"accuracy {self.accuracy:.2%}")
        elif self.test_loss is not None:
            words.append(f"test loss {self.test_loss:.4g}")
        words.append(f"{rate:.1f} rounds/s" if rate >= 1 else f"{1 / rate:.1f} s/round")
        return "  ".join(words)


def _metrics(item: Any) -> dict[str, Any]:
    return getattr(item, "metrics", item)


def say(sentence: str) -> None:
    """A line for the person, beside the results on stdout."""
    print(sentence, file=sys.stderr, flush=True)
