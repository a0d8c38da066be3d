"""Write the tables and the picture of docs/guides/robustness.md from the runs of experiments/robust-*.toml.

python docs/generate/robustness_table.py runs/robust-digits                 prints the tables
python docs/generate/robustness_table.py runs/robust-digits --update        puts them into the guide
"""

import argparse
import json
import math
from pathlib import Path
from typing import Any

GUIDE = Path(__file__).parents[1] / "guides" / "robustness.md"
BEGIN, END = "<!-- tables -->", "<!-- end of tables -->"
NAMES = {"fedavg": "FedAvg", "fedcm": "FedCM"}
ALGORITHMS = tuple(NAMES)
Cell = tuple[float | None, float | None]  # accuracy and success of a backdoor, each None if it is missing


def read_cells(folder: Path) -> dict[tuple[str, str, str], Cell]:
    """Return accuracy and success by (algorithm, attack, mean), after the last round; accuracy None if it diverged."""
    cells: dict[tuple[str, str, str], Cell] = {}
    for path in sorted(folder.glob("*/summary.json")):
        summary: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        lines = (path.parent / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        name = path.parent.name.split("-seed")[0]
        attack, mean = _split_labels(name.split("-", 2)[2], summary["algorithm"])
        diverged = summary["outcome"] != "finished"
        last: dict[str, Any] = {} if diverged or not lines else json.loads(lines[-1])
        cells[summary["algorithm"], attack, mean] = (last.get("test_accuracy"), last.get("backdoor_success"))
    return cells


ATTACKS = ("none", "sign-flip", "scaled", "noise", "label-flip", "alie", "ipm", "backdoor")


def _split_labels(text: str, algorithm: str) -> tuple[str, str]:
    """Split `sign-flip-geometric-median-fedcm` into attack and mean."""
    text = text.removesuffix(f"-{algorithm}")
    attack = next(one for one in ATTACKS if text.startswith(f"{one}-"))
    return attack, text.removeprefix(f"{attack}-")


MEANS = ("plain", "clipped", "centred-clipping", "median", "trimmed", "geometric-median", "krum", "bulyan")


def write_table(cells: dict[tuple[str, str, str], Cell], algorithm: str) -> str:
    """Return a Markdown table of one algorithm: accuracy in %, and for the backdoor its success in brackets."""
    lines = [f"| attack | {' | '.join(MEANS)} |", f"|---|{'---|' * len(MEANS)}"]
    for attack in ATTACKS:
        row = [_format(cells.get((algorithm, attack, mean))) for mean in MEANS]
        lines.append(f"| {attack} | {' | '.join(row)} |")
    return "\n".join(lines)


def _format(cell: Cell | None) -> str:
    if cell is None:
        return "–"
    accuracy, success = cell
    text = "diverged" if accuracy is None else f"{100 * accuracy:.0f}"
    return text if success is None else f"{text} ({100 * success:.0f})"


def draw(cells: dict[tuple[str, str, str], Cell], path: Path) -> None:
    """Draw one panel per algorithm: a colour for each accuracy."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, panels = plt.subplots(1, len(ALGORITHMS), figsize=(11, 4.2), layout="constrained", sharey=True)
    for panel, algorithm in zip(panels, ALGORITHMS, strict=True):
        found = [[cells.get((algorithm, attack, mean), (None, None))[0] for mean in MEANS] for attack in ATTACKS]
        values = [[math.nan if value is None else 100 * value for value in row] for row in found]
        picture = panel.imshow(values, vmin=10, vmax=95, cmap="viridis", aspect="auto")
        panel.set_xticks(range(len(MEANS)), MEANS, rotation=40, ha="right")
        panel.set_yticks(range(len(ATTACKS)), ATTACKS)
        panel.set_title(NAMES[algorithm])
        for y, row in enumerate(values):
            for x, value in enumerate(row):
                text = "–" if math.isnan(value) else f"{value:.0f}"
                panel.text(x, y, text, ha="center", va="center", color="white" if value < 65 else "black")
    figure.colorbar(picture, ax=panels, label="test accuracy in %")
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("runs", type=Path)
    parser.add_argument("--update", action="store_true")
    arguments = parser.parse_args()
    cells = read_cells(arguments.runs)
    tables = "\n\n".join(f"{NAMES[algorithm]}:\n\n{write_table(cells, algorithm)}" for algorithm in ALGORITHMS)
    if not arguments.update:
        print(tables)
        return
    before, _, rest = GUIDE.read_text(encoding="utf-8").partition(BEGIN)
    GUIDE.write_text(f"{before}{BEGIN}\n\n{tables}\n\n{END}{rest.partition(END)[2]}", encoding="utf-8")
    draw(cells, GUIDE.parents[1] / "robustness.png")


if __name__ == "__main__":
    main()
