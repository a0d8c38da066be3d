"""`fedcm theory …`: the convergence theorem, measured."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from fedcm.cli.options import AsJson
from fedcm.errors import UserError
from fedcm.runs.progress import say

theory_app = typer.Typer(no_args_is_help=True, help="The convergence theorem of FedCM, measured (docs/theory.md).")


@theory_app.callback()
def _theory() -> None:
    pass  # so that `rates` stays a word of its own, though there is one command


@theory_app.command()
def rates(
    only: Annotated[
        list[str] | None,
        typer.Option("--only", metavar="NAME", help="This experiment, or all that begin so; may be repeated."),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer replicates and no longest horizon.")] = False,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="DIR", help="Where tables and figures go.")
    ] = "theory",
    as_json: AsJson = False,
) -> None:
    """Measure how fast the error falls, for FedCM, FedAvg, SCAFFOLD and FedDyn, against what is proven.

    Error against rounds, local steps, clients a round, all clients, α and σ_g; slopes with 95 % intervals. And FedAvg's
    error over FedCM's, where clients drift and in controls where they do not.

    Example: `fedcm theory rates --only strongly-convex --quick`
    """
    from fedcm.system.files import write_text
    from fedcm.theory.rates.measure import chosen, cost
    from fedcm.theory.rates.rates_figure import draw
    from fedcm.theory.rates.rates_markdown import markdown
    from fedcm.theory.rates.rates_table import as_json as row_as_json
    from fedcm.theory.rates.rates_table import print_comparisons, printed, sheet
    from fedcm.theory.rates.ratios import compare
    from fedcm.theory.rates.ratios_figure import draw_ratios
    from fedcm.theory.rates.shared_out import measured

    experiments, folder = chosen(only or [], quick), _writable(output)
    with _bar(sum(cost(point) for experiment in experiments for point in experiment.points)) as bar:
        rows = measured(experiments, quick, bar)
    compared = compare(rows)
    records = json.dumps([row_as_json(row, compared) for row in rows], indent=1, ensure_ascii=False, allow_nan=False)
    texts = {"json": records + "\n", "md": markdown(rows), "csv": sheet(rows).csv(), "tex": sheet(rows).latex()}
    for suffix, text in texts.items():
        write_text(folder / f"theory-rates.{suffix}", text)
    clients = [row for row in rows if row.experiment.varied == "N"]
    others = [row for row in rows if row.experiment.steps != "averaging"]
    groups = {"theory-rates": others, "theory-clients": clients}
    pictures = [path for name, own in groups.items() if own for path in draw(own, folder, name)]
    by_horizon = [one for one in compared if one.fedcm.experiment.varied == "T"]
    if by_horizon:
        pictures += draw_ratios(by_horizon, folder, "theory-momentum")
    if as_json:
        print(records)
    else:
        printed(rows)
        print_comparisons(compared)
        print(f"tables: {folder / 'theory-rates.md'}; pictures: {', '.join(map(str, pictures))}")


def _writable(output: str) -> Path:
    """The folder, made and tried before minutes are spent on what shall go there."""
    from tempfile import TemporaryFile

    if not output:
        raise UserError("-o needs the name of a folder, got an empty one; write -o . for this one")
    folder = Path(output)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder) as file:
            file.write(b"tried")
    except OSError as error:
        reason = error.strerror or str(error)
        raise UserError(f"-o needs a folder that can be written, got {output} ({reason}); give another") from None
    return folder


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
