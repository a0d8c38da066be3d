"""Draw the diagrams: `python docs/generate/diagrams.py` writes docs/diagrams/*.svg.

They are 400 units wide, so that their text is readable on a phone. As images they follow the system's light or dark
mode; on the site they are part of the page and follow its scheme (docs/stylesheets/extra.css sets the same variables).
"""

from html import escape
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "diagrams"
WIDTH = 400

# From the top to the bottom: a package imports from its own row or from a lower one.
LAYERS = (
    {"cli": "commands, tables, progress"},
    {"api": "fedcm.train and the public names"},
    {"reports": "pages, figures", "theory": "theorem, rates", "federation": "real sites"},
    {"sweeps": "many runs from one file", "advice": "suggests α and η_l"},
    {"trackers": "TensorBoard, MLflow, W&B"},
    {"runs": "folder, checkpoints, workers, resume"},
    {"config": "experiment.toml and its schema"},
    {"algorithms": "one file each", "executors": "local, distributed"},
    {"core": "round loop, local steps, exact mean"},
    {"data": "sources, splits", "models": "MLP, CNN, ResNet"},
    {"system": "files, processes", "rng": "random draws", "errors": "UserError, …"},
)

_STYLE = """
.diagram { --ink: #1f2430; --soft: #545d6e; --line: #8a94a6; --fill: #f3f5f9; --accent: #3949ab; --tint: #e6e9f8;
  font-family: system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
@media (prefers-color-scheme: dark) {
  .diagram { --ink: #e6e9f0; --soft: #aab2c3; --line: #6d778c; --fill: #262b38; --accent: #a3b1ff; --tint: #2f3558; }
}
.diagram text { fill: var(--ink); font-size: 14px; text-anchor: middle; }
.diagram .name { font-weight: 600; }
.diagram .note { fill: var(--soft); font-size: 12px; }
.diagram .left { text-anchor: start; }
.diagram .formula { font-size: 15px; }
.diagram .index { font-size: 0.75em; }
.diagram .step { fill: var(--accent); font-weight: 600; font-size: 13px; }
.diagram rect { fill: var(--fill); stroke: var(--line); stroke-width: 1; }
.diagram .accent { fill: var(--tint); stroke: var(--accent); }
.diagram path { fill: none; stroke: var(--line); stroke-width: 1.5; }
.diagram .head { fill: var(--line); stroke: none; }
"""


def draw_architecture() -> str:
    """Return the packages as rows, the command line at the top."""
    parts, y = [_text(WIDTH / 2, 18, "Imports point down: to the same row or a lower one.", "note")], 32
    height, gap = 46, 14
    for row, layer in enumerate(LAYERS):
        if row:
            parts += _arrow(f"M{WIDTH / 2} {y - gap + 1}V{y - 4}", WIDTH / 2, y - 1)
        width = (WIDTH - 8 - 8 * (len(layer) - 1)) / len(layer)
        for column, (name, note) in enumerate(layer.items()):
            x = 4 + column * (width + 8)
            parts.append(_box(x, y, width, height, "accent" if name == "core" else ""))
            parts.append(_text(x + width / 2, y + 19, name, "name"))
            parts.append(_text(x + width / 2, y + 36, note, "note"))
        y += height + gap
    words = "; ".join(", ".join(layer) for layer in LAYERS)
    return _svg("architecture", "Packages of fedcm", f"Rows of packages from top to bottom: {words}.", y, parts)


def draw_round() -> str:
    """Return one round of FedCM, from the broadcast to the update."""
    parts = [
        _box(60, 6, 280, 50, "accent"),
        _text(200, 27, "Server", "name"),
        _text(200, 45, "model x, direction Δ of the last round", "note"),
        *_arrow("M200 56V100", 200, 104),
        _text(212, 77, "1  broadcast", "step left"),
        _text(212, 94, "x and Δ, to the cohort", "note left"),
        _box(20, 106, 360, 132),
        *(_box(x, 118, 104, 34) for x in (36, 148, 260)),
        *(_text(x + 52, 140, name, "name") for x, name in ((36, "client 1"), (148, "…"), (260, "client S"))),
        _text(200, 173, "2  K local steps on the client's own data", "step"),
        _text(200, 199, "v = α·g + (1 − α)·Δ", "formula"),
        _text(200, 224, "y ← y − η_l·v", "formula"),
        *_arrow("M200 238V282", 200, 286),
        _text(212, 259, "3  report", "step left"),
        _text(212, 276, "the mean of its directions v", "note left"),
        _box(60, 288, 280, 58, "accent"),
        _text(200, 309, "4  exact mean over the cohort", "step"),
        _text(200, 333, "Δ ← mean of the reports", "formula"),
        *_arrow("M200 346V362", 200, 366),
        _box(60, 368, 280, 58, "accent"),
        _text(200, 389, "5  update", "step"),
        _text(200, 413, "x ← x − s·η_l·K·Δ", "formula"),
        *_arrow("M340 397H392V31H346", 342, 31, "left"),
        _text(200, 450, "g: gradient of one minibatch at y, with y = x at the start", "note"),
        _text(200, 468, "η_l, s: learning rates of clients and server", "note"),
    ]
    story = (
        "The server broadcasts the model x and the direction Δ to the clients of the cohort. Each client takes K local "
        "steps along v = αg + (1−α)Δ and reports the mean of its directions. The exact mean of the reports is the new "
        "Δ, and the server updates x along it. Then the next round begins."
    )
    return _svg("round", "One round of FedCM", story, 478, parts)


def _svg(name: str, title: str, description: str, height: float, parts: list[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="diagram" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
        f'height="{height}" role="img" aria-labelledby="{name}-title {name}-desc">\n'
        f'<title id="{name}-title">{escape(title)}</title>\n<desc id="{name}-desc">{escape(description)}</desc>\n'
        f"<style>{_STYLE}</style>\n" + "\n".join(parts) + "\n</svg>\n"
    )


def _box(x: float, y: float, width: float, height: float, kind: str = "") -> str:
    css = f' class="{kind}"' if kind else ""
    return f'<rect{css} x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="6"/>'


def _text(x: float, y: float, words: str, kind: str) -> str:
    written = escape(words).replace("_l", '<tspan class="index" dy="3">l</tspan><tspan dy="-3">\u200b</tspan>')
    return f'<text class="{kind}" x="{x:g}" y="{y:g}">{written}</text>'


def _arrow(path: str, x: float, y: float, towards: str = "down") -> list[str]:
    """Return a line, and a head whose point is at (x, y)."""
    head = f"M{x:g} {y:g}l-5 -8h10z" if towards == "down" else f"M{x:g} {y:g}l8 -5v10z"
    return [f'<path d="{path}"/>', f'<path class="head" d="{head}"/>']


DIAGRAMS = {"architecture.svg": draw_architecture, "round.svg": draw_round}

if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, draw in DIAGRAMS.items():
        (FOLDER / name).write_text(draw(), encoding="utf-8")
