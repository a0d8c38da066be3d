"""The command line. Nothing heavy is imported before a command needs it, so `fedcm --help` answers at once."""

import json
import os
import sys
from functools import cache
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.main import get_command

from fedcm.cli.advise import advise
from fedcm.cli.data import data_app
from fedcm.cli.federation.group import federation_app
from fedcm.cli.grid_commands import compare, reproduce, sweep
from fedcm.cli.options import AsJson, DataDir, RunsDir
from fedcm.cli.report import report
from fedcm.cli.run_commands import resume, run
from fedcm.cli.theory import theory_app
from fedcm.errors import UserError
from fedcm.system.faults import DEBUG, describe_error, find_user_code, format_trace, is_disk_error
from fedcm.system.notices import print_warnings_in_one_line
from fedcm.system.signals import StopSignals

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    help="""Federated learning with client-level momentum.

Try `fedcm run experiments/demo.toml`, then `fedcm runs`.""",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from fedcm import __version__

        print(__version__)
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    pass


for command in (run, resume, compare, sweep, reproduce, report, advise):
    app.command()(command)
app.add_typer(data_app, name="data")
app.add_typer(federation_app, name="federation")
app.add_typer(theory_app, name="theory")


@app.command()
def runs(
    runs_dir: RunsDir = Path("runs"),
    as_json: AsJson = False,
) -> None:
    """List the runs, and those in folders of runs: how far they are and how well they did.

    Example: `fedcm runs --runs-dir runs/demo`
    """
    from fedcm.cli.terminal.tables import runs_table, state_of
    from fedcm.runs.folder import list_runs

    states = [state_of(folder, runs_dir) for folder in list_runs(runs_dir, nested=True)]
    if as_json:
        print(json.dumps(states, indent=2, default=str))
    elif states:
        runs_table(states)
    else:
        print(f"no runs in {runs_dir}; `fedcm run EXPERIMENT.toml` makes one")


@app.command()
def algorithms() -> None:
    """List the algorithms: what each sends, keeps and reports, in vectors the size of the model, and its paper."""
    from fedcm.cli.terminal.tables import algorithms_table

    algorithms_table()


@app.command()
def models() -> None:
    """List the bundled models and their options."""
    from fedcm.cli.terminal.tables import models_table

    models_table()


@app.command()
def check(
    algorithm: Annotated[str, typer.Argument(help="A bundled name, or `package.module:Class`.")],
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A hyperparameter, such as `alpha=0.1`.")
    ] = None,
) -> None:
    """Check that an algorithm keeps the contract: pure, the same for a client and a stack of clients, dtype kept.

    Example: `fedcm check my_methods:FedProx --set mu=0.1`
    """
    from fedcm.config.experiment import read_algorithm
    from fedcm.config.overrides import apply_overrides
    from fedcm.core.contract import find_violations

    table = apply_overrides({"algorithm": {"name": algorithm}}, [f"algorithm.{setting}" for setting in settings or []])
    found = find_violations(read_algorithm(table["algorithm"]))
    for violation in found:
        print(f"✗ {violation}")
    if found:
        raise typer.Exit(1)
    print(f"✓ {algorithm} keeps the contract")


@app.command(hidden=True)
def follow(run: Path, data_dir: DataDir = None) -> None:
    """A worker's part in a run: `fedcm run --workers` starts these."""
    from fedcm.runs.worker import serve

    with StopSignals(quiet=True) as stopping:
        serve(run, data_dir, stopping)


def _turn_on_debug(wanted: bool) -> None:
    if wanted:
        os.environ[DEBUG] = "1"  # workers, and the runs of a series, inherit it


def _only_debug(
    debug: Annotated[
        bool,
        typer.Option(
            "--debug", help="Show the Python traceback of an error too.", callback=_turn_on_debug, expose_value=False
        ),
    ] = False,
) -> None:
    """A command that lends its option to all others."""


@cache
def command_line() -> Any:
    """All commands, and groups of them, each with the option --debug."""
    lending = typer.Typer(add_completion=False)
    lending.command()(_only_debug)
    option = next(param for param in get_command(lending).params if param.name == "debug")
    whole = get_command(app)
    waiting: list[Any] = [whole]
    while waiting:
        command = waiting.pop()
        command.params.append(option)
        waiting += getattr(command, "commands", {}).values()
    return whole


def _tell(error: Exception) -> int:
    """Prints what went wrong, in a sentence; gives the exit code."""
    code, sentence = 2, str(error)
    if not isinstance(error, UserError):
        if find_user_code(error) is not None and not is_disk_error(error):
            code, sentence = 1, f"your own code failed: {describe_error(error)}"
        elif not isinstance(error, OSError):
            code, sentence = (
                1,
                f"an error inside fedcm: {describe_error(error)}; `--debug` shows where, for a report of it",
            )
    if trace := format_trace(error):
        print(trace, file=sys.stderr)
    print(f"fedcm: {' '.join(sentence.split())}", file=sys.stderr)
    return code


def main() -> None:
    if sys.stdout is None:  # closed by whoever started this
        sys.stdout = open(os.devnull, "w")  # noqa: PTH123, SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without these letters still gets the rest
    before = os.environ.get(DEBUG)
    try:
        Path.cwd()
        with print_warnings_in_one_line():
            command_line()()
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:
        sys.exit(_tell(error))
    finally:
        if before is None:
            os.environ.pop(DEBUG, None)
