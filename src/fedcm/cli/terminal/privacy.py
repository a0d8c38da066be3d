"""What `fedcm privacy` prints: ε against rounds, noise and participation."""

from collections.abc import Sequence

from rich.box import SIMPLE
from rich.table import Table

from fedcm.cli.terminal.tables import print_table
from fedcm.privacy.planning import PlannedRow, PrivacyPlan


def print_privacy_plan(plan: PrivacyPlan) -> None:
    """Print the guarantee of an experiment and its tables."""
    own = plan.accountant
    budget = "" if plan.budget is None else f", within the budget of {plan.budget:g}"
    print(
        f"ε = {plan.epsilon:.4g} at δ = {own.delta:g} after {plan.total} rounds{budget}, with noise of "
        f"{own.noise_multiplier:g} times the threshold"
    )
    sampling = (
        "clients are drawn independently, which is accounted for"
        if own.sampling.probability < 1
        else ("no amplification by sampling is claimed")
    )
    print(f"two populations that differ in one client ({own.sampling.adjacency}); {sampling}")
    print(f"check by Rényi divergences alone: ε = {own.compute_rdp_epsilon(plan.total):.4g}")
    if plan.paid_rounds < plan.total:
        print(f"the budget pays for {plan.paid_rounds} of {plan.total} rounds; then the run ends")
    _print_rows("noise", [f"{row.noise_multiplier:.4g}" for row in plan.by_noise], plan, plan.by_noise)
    if plan.by_participation:
        names = [f"{row.probability:.3g}" for row in plan.by_participation]
        _print_rows("participation", names, plan, plan.by_participation)


def _print_rows(title: str, names: Sequence[str], plan: PrivacyPlan, rows: Sequence[PlannedRow]) -> None:
    table = Table(box=SIMPLE, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column(title, justify="right", no_wrap=True)
    for rounds in plan.rounds:
        table.add_column(f"ε after {rounds}", justify="right", no_wrap=True)
    for name, row in zip(names, rows, strict=True):
        table.add_row(name, *(f"{value:.3g}" for value in row.epsilons), style="bold" if row.is_own else None)
    print_table(table)
