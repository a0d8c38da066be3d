"""`fedcm check`: check an algorithm against the contract."""

from typing import Annotated

import typer


def check(
    algorithm: Annotated[str, typer.Argument(help="A bundled name, or `package.module:Class`.")],
    hyperparameters: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A hyperparameter, such as `alpha=0.1`.")
    ] = None,
) -> None:
    """Check that an algorithm follows the contract: its functions are pure, keep the dtype and accept stacks.

    Example: `fedcm check my_methods:FedProx --set mu=0.1`
    """
    from fedcm.config.experiment import make_algorithm
    from fedcm.core.contract import find_violations

    violations = find_violations(make_algorithm(algorithm, hyperparameters or []))
    for violation in violations:
        print(f"✗ {violation}")
    if violations:
        raise typer.Exit(1)
    print(f"✓ {algorithm} follows the contract")
