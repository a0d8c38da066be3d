"""Check the conditions of a training before it begins: their files, and whether anybody can report at all."""

from fedcm.core.conditions.availability import list_available
from fedcm.core.round_loop import TrainingPlan
from fedcm.data.batches import LocalWork
from fedcm.data.work.amounts import FileWork
from fedcm.errors import UserError
from fedcm.system.formatting import format_count

# what is drawn at most to find a round with a report: the work of clients, rounds, and the availability of clients
_DRAWN_CLIENTS = 20_000
_DRAWN_ROUNDS = 20_000
_DRAWN_TIMES = 10**8


def check_conditions(plan: TrainingPlan, local_work: LocalWork) -> None:
    """Read the files of the conditions and draw the first rounds, so that what fails is rejected before the run begins.

    Raises:
        UserError: If a file or a function is wrong, or no client reports in any round.
    """
    for unit, amount in (("epochs", local_work.epochs), ("steps", local_work.steps)):
        if isinstance(amount, FileWork):
            amount.check(unit, plan.population, plan.rounds)
        elif amount is not None and not isinstance(amount, int):
            amount.draw_amount(plan.seed, 0, 0)
    if local_work.stragglers is not None:
        local_work.stragglers.check(plan.population)
    if plan.availability is not None:
        list_available(plan.availability, plan.population, plan.seed, 0)
    if plan.availability is not None or plan.deadline is not None:
        reject_rounds_without_reports(plan)


def reject_rounds_without_reports(plan: TrainingPlan) -> None:
    """Raise UserError if no client reports in any round. Long trainings are checked in part, so that it stays cheap."""
    asked = 0
    for round in range(plan.rounds):
        cohort = plan.draw_cohort(round)
        if len(cohort.reporting):
            return
        asked += len(cohort.asked)
        drawn = 0 if plan.availability is None else (round + 1) * plan.population
        if (asked > _DRAWN_CLIENTS or drawn > _DRAWN_TIMES or round > _DRAWN_ROUNDS) and round + 1 < plan.rounds:
            return  # a later round may have reports
    late, absent = "all miss the deadline; raise stragglers.deadline", "nobody is available; change [availability]"
    raise UserError(
        f"a client must report in some round, but in {format_count(plan.rounds, 'round')} none does: "
        f"{late if asked else absent}"
    )
