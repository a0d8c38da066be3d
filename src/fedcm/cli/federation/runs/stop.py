"""`fedcm federation stop`."""

from fedcm.api.progress import say
from fedcm.cli.federation.options import AdminKit, RunName


def stop(run: RunName, kit: AdminKit) -> None:
    """Stop a run after its current round; all rounds are saved, and `resume` continues it.

    Example: `fedcm federation stop demo-fedcm-seed1 --kit admins/lead@example.org`
    """
    from fedcm.federation.admin.runs import stop_run
    from fedcm.federation.admin.session import open_session
    from fedcm.federation.kit import read_kit

    with open_session(read_kit(kit)) as session:
        stop_run(session, run)
    say(f"run {run} stops; resume it with `fedcm federation resume {run}`")
