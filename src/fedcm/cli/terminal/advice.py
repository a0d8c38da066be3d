"""What `fedcm advise` shows: its progress, then the figures, what they suggest and what to beware of."""

import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from fedcm.runs.progress import make_progress_bar

if TYPE_CHECKING:
    from fedcm.advise.advice import Advice, Probe, Setting


@contextmanager
def probing(total: int) -> Iterator[Callable[[int], None]]:
    """A bar on a terminal; gives the function that moves it on."""
    with make_progress_bar(Console(stderr=True), transient=True) as progress:
        task = progress.add_task("probe", total=total, said="rounds")
        yield lambda rounds: progress.advance(task, rounds)


def advice_shown(advice: "Advice", setting: "Setting", seen: "Probe") -> None:
    _trials(seen)
    found = seen.found
    table = Table(box=SIMPLE, pad_edge=False, show_header=False)
    rows = (
        ("gradient, squared", "‖∇f‖²", f"{found['gradient_square']:.3g}"),
        ("dissimilarity of clients", "σ_g²", f"{found['dissimilarity']:.3g}"),
        ("noise of a minibatch", "σ_l²", f"{found['noise']:.3g}"),
        ("noise of a client's mean over its round", "", f"{found['round_noise']:.3g}"),
        ("variance of a round's mean gradient", "V", f"{advice.variance:.3g}"),
        ("… against the gradient", "r = V/‖∇f‖²", "–" if advice.ratio is None else f"{advice.ratio:.3g}"),
        ("drift in the local steps", "ε", f"{found['drift']:.3g}"),
        ("smoothness along them", "L", "–" if seen.smoothness is None else f"{seen.smoothness:.3g}"),
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


def _trials(seen: "Probe") -> None:
    table = Table(box=SIMPLE, pad_edge=False, title=f"trials of {seen.rounds} rounds", title_justify="left")
    marks = sorted({mark for trial in seen.trials for mark in trial.losses})
    shown = sorted({marks[0], marks[len(marks) // 2], marks[-1]})
    for column in ("α", "η_l", *(f"loss after {mark}" for mark in shown), "their mean"):
        table.add_column(column, justify="right")
    least = min(trial.level for trial in seen.trials)
    for trial in seen.trials:
        losses = [f"{trial.losses[mark]:.3g}" for mark in shown] if trial.losses else ["diverged"] * len(shown)
        level = f"{trial.level:.3g}" if trial.losses else ""
        style = "bold" if trial.level == least else ""
        table.add_row(f"{trial.alpha:g}", f"{trial.client_lr:.3g}", *losses, level, style=style)
    Console().print(table)
