"""Write the tables and pictures of docs/guides/robustness.md from the digests of experiments/robust-*.toml.

fedcm report runs/robust-digits --digests results/robust-digits
python docs/generate/robustness_table.py results/robust-digits                 prints the tables
python docs/generate/robustness_table.py results/robust-digits --update        puts them into the guide
"""

import argparse
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from marked_text import replace_marked

GUIDE = Path(__file__).parents[1] / "guides" / "robustness.md"
NAMES = {"fedavg": "FedAvg", "fedcm": "FedCM"}
ATTACKS = ("none", "sign-flip", "scaled", "noise", "label-flip", "alie", "ipm", "backdoor")
MEANS = ("plain", "clipped", "centred-clipping", "median", "trimmed", "geometric-median", "krum", "bulyan")
Cell = tuple[float | None, float | None]  # accuracy and success of a backdoor, each None if it is missing
Cells = Mapping[tuple[str, str, str], Cell]  # by algorithm, attack and mean


def read_cells(folder: Path) -> dict[tuple[str, str, str], Cell]:
    """Return what each run reached in its last round; the accuracy is None if it diverged."""
    cells: dict[tuple[str, str, str], Cell] = {}
    for path in sorted(folder.glob("*.json")):
        digest: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        labels, curve = digest["experiment"]["cell"]["labels"], digest["curve"]
        is_finished = digest["summary"]["outcome"] == "finished"
        success = curve.get("backdoor_success")
        cells[digest["summary"]["algorithm"], labels["attack"], labels["mean"]] = (
            curve["test_accuracy"][-1] if is_finished else None,
            success[-1] if is_finished and success else None,
        )
    return cells


def list_rows(cells: Cells) -> list[str]:
    """Return the attacks of the grid, in the order of the guide."""
    return [attack for attack in ATTACKS if any(key[1] == attack for key in cells)]


def list_columns(cells: Cells) -> list[str]:
    """Return the means of the grid, in the order of the guide."""
    return [mean for mean in MEANS if any(key[2] == mean for key in cells)]


def write_table(cells: Cells, algorithm: str) -> str:
    """Return a Markdown table of one algorithm: accuracy in %, and for the backdoor its success in brackets."""
    means = list_columns(cells)
    lines = [f"| attack | {' | '.join(means)} |", f"|---|{'---|' * len(means)}"]
    for attack in list_rows(cells):
        row = [_format(cells.get((algorithm, attack, mean))) for mean in means]
        lines.append(f"| {attack} | {' | '.join(row)} |")
    return "\n".join(lines)


def _format(cell: Cell | None) -> str:
    if cell is None:
        return "–"
    accuracy, success = cell
    text = "diverged" if accuracy is None else f"{100 * accuracy:.0f}"
    return text if success is None else f"{text} ({100 * success:.0f})"


def write_tables(cells: Cells) -> str:
    """Return the tables of all algorithms, each below its name."""
    return "\n\n".join(f"{name}:\n\n{write_table(cells, algorithm)}" for algorithm, name in NAMES.items())


def draw(cells: Cells, path: Path) -> None:
    """Draw one panel per algorithm: a colour for each accuracy."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    attacks, means = list_rows(cells), list_columns(cells)
    best = max(100 * accuracy for accuracy, _ in cells.values() if accuracy is not None)
    figure, panels = plt.subplots(
        1, len(NAMES), figsize=(11, 1.4 + 0.35 * len(attacks)), layout="constrained", sharey=True
    )
    picture = None
    for panel, (algorithm, name) in zip(panels, NAMES.items(), strict=True):
        found = [[cells.get((algorithm, attack, mean), (None, None))[0] for mean in means] for attack in attacks]
        values = [[math.nan if value is None else 100 * value for value in row] for row in found]
        picture = panel.imshow(values, vmin=10, vmax=best, cmap="viridis", aspect="auto")
        panel.set_xticks(range(len(means)), means, rotation=40, ha="right")
        panel.set_yticks(range(len(attacks)), attacks)
        panel.set_title(name)
        for y, row in enumerate(values):
            for x, value in enumerate(row):
                text = "–" if math.isnan(value) else f"{value:.0f}"
                panel.text(
                    x, y, text, ha="center", va="center", color="white" if value < 10 + 0.65 * (best - 10) else "black"
                )
    assert picture is not None
    figure.colorbar(picture, ax=panels, label="test accuracy in %")
    figure.savefig(path, dpi=110)


def main() -> None:
    """Print the tables of a folder of digests, or put them into the guide."""
    parser = argparse.ArgumentParser()
    parser.add_argument("digests", type=Path)
    parser.add_argument("--update", action="store_true")
    arguments = parser.parse_args()
    cells, name = read_cells(arguments.digests), arguments.digests.name
    if not arguments.update:
        print(write_tables(cells))
        return
    page = GUIDE.read_text(encoding="utf-8")
    GUIDE.write_text(replace_marked(page, name, write_tables(cells)), encoding="utf-8")
    draw(cells, GUIDE.parents[1] / f"{name}.png")


if __name__ == "__main__":
    main()
