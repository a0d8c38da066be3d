"""The output of `fedcm advise`: figures, advice and warnings."""

import textwrap
from typing import TYPE_CHECKING

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from fedcm.system.formatting import format_count

if TYPE_CHECKING:
    from fedcm.advice.suggestion import Advice, ProbeResult


def print_advice(advice: "Advice") -> None:
    """Print the trials, the measured figures, the reasons and the warnings."""
    profile, probe = advice.profile, advice.probe
    diagnosis = probe.diagnosis
    _print_trials(probe)
    table = Table(box=SIMPLE, pad_edge=False, show_header=False)
    rows = (
        ("gradient, squared", "‖∇f‖²", f"{diagnosis['gradient_square']:.3g}"),
        ("dissimilarity of clients", "σ_g²", f"{diagnosis['dissimilarity']:.3g}"),
        ("noise of a minibatch", "σ_l²", f"{diagnosis['noise']:.3g}"),
        ("noise of a client's mean over its round", "", f"{diagnosis['round_noise']:.3g}"),
        ("variance of a round's mean gradient", "V", f"{advice.variance:.3g}"),
        ("… relative to the gradient", "r = V/‖∇f‖²", "–" if advice.ratio is None else f"{advice.ratio:.3g}"),
        ("drift in the local steps", "ε", f"{diagnosis['drift']:.3g}"),
        ("smoothness along them", "L", "–" if probe.smoothness is None else f"{probe.smoothness:.3g}"),
        ("cosine of clients' directions with ∇f", "", f"{diagnosis['direction_cosine']:.2f}"),
        (
            "loss over clients, smallest to largest",
            "",
            f"{diagnosis['client_loss_least']:.2f} to {diagnosis['client_loss_most']:.2f}",
        ),
        ("clients per round, population", "S, N", f"{profile.cohort_size:.3g}, {profile.population}"),
        ("local steps, rounds", "K, T", f"{profile.steps:.3g}, {profile.rounds}"),
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
    title = f"trials of {format_count(probe.rounds, 'round')}, judged by their {probe.judged_on} loss"
    table = Table(box=SIMPLE, pad_edge=False, title=title, title_justify="left")
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
