"""Make the digest of a run from its folder. The files are only read: no code of the user is imported."""

import math
import tomllib
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fedcm.config.schema import read_choice
from fedcm.core.metrics import EVALUATED
from fedcm.core.participation import PARTICIPATION, Everyone
from fedcm.errors import UserError
from fedcm.reports.digest import (
    SYSTEM_COLUMNS,
    ClientResults,
    Curve,
    Diagnoses,
    Digest,
    LabelMix,
    OtherCell,
    ParticipationCounts,
    SiteResults,
)
from fedcm.runs.evidence.manifest import DamagedRunError
from fedcm.runs.evidence.verification import reject_damage
from fedcm.runs.folder import RunFolder
from fedcm.runs.summary import read_current_summary, read_traits, summarise
from fedcm.sweeps.cells import read_cells

Lines = Sequence[dict[str, Any]]  # of metrics.jsonl
FindLabelMix = Callable[[dict[str, Any], str], LabelMix | None]  # from an experiment and the checksum of its split
RedrawCohort = Callable[[Mapping[str, Any]], list[int] | None]  # from a line of metrics.jsonl; None if unknown
_MAX_UNEVALUATED = 200  # entries in the curve of a run that was never evaluated


def make_digest(folder: RunFolder, find_label_mix: FindLabelMix = lambda table, sha256: None) -> Digest:
    """Make the digest of a run, whether or not it is finished.

    Args:
        folder: The run.
        find_label_mix: Returns the label mix of the run's split, such as a `LabelMixFinder`.

    Raises:
        UserError: If a file of the run cannot be read, or is not what the run wrote when it ended.
    """
    folder.reject_wrong_kinds()
    reject_damage(folder)
    try:
        table = tomllib.loads(folder.experiment.read_text(encoding="utf-8"))
        lines, provenance = folder.read_metrics(), folder.try_read_provenance()
        targets = table.get("evaluation", {}).get("targets", [])
        split = provenance.get("data_sha256", {}).get("split")
        return Digest(
            name=folder.name,
            state=folder.read_outcome(),
            experiment=table,
            summary=read_current_summary(folder, lines) or summarise(lines, targets, read_traits(provenance)),
            versions=provenance.get("versions", {}),
            platform=provenance.get("platform", ""),
            cpu=provenance.get("cpu", {}),
            started=provenance.get("started", ""),
            participation=count_participation(lines, table.get("split", {}).get("clients"), make_cohort_redraw(table)),
            mix=find_label_mix(table, split) if split else None,
            curve=extract_curve(lines),
            diagnoses=extract_diagnoses(lines),
            client_results=_read_client_results(folder),
            step_counts=count_steps(lines),
            other_cells=[OtherCell.model_validate(cell) for cell in read_cells(folder.path)],
            sites=summarise_sites(lines, sorted(table.get("federation", {}).get("sites", []))),
        )
    except DamagedRunError:
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        reason = str(error) if isinstance(error, UserError) else f"{type(error).__name__} {str(error).splitlines()[0]}"
        raise UserError(f"the run {str(folder.path)!r} is damaged: {reason}") from None


def _read_client_results(folder: RunFolder) -> ClientResults | None:
    results = folder.read_client_results()
    if results is None:
        return None
    rounded = {
        key: [_round_to_six_digits(value) for value in results[key]] for key in ("values", "personal") if key in results
    }
    return ClientResults.model_validate(results | rounded)


def extract_curve(lines: Lines) -> Curve:
    """Keep the evaluated rounds; byte counts, seconds and the mean training loss include the rounds in between."""
    evaluated = [k for k, line in enumerate(lines) if any(_is_score(key) and line[key] is not None for key in line)]
    others = dict.fromkeys(
        key for k in evaluated for key in lines[k] if _is_score(key) and key not in Curve.model_fields
    )
    kept = evaluated or range(0, len(lines), max(1, math.ceil(len(lines) / _MAX_UNEVALUATED)))
    columns: dict[str, list[Any]] = {name: [] for name in Curve.model_fields if name != "scores"}
    down, up, seconds, simulated, first = 0, 0, 0.0, 0.0, 0
    for k in kept:
        between = lines[first : k + 1]
        first = k + 1
        down, up = down + sum(x["bytes_down"] for x in between), up + sum(x["bytes_up"] for x in between)
        seconds += math.fsum(x["seconds"] for x in between)
        simulated += math.fsum(x.get("simulated_seconds") or 0.0 for x in between)
        losses = [x["loss"] for x in between if x["loss"] is not None]
        entry = {
            "round": lines[k]["round"] + 1,
            "test_accuracy": _round_to_six_digits(lines[k].get("test_accuracy")),
            "test_loss": _round_to_six_digits(lines[k].get("test_loss")),
            "train_loss": _round_to_six_digits(math.fsum(losses) / len(losses)) if losses else None,
            "bytes_down": down,
            "bytes_up": up,
            "seconds": round(seconds, 3),
            "consensus_distance": _round_to_six_digits(_keep_finite(lines[k].get("consensus_distance"))),
            **_describe_system(between, simulated),
        }
        for name, value in entry.items():
            columns[name].append(value)
    for name in ("consensus_distance", *SYSTEM_COLUMNS):
        if all(value is None for value in columns[name]):
            del columns[name]
    scores = {name: [_round_to_six_digits(_keep_finite(lines[k].get(name))) for k in kept] for name in others}
    return Curve(**columns, scores=scores)


