"""`fedcm experiments`: list the bundled experiments."""


def experiments() -> None:
    """List the experiments that come with fedcm. `fedcm run NAME` or `fedcm compare NAME` runs one.

    Example: `fedcm experiments`, then `fedcm run demo`
    """
    from fedcm.cli.terminal.tables import print_experiments

    print_experiments()
