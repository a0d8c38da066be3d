"""Write the tables of docs/guides/privacy.md from the digests of experiments/privacy-*.toml.

fedcm report runs/privacy-cifar10 --digests results/privacy-cifar10
python docs/generate/privacy_table.py results/privacy-cifar10                 prints the table
python docs/generate/privacy_table.py results/privacy-cifar10 --update        puts it into the guide
"""

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

from marked_text import replace_marked

GUIDE = Path(__file__).parents[1] / "guides" / "privacy.md"
NAMES = {"fedcm": "FedCM", "fedavg": "FedAvg", "fedadam": "FedAdam"}
COLUMNS = {"2": "ε = 2", "8": "ε = 8", "inf": "no noise"}


def write_table(folder: Path) -> str:
    """Return a Markdown table of the last test accuracies in %: mean ± standard deviation over seeds."""
    found: dict[tuple[str, str], list[float]] = {}
    for path in sorted(folder.glob("*.json")):
        digest: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        key = digest["summary"]["algorithm"], digest["experiment"]["cell"]["labels"]["epsilon"]
        found.setdefault(key, []).append(100 * digest["curve"]["test_accuracy"][-1])
    lines = [f"| algorithm | {' | '.join(COLUMNS.values())} |", "|---|" + "---:|" * len(COLUMNS)]
    for algorithm, name in NAMES.items():
        cells = [_format(algorithm, epsilon, found) for epsilon in COLUMNS]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _format(algorithm: str, epsilon: str, found: dict[tuple[str, str], list[float]]) -> str:
    values = found[algorithm, epsilon]
    text = f"{statistics.mean(values):.2f} ± {statistics.stdev(values):.2f}"
    best = max(NAMES, key=lambda one: statistics.mean(found[one, epsilon]))
    return f"**{text}**" if algorithm == best else text


def main() -> None:
    """Print the table of a folder of digests, or put it into the guide."""
    parser = argparse.ArgumentParser()
    parser.add_argument("digests", type=Path)
    parser.add_argument("--update", action="store_true")
    arguments = parser.parse_args()
    table = write_table(arguments.digests)
    if not arguments.update:
        print(table)
        return
    page = GUIDE.read_text(encoding="utf-8")
    GUIDE.write_text(replace_marked(page, arguments.digests.name, table), encoding="utf-8")


if __name__ == "__main__":
    main()
