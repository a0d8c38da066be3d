"""`fedcm algorithms`: list the algorithms, or show one."""

from typing import Annotated

import typer


def algorithms(
    name: Annotated[
        str | None, typer.Argument(help="Show this algorithm with its equations; yours as package.module:Class.")
    ] = None,
) -> None:
    """List the bundled algorithms in groups: what they send and keep, their extra work, settings and papers.

    Examples: `fedcm algorithms`, `fedcm algorithms mofedsam`
    """
    from fedcm.cli.terminal.tables import print_algorithm, print_algorithms

    if name is None:
        print_algorithms()
    else:
        print_algorithm(name)
