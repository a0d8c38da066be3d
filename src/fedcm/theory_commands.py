"""`fedcm theory …`: the convergence theorem, measured."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedcm.options import AsJson
from fedcm.progress import say

if TYPE_CHECKING:
    from fedcm.theory.plan import Experiment
    from fedcm.theory.rates import Row

theory_app = typer.Typer(no_args_is_help=True, help="The convergence theorem of FedCM, measured (docs/theory.md).")


@theory_app.callback()
def _theory() -> None:
    pass  # so that `rates` stays a word of its own, though there is one command


@theory_app.command()
def rates(
    only: Annotated[
        list[str] | None,
        typer.Option("--only", metavar="NAME", help="These experiments, or all that begin so; may be repeated."),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer replicates and no longest horizon.")] = False,
    output: Annotated[Path, typer.Option("--output", "-o", help="Where table and figures go.")] = Path("theory"),
    as_json: AsJson = False,
) -> None:
    """Measure how fast the error falls, for FedCM, FedAvg, SCAFFOLD and FedDyn, against what is proven.

    Error against rounds, local steps, clients a round, all clients, α and σ_g; slopes with 95 % intervals.

    Example: `fedcm theory rates --only strongly-convex --quick`
    """
    from fedcm.atomic import write_text
    from fedcm.theory.rates import chosen
    from fedcm.theory.rates_figure import draw
    from fedcm.theory.rates_table import as_json as row_as_json
    from fedcm.theory.rates_table import printed, sheet
    from fedcm.threads import one_thread

    experiments = chosen(only or [], quick)
    with one_thread():
        rows = _measured(experiments)
    records = json.dumps([row_as_json(row) for row in rows], indent=1, ensure_ascii=False)
    sheet(rows).write(output)
    write_text(output / "theory-rates.json", records + "\n")
    groups = {"theory-rates": lambda row: row.experiment.varied != "N", "theory-clients": _varies_clients}
    pictures = [
        path for name, own in groups.items() if (some := [*filter(own, rows)]) for path in draw(some, output, name)
    ]
    if as_json:
        print(records)
    else:
        printed(rows)
        print(f"table: {output / 'theory-rates.md'}; pictures: {', '.join(map(str, pictures))}")


def _varies_clients(row: "Row") -> bool:
    return row.experiment.varied == "N"


def _measured(experiments: Sequence["Experiment"]) -> list["Row"]:
    from fedcm.theory.rates import Measurement, cost

    rows = []
    with _bar(sum(cost(point) for experiment in experiments for point in experiment.points)) as bar:
        for experiment in experiments:
            measurement = Measurement(experiment)
            for point in measurement:
                bar(experiment.name, cost(point))
            rows += measurement.rows()
    return rows


@contextmanager
def _bar(total: float) -> Iterator[Any]:
    """A live bar on a terminal, a line an experiment elsewhere; both on stderr."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    if console.is_terminal:
        columns = TextColumn("[bold]{task.description}"), BarColumn(None), TaskProgressColumn(), TimeRemainingColumn()
        with Progress(*columns, console=console) as progress:
            task = progress.add_task("rates", total=total)
            yield lambda name, done: progress.update(task, description=name, advance=done)
        return
    passed, last = 0.0, ""

    def advance(name: str, done: float) -> None:
        nonlocal passed, last
        if name != last:
            say(f"{name}: {passed / total:.0%} done before it")
        passed, last = passed + done, name

    yield advance
