"""Methods that were tuned with an equal budget: the best settings, and FedCM against the others with further seeds.

results/tuned has the record of `fedcm tune` (trials.jsonl) and the digests of the winners' runs.
"""

from collections.abc import Sequence
from pathlib import Path

from fedcm.reports.digest import Digest, read_digest
from fedcm.reports.entry import Entry
from fedcm.reports.groups import get_algorithm_title
from fedcm.reports.metric import ACCURACY
from fedcm.system.formatting import flatten_table
from fedcm.tuning.trials import TrialLog, TuningTrial, find_best
from results_page.cells import (
    NOT_PLANNED,
    NOT_RUN,
    describe_rounds,
    explain_marks,
    format_entry,
    format_interval,
    join_parts,
    mark_cpu,
    round_mean,
    write_table,
)
from results_page.cells import find_best as find_highest
from results_page.difference import Difference, describe_seeds, explain_pairs, format_lead
from results_page.studies import ROOT
from results_page.study_runs import is_over

FOLDER = ROOT / "results" / "tuned"
EXPERIMENT = ROOT / "experiments" / "mini" / "tuned.toml"
_OWN = "fedcm"
_HEADER = (
    "algorithm",
    "best settings",
    "validation, %",
    "test, %",
    "trials",
    "FedCM minus it",
    "95 % interval",
    "seeds",
)


def write_tuned_part(folder: Path = FOLDER) -> str:
    """Return the best settings of every method and its accuracy, the best first; a sentence without trials."""
    log = TrialLog(folder / "trials.jsonl")
    if not log.trials:
        return f"Not run yet: `{read_command()}`."
    entries = _read_entries(folder, log)
    own, highest = entries.get(_OWN), find_highest(entries.values())
    differences = {name: Difference(own, entry) for name, entry in entries.items() if own and name != _OWN}
    names = sorted({trial.algorithm for trial in log.trials}, key=lambda name: _rank(entries.get(name)))
    rows = [
        [*_write_settings(name, log.list_trials(name), entries.get(name), highest), *_compare(differences.get(name))]
        for name in names
    ]
    caption = (
        f"`{read_command()}`. Validation: accuracy of the best trial, of one seed. Test: "
        f"{describe_rounds(entries.values())}, mean ± standard deviation over n further seeds."
    )
    runs = [run for entry in entries.values() for run in entry.runs]
    table = join_parts(write_table(_HEADER, rows, texts=2), explain_pairs(differences.values()))
    return join_parts(caption, explain_marks(table, runs), _count_trials(log.trials))


def read_command() -> str:
    """Return the command of the comparison, from the head of its experiment."""
    lines = EXPERIMENT.read_text(encoding="utf-8").splitlines()
    return next(line.strip("# ") for line in lines if line.startswith("#   fedcm tune"))


def _read_entries(folder: Path, log: TrialLog) -> dict[str, Entry]:
    """Return the runs of the winners with further seeds, by algorithm.

    Raises:
        ValueError: If a run is not over, or has not the settings of the best trial.
    """
    runs: dict[str, list[Digest]] = {}
    for path in sorted(folder.glob("best-*.json")):
        run = read_digest(path)
        best = find_best(log.list_trials(run.algorithm))
        own = flatten_table(run.experiment)
        if not is_over(run) or best is None or any(own.get(key) != value for key, value in best.settings.items()):
            raise ValueError(f"{path.name} is not a run with the settings of the best trial of {run.algorithm}")
        runs.setdefault(run.algorithm, []).append(run)
    return {name: Entry(tuple(own)) for name, own in runs.items()}


def _rank(entry: Entry | None) -> float:
    mean = round_mean(entry)
    return 0.0 if mean is None else -mean


def _write_settings(
    name: str, trials: Sequence[TuningTrial], entry: Entry | None, highest: float | None
) -> tuple[str, ...]:
    best = find_best(trials)
    settings = ", ".join(f"{path} = {value}" for path, value in best.settings.items()) if best else NOT_PLANNED
    validation = ACCURACY.format(100 * best.score) if best and best.score is not None else NOT_PLANNED
    return (get_algorithm_title(name), settings, validation, _format_test(entry, highest), str(len(trials)))


def _compare(difference: Difference | None) -> tuple[str, ...]:
    if difference is None:
        return (NOT_PLANNED, NOT_PLANNED, NOT_PLANNED)
    return (format_lead(difference), format_interval(difference.contrast), describe_seeds(difference))


def _format_test(entry: Entry | None, highest: float | None) -> str:
    return f"{format_entry(entry, highest)}{mark_cpu(entry.runs)}" if entry else NOT_RUN


def _count_trials(trials: Sequence[TuningTrial]) -> str:
    states = [trial.state for trial in trials]
    return (
        f"Of {len(trials)} trials, {states.count('pruned')} were stopped early because they were behind, and "
        f"{states.count('diverged')} diverged. `results/tuned/trials.jsonl` has all of them."
    )
