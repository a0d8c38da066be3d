"""The tables of the guide to Shakespeare's plays, from the digests in results/text.

fedcm report RUNS --digests results/text      RUNS is the folder of the guide's runs
"""

from collections.abc import Mapping

from recorded import read_digests
from results_page.cells import write_table

from fedcm.reports.digest import Digest

FOLDER = "text"
SHORT, LONG = 40, 100  # rounds
TITLES = {"fedcm": "FedCM", "fedavg": "FedAvg"}


def list_runs(algorithm: str, model: str, rounds: int) -> list[Digest]:
    """Return the runs of an algorithm and a model with this many rounds."""
    return [
        run
        for run in read_digests(FOLDER)
        if (run.algorithm, run.experiment["model"]["name"], run.experiment["rounds"]) == (algorithm, model, rounds)
    ]


def get_last(run: Digest, column: str) -> float:
    """Return the value of the last evaluation."""
    value = run.curve.get_column(column)[-1]
    assert value is not None
    return value


def _get_lr(run: Digest) -> float:
    return run.experiment["client"]["lr"]


def _write_perplexity(perplexity: float, best: float) -> str:
    text = f"{perplexity:.2f}"
    return f"**{text}**" if perplexity == best else text


def write_grid() -> str:
    """Return the validation perplexity of FedCM for every α and η_l."""
    runs = list_runs("fedcm", "lstm", SHORT)
    found = {
        (run.experiment["algorithm"]["alpha"], _get_lr(run)): get_last(run, "validation_perplexity") for run in runs
    }
    alphas, rates = (sorted(set(values)) for values in zip(*found, strict=True))
    best = min(found.values())
    rows = [[f"α = {alpha:g}", *(_write_perplexity(found[alpha, rate], best) for rate in rates)] for alpha in alphas]
    return write_table(["FedCM", f"η_l = {rates[0]:g}", *(f"{rate:g}" for rate in rates[1:])], rows)


def write_rates() -> str:
    """Return the validation perplexity of FedAvg for every η_l."""
    found: Mapping[float, float] = {
        _get_lr(run): get_last(run, "validation_perplexity") for run in list_runs("fedavg", "lstm", SHORT)
    }
    best = min(found.values())
    row = ["", *(_write_perplexity(found[rate], best) for rate in sorted(found))]
    return write_table(["FedAvg, η_l =", *(f"{rate:g}" for rate in sorted(found))], [row])


def write_result() -> str:
    """Return the test scores of the runs of 100 rounds."""
    rows, rounds = [], []
    for algorithm, title in TITLES.items():
        (run,) = list_runs(algorithm, "lstm", LONG)
        perplexities, accuracies = (run.curve.get_column(f"test_{name}") for name in ("perplexity", "accuracy"))
        rounds = run.curve.round
        rows.append([f"{title}, test perplexity", *(f"{value:.3f}" for value in perplexities if value is not None)])
        accuracy = [f"{100 * value:.2f}" for value in accuracies if value is not None]
        rows.append([f"{title}, test accuracy in percent", *accuracy])
    return write_table(["after rounds", *map(str, rounds)], rows)
