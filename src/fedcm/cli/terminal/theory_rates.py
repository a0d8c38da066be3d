"""What `fedcm theory rates` prints: progress, the table of exponents, FedAvg's error divided by FedCM's."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rich.box import SIMPLE
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table

from fedcm.api.progress import say
from fedcm.theory.rates.measurement import RateRow
from fedcm.theory.rates.ratios import AlgorithmComparison
from fedcm.theory.rates.slopes import TOLERANCE
from fedcm.theory.rates.tables import HEAD, format_row

_STYLES = {"does not show": "yellow", "cannot tell": "yellow", "diverged": "red"}


@contextmanager
def show_rates_progress(total: float) -> Iterator[Callable[[str, float], None]]:
    """Show progress on stderr: a live bar on a terminal, otherwise one line per experiment.

    Args:
        total: The cost of all points.

    Yields:
        A function that is called after every point, with the experiment's name and the point's cost.
    """
    console = Console(stderr=True)
    if console.is_terminal:
        columns = TextColumn("[bold]{task.description}"), BarColumn(None), TaskProgressColumn(), TimeRemainingColumn()
        with Progress(*columns, console=console) as progress:
            task = progress.add_task("rates", total=total)
            yield lambda name, cost: progress.update(task, description=name, advance=cost)
        return
    done, last = 0.0, ""

    def advance(name: str, cost: float) -> None:
        nonlocal done, last
        if name != last:
            say(f"{name} started, {done / total:.0%} of the total done")
        done, last = done + cost, name

    yield advance


def print_rates(rows: Sequence[RateRow]) -> None:
    """Print the measured exponents beside the proven ones."""
    table = Table(box=SIMPLE, pad_edge=False, padding=(0, 1, 0, 0))
    for heading in HEAD:
        right = heading in ("measured", "proven")
        table.add_column(heading, justify="right" if right else "left", no_wrap=heading != "case")
    for number, row in enumerate(rows):
        first = number == 0 or rows[number - 1].experiment.name != row.experiment.name
        cells = format_row(row)
        table.add_row(*(cells if first else ("", "", "", *cells[3:])), style=_STYLES.get(row.verdict))
    width = max(Console().width, 140)  # a table with wrapped lines is unreadable; a pager can show a wide one
    Console(width=width).print(table)
    print(
        f"exponents of a power law; verdicts allow ±{TOLERANCE}; in brackets: with the logarithm of η_g, which O hides"
    )


def print_ratios(comparisons: Sequence[AlgorithmComparison]) -> None:
    """Print FedAvg's error divided by FedCM's, with 95 % intervals."""
    for comparison in comparisons:
        experiment = comparison.fedcm.experiment
        points = zip(experiment.values, comparison.ratios, strict=True)
        ratios = ", ".join(
            f"{ratio.value:.2f} [{ratio.low:.2f}, {ratio.high:.2f}] at {experiment.varied} = {value:g}"
            for value, ratio in points
        )
        print(f"{experiment.name}: FedAvg's error divided by FedCM's is {ratios}")
