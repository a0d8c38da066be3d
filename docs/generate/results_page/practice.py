"""The generated parts of docs/in-practice.md: leads, slow start, α by rounds, costs, clipping and learning rates."""

import statistics
from collections.abc import Iterator

import torch

from fedcm.algorithms import ALGORITHMS
from fedcm.core.contract.costs import measure_costs
from fedcm.reports.digest import Digest
from fedcm.reports.entry import Entry
from fedcm.reports.groups import get_algorithm_title
from fedcm.reports.metric import ACCURACY
from fedcm.system.formatting import format_bytes
from results_page.cells import (
    NOT_PLANNED,
    NOT_RUN,
    explain_marks,
    format_interval,
    format_mean,
    join_parts,
    mark_cpu,
    write_table,
)
from results_page.difference import describe_seeds, explain_pairs, format_lead
from results_page.effects import GRIDS, list_closest
from results_page.round_tables import get_accuracy, list_best_alphas
from results_page.setting_tables import (
    BASE_COLUMN,
    list_decay_runs,
    list_setting_runs,
    write_decay_table,
    write_setting_table,
)
from results_page.studies import ROOT
from results_page.study_runs import Results, StudyCell

_START_ROUNDS = (10, 50, 100)
_PAPER_ALGORITHMS = ("fedcm", "fedavg", "fedadam", "scaffold", "feddyn")
_PARAMS = 1000
_BENCHMARKS = ROOT / "benchmarks" / "RESULTS.md"


def write_leads(results: Results) -> str:
    """Return FedCM against the best other algorithm in every cell."""
    effects = list_closest(results)
    rows = [
        (
            effect.where,
            format_mean(effect.difference.own),
            f"{get_algorithm_title(effect.other)} {format_mean(effect.difference.other)}",
            format_lead(effect.difference),
            format_interval(effect.difference.contrast),
            describe_seeds(effect.difference),
        )
        for effect in effects
    ]
    header = ("cell", "FedCM", "best other", "difference in points", "95 % interval", "seeds")
    return join_parts(write_table(header, rows), explain_pairs(effect.difference for effect in effects))


def find_lasting_lead(own: Digest, other: Digest) -> int | None:
    """Return the first evaluated round from which a run stays ahead of another; None if it is not ahead at the end."""
    first, second = (
        {done: value for done, value in zip(run.curve.round, run.curve.test_accuracy, strict=True) if value is not None}
        for run in (own, other)
    )
    lead = None
    for done in sorted(first.keys() & second.keys(), reverse=True):
        if first[done] <= second[done]:
            return lead
        lead = done
    return lead


def write_start(results: Results) -> str:
    """Return the accuracy of FedCM and FedAvg in the first rounds, and from when on FedCM is ahead."""
    rows = []
    for name in GRIDS:
        runs = results[name]
        for own, other in _list_pairs(runs.cells):
            seeds = {run.seed for run in own.runs} & {run.seed for run in other.runs}
            if not seeds:
                continue
            pair = [Entry(tuple(run for run in cell.runs if run.seed in seeds)) for cell in (own, other)]
            where = ", ".join(filter(None, (runs.study.title, own.column, f"{own.rounds} rounds")))
            values = [" / ".join(_format(get_accuracy(entry, round)) for entry in pair) for round in _START_ROUNDS]
            leads = [_describe_lasting_lead(*runs) for runs in zip(pair[0].runs, pair[1].runs, strict=True)]
            rows.append([where, *values, ", ".join(leads), str(len(seeds))])
    header = ["cell", *(f"after {round}" for round in _START_ROUNDS), "FedCM stays ahead from round", "n"]
    text = (
        "Test accuracy in % of FedCM / FedAvg, means over the n seeds that both have. The round from which FedCM stays "
        "ahead is given for each seed."
    )
    return join_parts(text, write_table(header, rows))


def _list_pairs(cells: tuple[StudyCell, ...]) -> Iterator[tuple[StudyCell, StudyCell]]:
    for own in cells:
        for other in cells:
            same = (own.column, own.rounds) == (other.column, other.rounds)
            if same and (own.algorithm, other.algorithm) == ("fedcm", "fedavg") and own.runs and other.runs:
                yield own, other


