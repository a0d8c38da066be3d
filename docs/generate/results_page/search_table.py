"""The search among variants of FedCM: validation accuracies, from the digests in results/momentum-search."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean

from fedcm.reports.digest import Digest, read_digest
from results_page.cells import join_parts, write_table
from results_page.studies import ROOT

FOLDER = ROOT / "results" / "momentum-search"
ROUNDS = (10, 50, 100, 200, 300)
SOURCES = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100"}
LAST = 100  # rounds of the mean


def write_search_part(folder: Path = FOLDER) -> str:
    """Return a table of all variants for each dataset, the best first; a sentence if there are none."""
    runs = sorted((read_digest(path) for path in folder.glob("*.json")), key=lambda run: -_get_late_mean(run))
    if not runs:
        return "Not run yet: `PYTHONPATH=. fedcm compare search1.toml --runs-dir runs`."
    tables = [
        _write_source(title, [run for run in runs if run.experiment["data"]["source"] == source])
        for source, title in SOURCES.items()
    ]
    return join_parts(*[table for table in tables if table])


def _write_source(title: str, runs: Sequence[Digest]) -> str:
    if not runs:
        return ""
    header = ["α_t and rates", *(f"after {done}" for done in ROUNDS), f"mean of the last {LAST} rounds"]
    best = [max(_get_accuracy(run, done) for run in runs) for done in ROUNDS]
    rows = [_write_row(run, best, is_best=run is runs[0]) for run in runs]
    caption = f"{title}: validation accuracy in %, one seed, {len(runs)} variants; bold is the best of a column."
    return join_parts(caption, write_table(header, rows))


def _write_row(run: Digest, best: Sequence[float], *, is_best: bool) -> list[str]:
    values = [_get_accuracy(run, done) for done in ROUNDS]
    cells = [_format(value, value == top) for value, top in zip(values, best, strict=True)]
    return [describe_variant(run.experiment), *cells, _format(_get_late_mean(run), is_best)]


def describe_variant(experiment: Mapping[str, Mapping[str, float]]) -> str:
    """Return a variant's schedule of α, its average and its rates in words."""
    own, client = experiment["algorithm"], experiment["client"]
    alpha = f"{own['alpha']:g}"
    if own["adapt"]:
        words = [f"cosine, at least {alpha}"]
    elif own["power"]:
        scale = "" if own["scale"] == 1 else f"{own['scale']:g}·"
        words = [f"max({alpha}, {scale}(t+1)^−{own['power']:g})"]
    else:
        words = [f"{alpha}, which is {'FedAvg' if own['alpha'] == 1 else 'FedCM'}"]
    words += [f"average k = {own['average']:g}"] if own["average"] else []
    words += [f"η_l = {client['lr']:g}"] if client["lr"] != 0.1 else []
    words += ["no decay of η_l"] if client["lr_decay"] == 1 else []
    return ", ".join(words)


def _format(value: float, bold: bool) -> str:
    return f"**{100 * value:.2f}**" if bold else f"{100 * value:.2f}"


def _list_points(run: Digest) -> dict[int, float]:
    column = run.curve.get_column("validation_accuracy")
    return {done: value for done, value in zip(run.curve.round, column, strict=True) if value is not None}


def _get_accuracy(run: Digest, done: int) -> float:
    return _list_points(run)[done]


def _get_late_mean(run: Digest) -> float:
    return mean(value for done, value in _list_points(run).items() if done > ROUNDS[-1] - LAST)
