"""What a person sees of a federation's runs: one as it goes by, with its log's lines, and all of them as a table."""

import sys
from collections.abc import Iterator, Sequence
from typing import Any

from rich.box import SIMPLE
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fedcm.runs.progress import make_progress_bar


def shown_run(passing: Iterator[Any], title: str, rounds: int) -> Any:
    """The outcome it ends with; items are `fedcm.federation.admin.following.Passing`."""
    console = Console(stderr=True)
    outcome = None
    with make_progress_bar(console) as bar:
        task = bar.add_task(escape(title), total=rounds, said="")
        for outcome, lines in passing:
            for line in lines:
                if console.is_terminal:
                    bar.console.print(escape(line), highlight=False)
                else:
                    print(line, file=sys.stderr, flush=True)
            if outcome.metrics:
                bar.update(task, completed=outcome.metrics["round"] + 1, said=_said(outcome.metrics))
    return outcome


def _said(metrics: dict[str, Any]) -> str:
    words = ["nobody counted" if metrics["loss"] is None else f"loss {metrics['loss']:.3f}"]
    words.append(f"{metrics['cohort']} of {metrics.get('asked', metrics['cohort'])} sites")
    if metrics.get("test_accuracy") is not None:
        words.append(f"accuracy {metrics['test_accuracy']:.2%}")
    elif metrics.get("test_loss") is not None:
        words.append(f"test loss {metrics['test_loss']:.4g}")
    return "  ".join(words)


def federation_table(rows: Sequence[dict[str, Any]]) -> None:
    """The runs of a federation, as its server tells them."""
    table = Table(box=SIMPLE, pad_edge=False)
    for name in ("run", "state", "round", "loss", "accuracy", "submitted"):
        table.add_column(
            name,
            justify="right" if name in ("round", "loss", "accuracy") else "left",
            no_wrap=name in ("run", "submitted"),
        )
    for row in rows:
        last = row.get("last") or {}
        done = f"{last['round'] + 1}/{row['rounds']}" if last else "–"
        loss = f"{last['loss']:.3f}" if last.get("loss") is not None else "–"
        accuracy = f"{last['test_accuracy']:.2%}" if last.get("test_accuracy") is not None else "–"
        if accuracy == "–" and last.get("test_loss") is not None:
            accuracy = f"loss {last['test_loss']:.4g}"
        why = f" ({escape(row['why'])})" if row.get("why") else ""
        table.add_row(escape(row["run"]), row["state"] + why, done, loss, accuracy, str(row["submitted"])[:19])
    Console().print(table)