def _describe_lasting_lead(own: Digest, other: Digest) -> str:
    for name, run in (("FedCM", own), ("FedAvg", other)):
        if run.divergence_round is not None:
            return f"{name} diverged"
    lead = find_lasting_lead(own, other)
    return "never" if lead is None else str(lead)


def _format(value: float | None) -> str:
    return NOT_PLANNED if value is None else ACCURACY.format(value)


def write_alphas(results: Results) -> str:
    """Return the best α after each number of rounds, and those that may be as good."""
    runs, seeds_entry = results["table3"], results["table1"].get_entry("fedcm", BASE_COLUMN)
    deviation = seeds_entry.deviation() if seeds_entry else None
    if deviation is None:
        return NOT_RUN
    rows = [
        (str(best.rounds), best.alpha, ACCURACY.format(best.accuracy), ", ".join(best.close) or NOT_PLANNED)
        for best in list_best_alphas(runs, deviation)
    ]
    seeds = sorted({len(cell.runs) for cell in runs.cells if cell.runs})
    text = (
        f"Mean test accuracy in % over the last fifth of the rounds, best of α = {', '.join(runs.list_columns())}; "
        f"n = {', '.join(map(str, seeds))}. Over the seeds of Table 1, FedCM's standard deviation is "
        f"{deviation:.2f} points."
    )
    header = ("rounds", "best α", "accuracy", f"α less than {deviation:.2f} points behind")
    return join_parts(write_table(header, rows, texts=0), text)


def write_costs(results: Results) -> str:
    """Return what a client sends and keeps, in vectors of the model's size and in bytes."""
    rows = []
    for name in _PAPER_ALGORITHMS:
        algorithm = ALGORITHMS[name]()
        costs = measure_costs(algorithm)
        server = sum(field.numel() // _PARAMS for field in algorithm.init_server(torch.zeros(_PARAMS)))
        cell = results["table1"].find(name, BASE_COLUMN)
        sent = [_format_sent(cell, key) for key in ("bytes_down", "bytes_up")]
        vectors = map(str, (costs.down, costs.up, costs.client_state, server))
        rows.append([get_algorithm_title(name), *vectors, *sent])
    header = (
        "algorithm",
        "down",
        "up",
        "kept by a client",
        "kept by the server",
        "bytes down, LeNet",
        "bytes up, LeNet",
    )
    text = "Vectors of the model's size per client and round, and the bytes that the runs of Table 1 recorded for them:"
    return join_parts(text, write_table(header, rows))


def _format_sent(cell: StudyCell | None, key: str) -> str:
    runs = [run for run in cell.runs if run.rounds_done] if cell else []
    if not runs:
        return NOT_PLANNED
    sent = [run.summary[key] / (run.participation.mean_cohort * run.participation.rounds) for run in runs]
    return format_bytes(statistics.fmean(sent))


def write_times() -> str:
    """Return the measured time of a round of FedCM against one of FedAvg, from the benchmark's own table."""
    section = _BENCHMARKS.read_text(encoding="utf-8").partition("## FedCM's overhead")[2].partition("\n## ")[0]
    lines = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| ")]
    rows = [(cells[0], cells[1].partition(" ")[0], cells[2]) for cells in lines[1:]]
    return write_table(("model", "time of a round, FedCM / FedAvg", "quartiles"), rows)


def write_clipping(results: Results) -> str:
    """Return FedCM and the others with and without clipping."""
    table = write_setting_table(results, ("clip 10",))
    plain, clipped = (
        results["table3"].get_entry("fedcm", "0.1"),
        results["one-setting"].get_entry("fedcm", "alpha 0.1, clip 10"),
    )
    if plain is None or clipped is None:
        return table
    values = [f"{format_mean(entry)}{mark_cpu(entry.runs)}" for entry in (plain, clipped)]
    more = f"FedCM with α = 0.1 has {values[0]} without clipping and {values[1]} with it."
    shown = (*list_setting_runs(results, ("clip 10",)), *plain.runs, *clipped.runs)
    return explain_marks(join_parts(table, more), shown)


def write_rates(results: Results) -> str:
    """Return all algorithms with other client learning rates."""
    changes = ("lr 0.03", "lr 0.3", "lr 1")
    return explain_marks(write_setting_table(results, changes), list_setting_runs(results, changes))


def write_decay(results: Results) -> str:
    """Return where weight decay acts."""
    return explain_marks(write_decay_table(results), list_decay_runs(results))
