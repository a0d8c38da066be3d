"""Tables of `fedcm tune`: the plan, and the result of each algorithm."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.box import SIMPLE
from rich.markup import escape
from rich.table import Table

from fedcm.cli.terminal.tables import print_table
from fedcm.config.toml_values import write_value
from fedcm.reports.scores import choose_summary_metric, describe_metrics, make_scores, name_mean_column
from fedcm.system.formatting import format_count, format_estimate
from fedcm.tuning.estimate import TuningEstimate
from fedcm.tuning.objective import LOSS
from fedcm.tuning.winners import Winner


def describe_settings(settings: Mapping[str, Any]) -> str:
    """Describe the tuned settings of a trial.

    >>> describe_settings({"client.lr": 0.1, "algorithm.alpha": 0.05})
    'client.lr=0.1 algorithm.alpha=0.05'
    """
    return " ".join(f"{path}={write_value(value)}" for path, value in settings.items())


def print_tuning_plan(estimates: Sequence[TuningEstimate], cores: int) -> None:
    """Print the space, the number of runs and the estimated time of each algorithm."""
    table = Table(box=SIMPLE, pad_edge=False, padding=(0, 1, 0, 0), show_footer=True)
    runs = sum(one.trials + one.seeds for one in estimates)
    total = sum(one.seconds for one in estimates)
    table.add_column("algorithm", no_wrap=True, footer=format_count(runs, "run"))
    table.add_column("space", overflow="fold")
    trials, seeds = (sum(getattr(one, name) for one in estimates) for name in ("trials", "seeds"))
    for heading, footer in (("trials", str(trials)), ("seeds", str(seeds)), ("time", format_estimate(total))):
        table.add_column(heading, justify="right", no_wrap=True, footer=footer)
    for one in estimates:
        space = "\n".join(f"{path}={domain}" for path, domain in one.space.items())
        table.add_row(
            escape(one.algorithm), escape(space), str(one.trials), str(one.seeds), format_estimate(one.seconds)
        )
    print_table(table)
    together = format_estimate(total / cores)
    print(
        f"at most about {together} on {format_count(cores, 'core')}, estimated from a few steps on one core, without "
        "the start of each process; pruning saves a part of it"
    )


def print_tuning_result(winners: Sequence[Winner]) -> None:
    """Print the best setting of each algorithm, its validation score and its test score over further seeds."""
    summaries = {winner.algorithm: winner.list_summaries() for winner in winners}
    metric = choose_summary_metric(summary for own in summaries.values() for summary in own)
    scores = {name: make_scores(own, metric) for name, own in summaries.items()}
    table = Table(box=SIMPLE, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("algorithm", no_wrap=True)
    table.add_column("best settings", overflow="fold")
    for heading in ("validation", "test", "seeds", "trials", "pruned", "diverged", "rounds"):
        table.add_column(heading, justify="right", no_wrap=True)
    for winner in winners:
        one, best = scores[winner.algorithm], winner.best
        states = [trial.state for trial in winner.trials]
        table.add_row(
            escape(winner.algorithm),
            "no trial has finished" if best is None else escape(describe_settings(best.settings).replace(" ", "\n")),
            "–" if best is None or best.score is None else (best.metric or LOSS).format(best.score),
            one.divergence or one.format("mean_last"),
            str(len(summaries[winner.algorithm])),
            *(str(count) for count in (len(states), states.count("pruned"), states.count("diverged"), winner.rounds)),
        )
    print_table(table)
    _, meaning = name_mean_column(scores.values())
    kind = next((winner.best.metric for winner in winners if winner.best is not None), None) or LOSS
    better = "" if kind.higher_is_better else ", lower is better"
    print(
        f"validation: {kind.title} of the best trial{better}; test: {describe_metrics(scores.values())}, "
        f"mean ± standard deviation over further seeds ({meaning.partition(': ')[2]}); rounds: of all trials"
    )
