"""The tables of the guide to Shakespeare's plays, from the digests in results/text.

fedcm report RUNS --digests results/text      RUNS is the folder of the guide's runs
"""

from collections.abc import Mapping

from recorded import get_last, read_digests
from results_page.cells import write_table

from fedcm.reports.digest import Digest
from fedcm.reports.groups import get_algorithm_title

FOLDER = "text"
SHORT, LONG = 40, 100  # rounds


def list_runs(algorithm: str, model: str, rounds: int) -> list[Digest]:
    """Return the runs of an algorithm and a model with this many rounds."""
    return [
        run
        for run in read_digests(FOLDER)
        if (run.algorithm, run.experiment["model"]["name"], run.experiment["rounds"]) == (algorithm, model, rounds)
    ]


def _get_lr(run: Digest) -> float:
    return run.experiment["client"]["lr"]


def _write_perplexity(perplexity: float, best: float) -> str:
    text = f"{perplexity:.2f}"
    return f"**{text}**" if perplexity == best else text


def write_alphas() -> str:
    """Return the validation perplexity of FedCM for every α and η_l."""
    return _write_grid("fedcm", "α", ("algorithm", "alpha"))


def write_server_rates() -> str:
    """Return the validation perplexity of FedAdam for every rate of the server and of the clients."""
    return _write_grid("fedadam", "server.lr", ("server", "lr"))


def _write_grid(algorithm: str, symbol: str, setting: tuple[str, str]) -> str:
    runs = list_runs(algorithm, "lstm", SHORT)
    section, key = setting
    found = {(run.experiment[section][key], _get_lr(run)): get_last(run, "validation_perplexity") for run in runs}
    values, rates = (sorted(set(column)) for column in zip(*found, strict=True))
    best = min(found.values())
    rows = [
        [f"{symbol} = {value:g}", *(_write_perplexity(found[value, rate], best) for rate in rates)] for value in values
    ]
    return write_table(
        [get_algorithm_title(algorithm), f"η_l = {rates[0]:g}", *(f"{rate:g}" for rate in rates[1:])], rows
    )


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
    for algorithm in ("fedcm", "fedavg"):
        (run,) = list_runs(algorithm, "lstm", LONG)
        perplexities, accuracies = (run.curve.get_column(f"test_{name}") for name in ("perplexity", "accuracy"))
        rounds = run.curve.round
        rows.append(
            [
                f"{get_algorithm_title(algorithm)}, test perplexity",
                *(f"{value:.3f}" for value in perplexities if value is not None),
            ]
        )
        accuracy = [f"{100 * value:.2f}" for value in accuracies if value is not None]
        rows.append([f"{get_algorithm_title(algorithm)}, test accuracy in percent", *accuracy])
    return write_table(["after rounds", *map(str, rounds)], rows)
