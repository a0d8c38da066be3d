"""`fedcm theory …`: measure the convergence theorem."""

from typing import Annotated

import typer

from fedcm.cli.options import AsJson

theory_app = typer.Typer(no_args_is_help=True, help="Measure the convergence theorem of FedCM (docs/theory.md).")


@theory_app.callback()
def _theory() -> None:
    pass  # keeps `rates` a subcommand although it is the only one


@theory_app.command()
def rates(
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only",
            metavar="NAME",
            help="Run only the experiment NAME; if there is none, those whose names begin with NAME. May be repeated.",
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Use fewer replicates and leave out the longest horizon.")
    ] = False,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="DIR", help="Folder for tables and figures.")
    ] = "theory",
    as_json: AsJson = False,
) -> None:
    """Measure how fast the errors of FedCM, FedAvg, SCAFFOLD and FedDyn fall, and compare with the proven rates.

    Measures the error as a function of rounds, local steps, clients per round, all clients, α and σ_g, and fits slopes
    with 95 % intervals. Also compares FedAvg's error with FedCM's, where clients drift and in controls where they do
    not.

    Example: `fedcm theory rates --only strongly-convex --quick`
    """
    from fedcm.cli.terminal.theory_rates import print_rates, print_ratios, show_rates_progress
    from fedcm.theory.rates.measurement import estimate_cost
    from fedcm.theory.rates.output import create_folder, draw_figures, format_json, write_tables
    from fedcm.theory.rates.parallel import measure_experiments
    from fedcm.theory.rates.plan import select_experiments
    from fedcm.theory.rates.ratios import compare_algorithms

    experiments, folder = select_experiments(only or [], quick), create_folder(output)
    with show_rates_progress(sum(estimate_cost(point) for each in experiments for point in each.points)) as advance:
        rows = measure_experiments(experiments, quick, advance)
    tables, figures = write_tables(rows, folder), draw_figures(rows, folder)
    if as_json:
        print(format_json(rows))
    else:
        print_rates(rows)
        print_ratios(compare_algorithms(rows))
        print(f"tables: {tables}; figures: {', '.join(map(str, figures))}")
