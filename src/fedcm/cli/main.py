"""The command line. Commands import heavy modules only when they run, so `fedcm --help` answers at once."""

import os
import sys
from functools import cache
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.main import get_command

from fedcm.cli.advise import advise
from fedcm.cli.catalogue.algorithms import algorithms
from fedcm.cli.catalogue.check import check
from fedcm.cli.catalogue.experiments import experiments
from fedcm.cli.catalogue.models import models
from fedcm.cli.data import data_app
from fedcm.cli.federation.app import federation_app
from fedcm.cli.privacy import privacy
from fedcm.cli.report import report
from fedcm.cli.runs.resume import resume
from fedcm.cli.runs.run import run
from fedcm.cli.runs.runs import runs
from fedcm.cli.runs.verify import verify
from fedcm.cli.runs.worker import worker
from fedcm.cli.sweeps.compare import compare
from fedcm.cli.sweeps.reproduce import reproduce
from fedcm.cli.sweeps.sweep import sweep
from fedcm.cli.sweeps.tune import tune
from fedcm.cli.theory import theory_app
from fedcm.errors import UserError
from fedcm.system.error_messages import (
    DEBUG,
    describe_error,
    describe_os_error,
    find_user_code,
    format_traceback,
    is_disk_error,
)
from fedcm.system.user_warnings import print_short_warnings

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    help="""Federated learning with client-level momentum.

Try `fedcm run demo`, then `fedcm runs`.""",
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


for command in (run, resume, compare, sweep, tune, reproduce, report, runs, verify, experiments, advise, privacy):
    app.command()(command)
for command in (algorithms, models, check):
    app.command()(command)
app.command(hidden=True)(worker)
app.add_typer(data_app, name="data")
app.add_typer(federation_app, name="federation")
app.add_typer(theory_app, name="theory")


def _turn_on_debug(wanted: bool) -> None:
    if wanted:
        os.environ[DEBUG] = "1"  # workers and the runs of a sweep inherit it


def _debug_option(
    debug: Annotated[
        bool,
        typer.Option(
            "--debug", help="Also print the Python traceback of an error.", callback=_turn_on_debug, expose_value=False
        ),
    ] = False,
) -> None:
    """A command whose option is added to all others."""


@cache
def build_command_line() -> Any:
    """Return the command line, with the option --debug on every command and group."""
    holder = typer.Typer(add_completion=False)
    holder.command()(_debug_option)
    option = next(param for param in get_command(holder).params if param.name == "debug")
    root = get_command(app)
    waiting: list[Any] = [root]
    while waiting:
        command = waiting.pop()
        command.params.append(option)
        waiting += getattr(command, "commands", {}).values()
    return root


def _print_error(error: Exception) -> int:
    """Print an error in one sentence and return the exit code."""
    code, sentence = 2, str(error)
    if not isinstance(error, UserError):
        if find_user_code(error) is not None and not is_disk_error(error):
            code, sentence = 1, f"your own code failed: {describe_error(error)}"
        elif isinstance(error, OSError):
            sentence = describe_os_error(error)
        else:
            code, sentence = 1, f"an error inside fedcm: {describe_error(error)}; please report it with `--debug`"
    if trace := format_traceback(error):
        print(trace, file=sys.stderr)
    print(f"fedcm: {' '.join(sentence.split())}", file=sys.stderr)
    return code


def main() -> None:
    """Run the command line and exit."""
    if sys.stdout is None:  # closed by the program that started this one
        sys.stdout = open(os.devnull, "w")  # noqa: PTH123, SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without some letters still gets the rest
    before = os.environ.get(DEBUG)
    try:
        Path.cwd()
        with print_short_warnings():
            build_command_line()()
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:
        sys.exit(_print_error(error))
    finally:
        if before is None:
            os.environ.pop(DEBUG, None)
