"""Draw ε against rounds, for several amounts of noise and several participations."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedcm.privacy.planning import PlannedRow, PrivacyPlan
from fedcm.reports.figures.style import DASHES, PALETTE, open_figure


def draw_privacy_plan(plan: PrivacyPlan, path: Path) -> None:
    """Write the picture of a plan: by noise on the left, by participation on the right if clients are drawn."""
    panels = 2 if plan.by_participation else 1
    with open_figure(path, 5.2 * panels, 3.8, ncols=panels, squeeze=False) as (_, axes):
        _draw_panel(axes[0][0], plan, plan.by_noise, [f"noise {row.noise_multiplier:.3g}" for row in plan.by_noise])
        if plan.by_participation:
            labels = [f"participation {row.probability:.3g}" for row in plan.by_participation]
            _draw_panel(axes[0][1], plan, plan.by_participation, labels)


def _draw_panel(axes: Any, plan: PrivacyPlan, rows: Sequence[PlannedRow], labels: Sequence[str]) -> None:
    for index, (row, label) in enumerate(zip(rows, labels, strict=True)):
        width = 2.4 if row.is_own else 1.3
        dash = "-" if row.is_own else DASHES[index % len(DASHES)]
        own = f"{label} (this experiment)" if row.is_own else label
        colour = PALETTE[index % len(PALETTE)]
        axes.plot(plan.rounds, row.epsilons, label=own, linewidth=width, linestyle=dash, color=colour, marker="o", ms=3)
    axes.axvline(plan.total, color="#7F7F7F", linewidth=1.0, linestyle=(0, (1, 2)))
    if plan.budget is not None:
        axes.axhline(plan.budget, color="#7F7F7F", linewidth=1.0, linestyle=(0, (1, 2)))
    axes.set(xlabel="rounds", ylabel=f"ε at δ = {plan.accountant.delta:g}", yscale="log")
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8)
