"""Record the golden runs again and print what changed: `make anchors`."""

import json
import math
import tempfile
from pathlib import Path

from golden_runs import RECORD, RUNS, TOLERANCE, describe_machine, read_record
from play import run_golden


def main() -> None:
    old, new, kind = read_record(), {}, describe_machine()
    for name, run in RUNS.items():
        with tempfile.TemporaryDirectory() as folder:
            result = run_golden(run, Path(folder))
        before = old.get(name, {"bits": {}, "numbers": {}})
        changed = describe_change(before["numbers"], result.numbers)
        same_numbers = bool(before["numbers"] or not run.portable) and not changed
        # keep the bits of other kinds of CPU as long as no portable number changed
        others = before["bits"] if same_numbers and before["bits"].get(kind, result.bits) == result.bits else {}
        new[name] = {
            "bits": others | {kind: result.bits},
            "numbers": before["numbers"] if same_numbers else result.numbers,
        }
        print(f"{name}: {describe_result(name, old, before, result.bits, kind, changed)}", flush=True)
    for name in set(old) - set(RUNS):
        print(f"{name}: no longer a golden run")
    RECORD.write_text(json.dumps(new, indent=1) + "\n")


def describe_change(before: dict[str, float], after: dict[str, float]) -> list[str]:
    """List the metrics that differ by more than the tolerance, with both values."""
    return [
        f"{metric} {before.get(metric)} → {after.get(metric)}"
        for metric in sorted({*before, *after})
        if not math.isclose(before.get(metric, math.nan), after.get(metric, math.nan), rel_tol=TOLERANCE, abs_tol=1e-12)
    ]


def describe_result(name: str, old: dict, before: dict, bits: str | None, kind: str, changed: list[str]) -> str:
    if name not in old:
        return "new"
    if changed:
        return f"the numbers changed: {', '.join(changed)}"
    if kind not in before["bits"]:
        return f"unchanged; bits of {kind} added"
    return "unchanged" if before["bits"][kind] == bits else "the bits changed, but not the numbers"


if __name__ == "__main__":
    main()
