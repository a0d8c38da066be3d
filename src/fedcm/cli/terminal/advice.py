"""The output of `fedcm advise`: progress, figures, advice and warnings."""

import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from fedcm.runs.progress import make_progress_bar

if TYPE_CHECKING:
    from fedcm.advise.advice import Advice, ExperimentProfile, ProbeResult


@contextmanager
def show_probe_progress(total: int) -> Iterator[Callable[[int], None]]:
    """Show a progress bar on a terminal; yield the function that advances it."""
    with make_progress_bar(Console(stderr=True), transient=True) as progress:
        task = progress.add_task("probe", total=total, status="rounds")
        yield lambda rounds: progress.advance(task, rounds)


def print_advice(advice: "Advice", setting: "ExperimentProfile", probe: "ProbeResult") -> None:
    """Print the trials, the measured figures, the reasons and the warnings."""
    _print_trials(probe)
    found = probe.found
    table = Table(box=SIMPLE, pad_edge=False, show_header=False)
    rows = (
        ("gradient, squared", "‖∇f‖²", f"{found['gradient_square']:.3g}"),
        ("dissimilarity of clients", "σ_g²", f"{found['dissimilarity']:.3g}"),
        ("noise of a minibatch", "σ_l²", f"{found['noise']:.3g}"),
        ("noise of a client's mean over its round", "", f"{found['round_noise']:.3g}"),
        ("variance of a round's mean gradient", "V", f"{advice.variance:.3g}"),
        ("… relative to the gradient", "r = V/‖∇f‖²", "–" if advice.ratio is None else f"{advice.ratio:.3g}"),
        ("drift in the local steps", "ε", f"{found['drift']:.3g}"),
        ("smoothness along them", "L", "–" if probe.smoothness is None else f"{probe.smoothness:.3g}"),
        ("cosine of clients' directions with ∇f", "", f"{found['direction_cosine']:.2f}"),
        (
            "loss over clients, smallest to largest",
            "",
            f"{found['client_loss_least']:.2f} to {found['client_loss_most']:.2f}",
        ),
        ("clients per round, population", "S, N", f"{setting.cohort:.3g}, {setting.population}"),
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


def _print_trials(probe: "ProbeResult") -> None:
    table = Table(box=SIMPLE, pad_edge=False, title=f"trials of {probe.rounds} rounds", title_justify="left")
    marks = sorted({mark for trial in probe.trials for mark in trial.losses})
    columns = sorted({marks[0], marks[len(marks) // 2], marks[-1]})
    for column in ("α", "η_l", *(f"loss after {mark}" for mark in columns), "their mean"):
        table.add_column(column, justify="right")
    least = min(trial.level for trial in probe.trials)
    for trial in probe.trials:
        losses = [f"{trial.losses[mark]:.3g}" for mark in columns] if trial.losses else ["diverged"] * len(columns)
        level = f"{trial.level:.3g}" if trial.losses else ""
        style = "bold" if trial.level == least else ""
        table.add_row(f"{trial.alpha:g}", f"{trial.client_lr:.3g}", *losses, level, style=style)
    Console().print(table)
