"""`fedcm federation resume`."""

from pathlib import Path

from fedcm.api.progress import say
from fedcm.cli import options
from fedcm.cli.federation.options import AdminKit, Detach, Patience, Restarts, RunName
from fedcm.cli.federation.runs.run_watch import watch_and_fetch


def resume(
    run: RunName,
    kit: AdminKit,
    overrides: options.SettingOverrides = None,
    runs_dir: options.RunsDir = Path("runs"),
    detach: Detach = False,
    restarts: Restarts = 3,
    patience: Patience = 600.0,
) -> None:
    """Resume a run that was stopped or lost, from the last round that the server has saved.

    --set can change `deadline`, `quorum`, `wait`, `drop_after`, `retry_after`, `give_up_after`, `norm_bound`,
    `norm_ratio`, `min_cosine` and `max_examples` of `[federation]`, and nothing else.

    Example: `fedcm federation resume demo-fedcm-seed1 --kit admins/lead@example.org --set federation.deadline=60`
    """
    from fedcm.federation.admin.results import reject_local_run
    from fedcm.federation.admin.runs import reject_unchangeable, resume_run
    from fedcm.federation.admin.session import open_session
    from fedcm.federation.kit import read_kit

    overrides = overrides or []
    reject_unchangeable(overrides)
    admin = read_kit(kit)
    if not detach:
        reject_local_run(runs_dir / run)
    with open_session(admin) as session:
        submitted = resume_run(session, run, overrides, say)
    say(f"run {run} was submitted again")
    if not detach:
        watch_and_fetch(admin, submitted, runs_dir, restarts, patience)
