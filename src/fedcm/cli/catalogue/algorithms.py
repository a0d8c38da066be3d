"""`fedcm algorithms`: list the algorithms."""


def algorithms() -> None:
    """List the bundled algorithms: what they send, their client state, their settings and their papers."""
    from fedcm.cli.terminal.tables import print_algorithms

    print_algorithms()
