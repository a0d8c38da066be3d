"""Terminal output of `fedcm federation`: certificates, the lines of a service, one run live, and a table of runs."""

import os
import shlex
import sys
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from rich.box import SIMPLE
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fedcm.api.progress import make_progress_bar, say
from fedcm.core.metrics import describe_score

_STATE_TEXTS = {"unknown": "starting, or lost (use `resume`)"}  # what the table says instead of a state


def print_request(request: Path, invitation: Any, kit: Path) -> None:
    """Print a request's file, the fingerprints to compare, and what to do next."""
    from fedcm.federation.provision.request import read_request

    say(f"the root certificate of {invitation.plan.name}, to compare with the organiser:")
    say(invitation.root)
    say("your key, for the organiser to compare with you:")
    say(read_request(request).fingerprint)
    say(f"send this file to the organiser, then run `fedcm federation join SIGNED.zip {shlex.quote(str(kit))}`:")
    print(request)


def print_expiry_dates(issued: Iterable[Any]) -> None:
    """Print one line per party: when its certificate expires."""
    for certificate in sorted(issued, key=lambda certificate: certificate.ends):
        print(f"{certificate.ends.date()}  {certificate.party.kind:6}  {certificate.party.name}")


def print_audit(report: Any) -> None:
    """Print what `fedcm.federation.trust.audit_check.verify_audit` found."""
    for event, count in sorted(report.events.items()):
        print(f"{count:7}  {event}")
    for alarm in report.alarms:
        print(f"alarm: {alarm}")
    if report.torn:
        print("the last line is incomplete: the server ended while it wrote it")
    print(f"broken: {report.problem}" if report.problem else "every line is signed and follows from the one before")
    print(f"last good line: {report.head.number}, {report.head.hash}")


def print_service_line(line: str) -> None:
    """Print a line of a server or site, with the time unless the systemd journal adds it."""
    say(line if "JOURNAL_STREAM" in os.environ else f"{datetime.now():%Y-%m-%d %H:%M:%S} {line}")


def show_run(updates: Iterator[Any], title: str, rounds: int) -> Any:
    """Show a run's progress and log from `fedcm.federation.admin.watch.RunUpdate`s, and return the last outcome."""
    console = Console(stderr=True)
    outcome = None
    with make_progress_bar(console) as bar:
        task = bar.add_task(escape(title), total=rounds, status="")
        for outcome, lines in updates:
            for line in lines:
                if console.is_terminal:
                    bar.console.print(escape(line), highlight=False)
                else:
                    print(line, file=sys.stderr, flush=True)
            if outcome.metrics:
                bar.update(task, completed=outcome.metrics["round"] + 1, status=_format_metrics(outcome.metrics))
    return outcome


def _format_metrics(metrics: dict[str, Any]) -> str:
    parts = ["no site counted" if metrics["loss"] is None else f"loss {metrics['loss']:.3f}"]
    parts.append(f"{metrics['cohort']} of {metrics.get('asked', metrics['cohort'])} sites")
    if (score := describe_score(metrics)) is not None:
        parts.append(score)
    return "  ".join(parts)


def print_runs_table(rows: Sequence[dict[str, Any]]) -> None:
    """Print a federation's runs; rows are those of `fedcm.federation.admin.runs.describe_runs`."""
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
        accuracy = (describe_score(last) or "–").removeprefix("accuracy ").removeprefix("test ")
        reason = f" ({escape(row['why'])})" if row.get("why") else ""
        state: str = row["state"]
        text = _STATE_TEXTS.get(state, state) + reason
        table.add_row(escape(row["run"]), text, done, loss, accuracy, str(row["submitted"])[:19])
    Console().print(table)
