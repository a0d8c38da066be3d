"""`fedcm federation logs`."""

from fedcm.cli.federation.options import AdminKit, RunName


def logs(run: RunName, kit: AdminKit) -> None:
    """Print the log of a run: which sites did not answer, and whose replies were rejected and why.

    Example: `fedcm federation logs demo-fedcm-seed1 --kit admins/lead@example.org`
    """
    from fedcm.federation.admin.runs import read_log
    from fedcm.federation.admin.session import open_session
    from fedcm.federation.kit import read_kit

    with open_session(read_kit(kit)) as session:
        lines = read_log(session, run)
    print("\n".join(lines))
