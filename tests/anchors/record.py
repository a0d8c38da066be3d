"""Record the golden runs anew, and say what changed: `make anchors`."""

import json
import math
import tempfile
from pathlib import Path

from golden_runs import RECORD, RUNS, TOLERANCE, machine_kind, read_record
from play import play


def main() -> None:
    old, new, kind = read_record(), {}, machine_kind()
    for name, run in RUNS.items():
        with tempfile.TemporaryDirectory() as folder:
            found = play(run, Path(folder))
        before = old.get(name, {"bits": {}, "numbers": {}})
        moved = describe_change(before["numbers"], found.numbers)
        same_numbers = bool(before["numbers"] or not run.portable) and not moved
        # another kind of CPU has other bits: they stay on record while nothing that is portable has changed
        others = before["bits"] if same_numbers and before["bits"].get(kind, found.bits) == found.bits else {}
        new[name] = {
            "bits": others | {kind: found.bits},
            "numbers": before["numbers"] if same_numbers else found.numbers,
        }
        print(f"{name}: {say(name, old, before, found.bits, kind, moved)}", flush=True)
    for name in set(old) - set(RUNS):
        print(f"{name}: no longer a golden run")
    RECORD.write_text(json.dumps(new, indent=1) + "\n")


def describe_change(before: dict[str, float], after: dict[str, float]) -> list[str]:
    """The metrics that differ by more than the tolerance, with both values."""
    return [
        f"{metric} {before.get(metric)} → {after.get(metric)}"
        for metric in sorted({*before, *after})
        if not math.isclose(before.get(metric, math.nan), after.get(metric, math.nan), rel_tol=TOLERANCE, abs_tol=1e-12)
    ]


def say(name: str, old: dict, before: dict, bits: str | None, kind: str, moved: list[str]) -> str:
    if name not in old:
        return "new"
    if moved:
        return f"the numbers changed: {', '.join(moved)}"
    if kind not in before["bits"]:
        return f"unchanged; bits of {kind} added"
    return "unchanged" if before["bits"][kind] == bits else "the bits changed, the numbers did not"


if __name__ == "__main__":
    main()
