"""What `fedcm advise` shows: its progress, then the figures, what they suggest and what to beware of."""

import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.box import SIMPLE
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table


@contextmanager
def probing(total: int) -> Iterator[Callable[[int], None]]:
    """A bar on a terminal; gives the function that moves it."""
    console = Console(stderr=True)
    columns = (TextColumn("probe"), BarColumn(), MofNCompleteColumn(), TextColumn("rounds"), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("probe", total=total)

        yield lambda done: bar.update(task, completed=done)


def advice_shown(advice: Any, setting: Any, seen: Any) -> None:
    """`fedcm.advice`'s Advice, Setting and Probe."""
    found = seen.found
    table = Table(box=SIMPLE, pad_edge=False, show_header=False)
    rows = (
        ("gradient", "‖∇f‖", f"{found['gradient_norm']:.3g}"),
        ("dissimilarity of clients", "σ_g²", f"{found['dissimilarity']:.3g}"),
        ("noise of a minibatch", "σ_l²", f"{found['noise']:.3g}"),
        ("variance of a round's mean gradient", "V", f"{advice.variance:.3g}"),
        ("… against the gradient", "r = V/‖∇f‖²", f"{advice.ratio:.3g}"),
        ("drift in the local steps", "ε", f"{found['drift']:.3g}"),
        ("smoothness along them", "L", f"{seen.smoothness:.3g}"),
        ("cosine of clients' directions with ∇f", "", f"{found['direction_cosine']:.2f}"),
        (
            "loss over clients, least to most",
            "",
            f"{found['client_loss_least']:.2f} to {found['client_loss_most']:.2f}",
        ),
        ("clients a round, of all", "S, N", f"{setting.cohort:.3g}, {setting.population}"),
        ("local steps, rounds", "K, T", f"{setting.steps:.3g}, {setting.rounds}"),
    )
    for row in rows:
        table.add_row(*row)
    Console().print(table)
    for mark, lines in (("✓", advice.reasons), ("!", advice.warnings)):
        for line in lines:
            print(textwrap.fill(line, 118, initial_indent=f"{mark} ", subsequent_indent="  "))
    print(
        f"\ntry: --set algorithm.name=fedcm --set algorithm.alpha={advice.alpha:g} --set client.lr={advice.client_lr:g}"
    )