def _describe_system(between: Lines, simulated: float) -> dict[str, float | None]:
    """Return the columns about conditions, unequal work and privacy of some rounds; None where a run has none."""
    trained = [line for line in between if line["cohort"]]
    unequal = [line for line in trained if "steps_least" in line]
    timed = any("simulated_seconds" in line for line in between)
    influences = [own["share"] for line in between for own in line.get("influence", {}).values()]
    return {
        "simulated_seconds": round(simulated, 3) if timed else None,
        "available": _average([line["available"] for line in between if "available" in line]),
        "missed": _average([line["missed"] for line in between]) if timed else None,
        "steps": _average([line["steps"] for line in trained]) if unequal else None,
        "steps_least": min(line.get("steps_least", line["steps"]) for line in trained) if unequal else None,
        "hostile": _average([line["hostile"] for line in between if "hostile" in line]),
        "backdoor_success": _keep_finite(between[-1].get("backdoor_success")),
        "largest_influence": max(influences, default=None),
        "steps_most": max(line.get("steps_most", line["steps"]) for line in trained) if unequal else None,
        "epsilon": _round_to_six_digits(between[-1].get("epsilon")),
    }


def count_steps(lines: Lines) -> list[tuple[int, int]]:
    """Count how often clients did how many local steps in a round; empty if the counts are equal or not recorded."""
    times: Counter[int] = Counter()
    for line in lines:
        if "steps_least" in line and "steps_clients" not in line:
            return []  # a run of an earlier version
        pairs = line.get("steps_clients") or ([[round(line["steps"]), line["cohort"]]] if line["cohort"] else [])
        for steps, clients in pairs:
            times[steps] += clients
    return sorted(times.items()) if len(times) > 1 else []


def summarise_sites(lines: Lines, names: Sequence[str]) -> list[SiteResults]:
    """Summarise what the server of a federation recorded about each site; empty if no round has influences.

    Args:
        lines: The run's metrics.
        names: The site of each client.
    """
    if not any("influence" in line for line in lines):
        return []
    by_client = dict(enumerate(names))
    counted, missed, shortened = Counter[str](), Counter[str](), Counter[str]()
    shares: defaultdict[str, dict[int, float]] = defaultdict(dict)  # by site, then by the number of rounds done
    cosines: defaultdict[str, list[float]] = defaultdict(list)
    for line in lines:
        counted.update(by_client[client] for client in line["clients"])
        missed.update(line.get("missed", ()))  # a round without a cohort has none
        shortened.update(line.get("shortened", ()))
        for site, own in line.get("influence", {}).items():
            shares[site][line["round"] + 1] = own["share"]
            cosines[site].append(own["cosine"])
    return [
        SiteResults(
            site=site,
            counted=counted[site],
            missed=missed[site],
            shortened=shortened[site],
            mean_share=_average([*shares[site].values()]),
            largest_share=max(shares[site].values(), default=None),
            largest_share_round=max(shares[site], key=shares[site].__getitem__, default=None),
            lowest_cosine=min(cosines[site], default=None),
        )
        for site in sorted({*names, *missed, *shares})
    ]


def _average(values: list[float]) -> float | None:
    return _round_to_six_digits(math.fsum(values) / len(values)) if values else None


def extract_diagnoses(lines: Lines) -> Diagnoses:
    """Keep what diagnoses measured, without what they cost."""
    diagnosed = [line for line in lines if isinstance(line.get("diagnosis"), dict)]
    names = sorted({name for line in diagnosed for name in line["diagnosis"]} - {"seconds", "clients"})
    columns = {name: [_round_to_six_digits(line["diagnosis"].get(name)) for line in diagnosed] for name in names}
    return Diagnoses(round=[line["round"] + 1 for line in diagnosed], values=columns)


def count_participation(
    lines: Lines, population: int | None, redraw: RedrawCohort = lambda line: None
) -> ParticipationCounts:
    """Count how many clients took part how often.

    Args:
        lines: The run's metrics.
        population: Number of clients; None if unknown.
        redraw: Returns the cohort of a round whose line does not list its clients. If it returns None for any round,
            `times` stays empty.
    """
    took_part: Counter[int] = Counter()
    known = True
    for line in lines:
        clients = line["clients"] if "clients" in line else redraw(line)
        known = known and clients is not None
        took_part.update(clients or ())
    times = Counter(took_part.values()) if known else Counter()
    if known and population is not None and population > len(took_part):
        times[0] = population - len(took_part)
    return ParticipationCounts(
        population=population,
        times=sorted(times.items()),
        rounds=len(lines),
        mean_cohort=round(sum(line["cohort"] for line in lines) / len(lines), 4) if lines else 0.0,
        empty_rounds=sum(line["cohort"] == 0 for line in lines),
    )


def make_cohort_redraw(table: Mapping[str, Any]) -> RedrawCohort:
    """Return a function that draws the cohorts of an experiment's run again, from its seed.

    `metrics.jsonl` does not list the clients of large cohorts. If the data define the clients, the experiment does not
    contain their number, and only a cohort of all clients is known. With an availability or a deadline, cohorts also
    depend on files and on the sizes of clients, and are not drawn again; with `privacy.secret` they depend on a key.
    """
    population = table.get("split", {}).get("clients")

    def redraw(line: Mapping[str, Any]) -> list[int] | None:
        if "availability" in table or "stragglers" in table or table.get("privacy", {}).get("secret"):
            return None
        chosen = read_choice(PARTICIPATION, table.get("participation", {"kind": "everyone"}), "kind", "participation")
        clients = line["cohort"] if isinstance(chosen, Everyone) else population
        if clients is None:
            return None
        cohort = chosen.cohort(clients, table["seed"], line["round"]).tolist()
        return cohort if len(cohort) == line["cohort"] else None

    return redraw


def _is_score(key: str) -> bool:
    return key.startswith(tuple(f"{which}_" for which in EVALUATED))


def _keep_finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _round_to_six_digits(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.6g}")
