"""Draw the diagrams: `python docs/generate/diagrams.py` writes docs/diagrams/*.svg.

They are 400 units wide, so that their text is readable on a phone. As images they follow the system's light or dark
mode; on the site they are part of the page and follow its scheme (docs/stylesheets/extra.css sets the same variables).
"""

import re
from html import escape
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "diagrams"
WIDTH = 400

# From the top to the bottom: a package imports from its own row or from a lower one.
LAYERS = (
    {"cli": "commands, tables, progress"},
    {"api": "fedcm.train and the public names"},
    {"reports": "pages, figures", "theory": "theorem, rates", "federation": "real sites"},
    {"tuning": "searches for the best settings"},
    {"sweeps": "many runs from one file", "advice": "suggests α and η_l"},
    {"trackers": "TensorBoard, MLflow, W&B"},
    {"runs": "folder, checkpoints, workers, resume"},
    {"privacy": "accountant, noise for a budget"},
    {"config": "experiment.toml and its schema"},
    {"algorithms": "one file each", "executors": "local, distributed"},
    {"core": "round loop, local steps, exact mean"},
    {"data": "sources, splits", "models": "MLP, CNN, ResNet"},
    {"system": "files, processes", "rng": "random draws", "errors": "UserError, …"},
)

# Hubs, and the algorithms that a setting turns into them (tests/identities/test_family.py), with their groups.
FAMILY = (
    (
        ("FedAvg", "averaging"),
        (
            ("FedProx", "averaging", "μ = 0"),
            ("FedExP", "averaging", "ε → ∞"),
            ("FedSWA", "averaging", "ρ = α = 1"),
            ("FedSAM", "sharpness-aware", "ρ = 0"),
            ("FedLESAM", "sharpness-aware", "ρ = 0"),
            ("MFL", "client momentum", "γ = 0"),
            ("FedAc", "client momentum", "α = β = γ = 1"),
            ("D-SGD", "decentralised", "complete graph, β = 0"),
            ("FedACG", "server momentum", "λ = β = 0"),
            ("FedAvgM", "server momentum", "β = 0"),
            ("FedNova", "averaging", "equal K_i, ρ = 0"),
        ),
    ),
    (
        ("FedCM", "client momentum"),
        (
            ("FedCM-Anytime", "client momentum", "α = 1, no averaging"),
            ("MimeLite", "client momentum", "one full-batch step", "β = 1−α"),
            ("Mime", "client momentum", "one full-batch step", "β = 1−α"),
            ("GHBM", "client momentum", "τ = 1, β = 1−α", "rate α·η_l, equal K_i"),
            ("MoFedSAM", "sharpness-aware", "ρ = 0"),
            ("FedLADA", "adaptive", "β1 = 0, β2 = 1, ε = 1"),
            ("FedMuon", "adaptive", "β = 0, γ = 1−α", "no matrices, SGD"),
            ("QG-DSGDm", "decentralised", "complete graph, μ = 0", "β = 1−α, rate α·η_l"),
        ),
    ),
    (
        ("SCAFFOLD", "variance reduction"),
        (
            ("VRL-SGD", "variance reduction", "everyone, equal K_i", "s = 1, option II"),
            ("FedMoSWA", "variance reduction", "ρ = α = γ = 1", "everyone, option II"),
        ),
    ),
    (
        ("FedDyn", "primal-dual"),
        (
            ("FedSpeed", "sharpness-aware", "ρ = 0"),
            ("FedSMOO", "sharpness-aware", "ρ = 0"),
            ("FedPD", "primal-dual", "everyone, σ = 1/α", "exact local solutions"),
        ),
    ),
)
SLOWMO = ("SlowMo", "server momentum", "constant η_l")  # is FedAvgM then
ALONE = (
    ("FedAdam", "adaptive"),
    ("FedYogi", "adaptive"),
    ("FedAdagrad", "adaptive"),
    ("Local AdaAlter", "adaptive"),
    ("signSGD", "averaging"),
    ("FedDANE", "variance reduction"),
    ("FedSplit", "primal-dual"),
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
.diagram .right { text-anchor: end; }
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


def draw_family() -> str:
    """Return the algorithms in blocks: below each hub, those that a setting turns into it."""
    parts = [_text(WIDTH / 2, 16, "Arrows: with these settings, one algorithm is the other.", "note")]
    story, rows, y = [], {}, 28.0
    for (hub, group), members in FAMILY:
        if hub == "FedCM":
            y += _GAP
        top = y
        rows[hub] = y
        parts += _node(_LEFT, y, _RIGHT - _LEFT, hub, group, "accent")
        y += _NODE + 14
        for name, kind, *conditions in members:
            if name == "FedAvgM":
                parts += _node(_COLUMN, y, _RIGHT - _COLUMN, *SLOWMO[:2])
                parts += _arrow(f"M{_MIDDLE} {y + _NODE}V{y + _NODE + _GAP - 4}", _MIDDLE, y + _NODE + _GAP - 1)
                parts.append(_text(_MIDDLE + 10, y + _NODE + _GAP / 2 + 4, SLOWMO[2], "note left"))
                story.append(f"{SLOWMO[0]} is {name}: {SLOWMO[2]}")
                y += _NODE + _GAP
            rows[name] = y
            parts += _node(_COLUMN, y, _RIGHT - _COLUMN, name, kind)
            parts.append(f'<path d="M{_COLUMN} {y + _NODE / 2:g}H{_TRUNK}"/>')
            parts += [
                _text(_TRUNK + 10, y + _NODE / 2 + shift, condition, "note left")
                for condition, shift in zip(conditions, (-5, 14), strict=False)
            ]
            story.append(f"{name} is {hub}: {', '.join(conditions)}")
            y += _NODE + 8
        last = y - 8 - _NODE / 2
        parts += _arrow(f"M{_TRUNK} {last:g}V{top + _NODE + 6:g}", _TRUNK, top + _NODE + 1, "up")
        y += 10
    nova, cm, avgm = (rows[name] for name in ("FedNova", "FedCM", "FedAvgM"))
    parts += _arrow(f"M{_MIDDLE} {cm:g}V{nova + _NODE + 6:g}", _MIDDLE, nova + _NODE + 1, "up")
    parts.append(_text(_MIDDLE - 10, cm - 8, "α = 1", "note right"))
    parts += _arrow(f"M{_RIGHT} {cm + _NODE / 2:g}h9V{avgm + _NODE / 2:g}h-4", _RIGHT + 1, avgm + _NODE / 2, "left")
    parts.append(_text(_RIGHT + 3, cm - 8, "K = 1, everyone", "note right"))
    parts.append(_text(WIDTH / 2, y + 10, "No setting turns these into another one:", "note"))
    y += 20
    width = (_RIGHT - _LEFT - 8) / 2
    for index, (name, group) in enumerate(ALONE):
        last = index == len(ALONE) - 1
        x = (_LEFT + _RIGHT - width) / 2 if last and index % 2 == 0 else _LEFT + (index % 2) * (width + 8)
        parts += _node(x, y, width, name, group)
        y += (_NODE + 8) if index % 2 or last else 0
    story += ["FedCM is FedNova: α = 1", "FedCM is FedAvgM: K = 1, everyone, constant η_l, β = 1−α, s = α"]
    story.append("without such a setting: " + ", ".join(name for name, _ in ALONE))
    return _svg("family", "The family of algorithms", "; ".join(story) + ".", y, parts)


_LEFT, _RIGHT, _COLUMN, _TRUNK, _NODE, _GAP = 4, 386, 214, 22, 38, 26
_MIDDLE = (_COLUMN + _RIGHT) / 2 - 20


SECURE_STEPS = (  # name, arrow, what is sent, what the receivers do
    ("train", "down", "model and momentum", "each site trains; its report stays there"),
    ("advertise", "up", "two signed public keys", "the server passes them to all sites"),
    ("share", "up", "encrypted shares of two secrets", "the server passes each to its site"),
    ("mask", "up", "report + masks, modulo 2⁶⁴", "the server adds what arrives in time"),
    ("confirm", "up", "a signature of who is in the sum", "the server passes them to all sites"),
    ("unmask", "up", "one share of each site's mask", "the server removes the masks from the sum"),
)


def draw_secure_aggregation() -> str:
    """Return the messages of one round with secure aggregation, between sites and server."""
    top, height, left, right = 62, 62, 26, 374
    end = top + height * len(SECURE_STEPS)
    parts = [
        *(_box(x, 6, 72, 34, kind) for x, kind in ((4, ""), (WIDTH - 76, "accent"))),
        *(_text(x, 28, name, "name") for x, name in ((40, "sites"), (WIDTH - 40, "server"))),
        *(f'<path d="M{x} 40V{end}"/>' for x in (left, right)),
    ]
    for row, (name, towards, sent, done) in enumerate(SECURE_STEPS):
        y = top + height * row + 18
        parts.append(_text(200, y - 6, f"{row + 1}  {name}: {sent}", "step"))
        if towards == "down":
            parts += _arrow(f"M{right} {y}H{left + 8}", left, y, "left")
        else:
            parts += [f'<path d="M{left} {y}H{right - 8}"/>', f'<path class="head" d="M{right} {y}l-8 -5v10z"/>']
        parts.append(_text(200, y + 18, done, "note"))
    words = "; ".join(f"{name}: {sent}, then {done}" for name, _, sent, done in SECURE_STEPS)
    parts.append(_text(200, end + 18, "the exact sum, and so the mean of a plain round", "name"))
    return _svg("secure-aggregation", "Secure aggregation in one round", f"{words}.", end + 30, parts)


def _node(x: float, y: float, width: float, name: str, group: str, kind: str = "") -> list[str]:
    middle = x + width / 2
    return [
        _box(x, y, width, _NODE, kind),
        _text(middle, y + 17, name, "name"),
        _text(middle, y + 32, group, "note"),
    ]


def _svg(name: str, title: str, description: str, height: float, parts: list[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="diagram" viewBox="0 0 {WIDTH} {height:g}" width="{WIDTH}" '
        f'height="{height:g}" role="img" aria-labelledby="{name}-title {name}-desc">\n'
        f'<title id="{name}-title">{escape(title)}</title>\n<desc id="{name}-desc">{escape(description)}</desc>\n'
        f"<style>{_STYLE}</style>\n" + "\n".join(parts) + "\n</svg>\n"
    )


def _box(x: float, y: float, width: float, height: float, kind: str = "") -> str:
    css = f' class="{kind}"' if kind else ""
    return f'<rect{css} x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="6"/>'


def _text(x: float, y: float, words: str, kind: str) -> str:
    index = '<tspan class="index" dy="3">\\1</tspan><tspan dy="-3">\u200b</tspan>'
    written = re.sub("_([li])", index, escape(words))
    return f'<text class="{kind}" x="{x:g}" y="{y:g}">{written}</text>'


def _arrow(path: str, x: float, y: float, towards: str = "down") -> list[str]:
    """Return a line, and a head whose point is at (x, y)."""
    shape = {"down": "l-5 -8h10z", "up": "l-5 8h10z", "left": "l8 -5v10z"}[towards]
    head = f"M{x:g} {y:g}{shape}"
    return [f'<path d="{path}"/>', f'<path class="head" d="{head}"/>']


DIAGRAMS = {
    "architecture.svg": draw_architecture,
    "family.svg": draw_family,
    "round.svg": draw_round,
    "secure-aggregation.svg": draw_secure_aggregation,
}

if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, draw in DIAGRAMS.items():
        (FOLDER / name).write_text(draw(), encoding="utf-8")
