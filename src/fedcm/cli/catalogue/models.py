"""`fedcm models`: list the bundled models."""


def models() -> None:
    """List the bundled models and their options."""
    from fedcm.cli.terminal.tables import print_models

    print_models()
