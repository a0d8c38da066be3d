"""From a run's folder to its digest. Nothing of the user's own code is imported for it: the files are only read."""

import json
import math
import tomllib
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from fedcm.errors import UserError
from fedcm.reports.cohorts import Redraw, redraw_from
from fedcm.reports.digest import Curve, Diagnoses, Digest, Mix, OtherCell, Participation
from fedcm.runs.folder import RunFolder
from fedcm.runs.summary import bring_up_to_date, read_points, summarise
from fedcm.sweeps.cells import read_cells

Lines = Sequence[dict[str, Any]]
MixOf = Callable[[dict[str, Any], str], Mix | None]  # of an experiment's table, and the checksum of its split
_UNTESTED = 200  # entries at most in the curve of a run that was never evaluated


def condensed(folder: RunFolder, mix_of: MixOf = lambda table, sha256: None) -> Digest:
    """The run as far as it is; one that cannot be read is refused in a sentence."""
    try:
        table = tomllib.loads(folder.experiment.read_text(encoding="utf-8"))
        lines, provenance = folder.read_metrics(), _provenance(folder)
        running, summary = folder.is_locked(), folder.read_summary()
        targets = table.get("evaluation", {}).get("targets", [])
        split = provenance.get("data_sha256", {}).get("split")
        return Digest(
            name=folder.name,
            state=summary["outcome"] if summary else "running" if running else "stopped",
            experiment=table,
            summary=bring_up_to_date(summary, read_points(lines, "test_accuracy"), read_points(lines, "test_loss"))
            if summary
            else summarise(lines, targets),
            versions=provenance.get("versions", {}),
            platform=provenance.get("platform", ""),
            cpu=provenance.get("cpu", {}),
            started=provenance.get("started", ""),
            participation=participation(lines, table.get("split", {}).get("clients"), redraw_from(table)),
            mix=mix_of(table, split) if split else None,
            curve=thinned(lines),
            diagnoses=diagnoses(lines),
            other_cells=[OtherCell.model_validate(cell) for cell in read_cells(folder.path)],
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        reason = str(error) if isinstance(error, UserError) else f"{type(error).__name__} {str(error).splitlines()[0]}"
        raise UserError(f"the run {str(folder.path)!r} is damaged: {reason}") from None


def thinned(lines: Lines) -> Curve:
    """The evaluated rounds; sums and the mean training loss take in the rounds between."""
    tested = [k for k, line in enumerate(lines) if line.get("test_loss") is not None or _tested(line)]
    kept = tested or range(0, len(lines), max(1, math.ceil(len(lines) / _UNTESTED)))
    columns: dict[str, list[Any]] = {name: [] for name in Curve.model_fields}
    down, up, seconds, first = 0, 0, 0.0, 0
    for k in kept:
        between = lines[first : k + 1]
        first = k + 1
        down, up = down + sum(x["bytes_down"] for x in between), up + sum(x["bytes_up"] for x in between)
        seconds += math.fsum(x["seconds"] for x in between)
        losses = [x["loss"] for x in between if x["loss"] is not None]
        entry = {
            "round": lines[k]["round"] + 1,
            "test_accuracy": _rounded(lines[k].get("test_accuracy")),
            "test_loss": _rounded(lines[k].get("test_loss")),
            "train_loss": _rounded(math.fsum(losses) / len(losses)) if losses else None,
            "bytes_down": down,
            "bytes_up": up,
            "seconds": round(seconds, 3),
        }
        for name, value in entry.items():
            columns[name].append(value)
    return Curve(**columns)


def diagnoses(lines: Lines) -> Diagnoses:
    """As they were measured; what they cost is no part of what they found."""
    diagnosed = [line for line in lines if isinstance(line.get("diagnosis"), dict)]
    names = sorted({name for line in diagnosed for name in line["diagnosis"]} - {"seconds", "clients"})
    found = {name: [_rounded(line["diagnosis"].get(name)) for line in diagnosed] for name in names}
    return Diagnoses(round=[line["round"] + 1 for line in diagnosed], found=found)


def participation(lines: Lines, population: int | None, redraw: Redraw = lambda line: None) -> Participation:
    """How many clients took part how many times. A round that names nobody is redrawn; if that cannot be done, `times`
    stays empty."""
    took_part: Counter[int] = Counter()
    known = True
    for line in lines:
        clients = line["clients"] if "clients" in line else redraw(line)
        known = known and clients is not None
        took_part.update(clients or ())
    times = Counter(took_part.values()) if known else Counter()
    if known and population is not None and population > len(took_part):
        times[0] = population - len(took_part)
    return Participation(
        population=population,
        times=sorted(times.items()),
        rounds=len(lines),
        mean_cohort=round(sum(line["cohort"] for line in lines) / len(lines), 4) if lines else 0.0,
        empty_rounds=sum(line["cohort"] == 0 for line in lines),
    )


def _tested(line: dict[str, Any]) -> bool:
    return line.get("test_accuracy") is not None


def _rounded(value: float | None) -> float | None:
    """Six figures: more than any eye or table reads."""
    return None if value is None else float(f"{value:.6g}")


def _provenance(folder: RunFolder) -> dict[str, Any]:
    try:
        provenance = json.loads(folder.provenance.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    return provenance if isinstance(provenance, dict) else {}
