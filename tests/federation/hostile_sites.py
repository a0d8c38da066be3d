"""One hostile site of three, in this process: what each setting of the server survives.

    PYTHONPATH=tests:docs/generate python tests/federation/hostile_sites.py

measures the tables of docs/guides/robustness.md, in about ten minutes, writes the accuracies to
results/hostile-sites.json and puts the tables into the guide.
"""

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from sites_here import InProcessChannel, make_experiment, make_federated, write_kits

from fedcm.federation.frames import Arrays
from fedcm.federation.server.run import RunRequest, run_federation

Answer = tuple[Mapping[str, Any], Arrays]
HOSTILE = "b"


def flip(factor: float, first: int = 0) -> Any:
    def spoil(fields: Any, arrays: Any) -> Any:
        scale = -factor if fields["round"] >= first else 1.0
        return fields, {name: scale * array for name, array in arrays.items()}

    return spoil


def send_constant(first: int = 0) -> Any:
    def spoil(fields: Any, arrays: Any) -> Any:
        late = fields["round"] >= first
        return fields, {name: np.full_like(array, 1e3) if late else array for name, array in arrays.items()}

    return spoil


ATTACKS: dict[str, Any] = {
    "none": lambda fields, arrays: (fields, arrays),
    "sign flipped": flip(1.0),
    "sign flipped, three-fold": flip(3.0),
    "sign flipped from round 10": flip(1.0, 10),
    "sign flipped, three-fold from round 10": flip(3.0, 10),
    "constant 1e3 from round 10": send_constant(10),
    "sign flipped, examples overstated to 1e9": flip(1.0),
    "constant 1e3, examples overstated to 1e9": send_constant(),
}
UNPROTECTED = {"federation": {"norm_ratio": 0.0, "min_cosine": -1.0}}
SPLITS: dict[str, dict[str, Any]] = {
    "IID": {"kind": "iid", "clients": 3},
    "Dirichlet 0.5": {"kind": "dirichlet", "clients": 3, "concentration": 0.5},
}
DEFENCES: dict[str, dict[str, Any]] = {
    "no bound": UNPROTECTED,
    "defaults": {},
    "median": {"server": {"mean": "median"}},
    "geometric-median": {"server": {"mean": "geometric-median"}},
    "centred-clipping": {"server": {"mean": "centred-clipping"}},
}
BY_EXAMPLES: dict[str, dict[str, Any]] = {
    "no bound": {**UNPROTECTED, "server": {"weights": "examples"}},
    "defaults": {"server": {"weights": "examples"}},
    "max_examples": {"server": {"weights": "examples"}, "federation": {"max_examples": 600}},
}


class HostileChannel(InProcessChannel):
    """A channel to three sites, one of which may overstate its number of examples."""

    overstated = False

    def _answer(self, task: str, fields: dict[str, Any], arrays: Arrays, site: str) -> Any:
        answer = super()._answer(task, fields, arrays, site)
        if task == "describe" and site == HOSTILE and self.overstated and answer is not None:
            return {**answer[0], "examples": 10**9}, answer[1]
        return answer


def run_attacked(
    folder: Path,
    algorithm: str,
    attack: str,
    settings: dict[str, Any],
    rounds: int = 15,
    lines: list[str] | None = None,
) -> list[dict[str, Any]]:
    """Run one federation and return its metrics."""
    chosen = make_experiment(
        algorithm,
        rounds=rounds,
        **{
            "split": SPLITS["IID"],
            "model": {"name": "mlp", "hidden": [32]},
            "client": {"steps": 24, "batch_size": 20, "lr": 0.1},
            "evaluation": {"every": rounds},
            **settings,
        },
    )
    spoil = ATTACKS[attack]
    channel = HostileChannel(
        write_kits(chosen, folder),
        make_federated(chosen),
        lambda site, fields, arrays: spoil(fields, arrays) if site == HOSTILE else (fields, arrays),
    )
    channel.overstated = "overstated" in attack
    request = RunRequest(folder / "server", "r", "lead@example.org", resume=False)
    log = [] if lines is None else lines
    for _ in run_federation(request, make_federated(chosen), channel, log.append, lambda: False, lambda: None):
        pass
    return [json.loads(line) for line in (request.path / "metrics.jsonl").read_text().splitlines()]


def measure(algorithm: str, attack: str, settings: dict[str, Any]) -> float | str:
    """Return the test accuracy after the last round, or the name of the error that ended the run."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            return run_attacked(Path(folder), algorithm, attack, settings)[-1]["test_accuracy"]
        except Exception as error:
            return type(error).__name__


def measure_table(defences: Mapping[str, dict[str, Any]], attacks: list[str], split: str) -> list[dict[str, Any]]:
    """Return one row per attack and algorithm, with an accuracy for each defence."""
    rows = []
    for attack in attacks:
        for algorithm in ("fedavg", "fedcm"):
            own = {name: {**settings, "split": SPLITS[split]} for name, settings in defences.items()}
            results = {name: measure(algorithm, attack, settings) for name, settings in own.items()}
            rows.append({"site b": attack, "algorithm": algorithm, **results})
            print(rows[-1], flush=True)
    return rows


def main() -> None:
    counted = [attack for attack in ATTACKS if "overstated" not in attack]
    overstated = ["none", *(attack for attack in ATTACKS if "overstated" in attack)]
    tables = {f"hostile-sites, {split}": measure_table(DEFENCES, counted, split) for split in SPLITS}
    tables["hostile-sites, by examples"] = measure_table(BY_EXAMPLES, overstated, "IID")
    hostile_table.RESULTS.write_text(json.dumps(tables, indent=1) + "\n", encoding="utf-8")
    hostile_table.update_guide()


if __name__ == "__main__":
    import hostile_table

    main()
