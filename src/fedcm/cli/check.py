"""`fedcm check`: check an algorithm against the contract."""

from typing import Annotated

import typer


def check(
    algorithm: Annotated[str, typer.Argument(help="A bundled name, or `package.module:Class`.")],
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A hyperparameter, such as `alpha=0.1`.")
    ] = None,
) -> None:
    """Check that an algorithm follows the contract: its functions are pure, keep the dtype and accept stacks.

    Example: `fedcm check my_methods:FedProx --set mu=0.1`
    """
    from fedcm.config.experiment import read_algorithm
    from fedcm.config.overrides import apply_overrides
    from fedcm.core.contract import find_violations

    table = apply_overrides({"algorithm": {"name": algorithm}}, [f"algorithm.{setting}" for setting in settings or []])
    violations = find_violations(read_algorithm(table["algorithm"]))
    for violation in violations:
        print(f"✗ {violation}")
    if violations:
        raise typer.Exit(1)
    print(f"✓ {algorithm} follows the contract")
