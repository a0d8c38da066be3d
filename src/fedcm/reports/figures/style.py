"""One look for every figure: the same colour for the same algorithm everywhere, told apart without colour too."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedcm.errors import UserError
from fedcm.system.files import atomic_write

# Okabe & Ito's palette, in an order that puts the most different ones first
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F7F7F", "#000000")
DASHES = ("--", "-", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)), "-")
_FORMATS = (".png", ".pdf", ".svg")
FIXED = {"fedcm": 1, "fedavg": 0, "fedadam": 2, "scaffold": 3, "feddyn": 4}


def style_of(name: str, among: Sequence[str]) -> dict[str, Any]:
    """Colour and dashes of a curve: an algorithm's own, or the next free ones."""
    used = {FIXED[other] for other in among if other in FIXED}
    free = [k for k in range(len(PALETTE)) if k not in used]
    others = [other for other in among if other not in FIXED]
    k = FIXED[name] if name in FIXED else free[others.index(name) % len(free)]
    return {"color": PALETTE[k], "linestyle": DASHES[k], "linewidth": 2.4 if name == "fedcm" else 1.5}


@contextmanager
def figure(path: Path, width: float = 8.0, height: float = 4.5, **grid: Any) -> Iterator[tuple[Any, Any]]:
    """(figure, axes), written to `path` when the block ends well."""
    if path.suffix.lower() not in _FORMATS or path.is_dir():
        raise UserError(f"a picture must be a file that ends in {', '.join(_FORMATS)}, got {str(path)!r}")
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    drawn, axes = plt.subplots(figsize=(width, height), layout="constrained", **grid)
    try:
        yield drawn, axes
        with atomic_write(path) as temporary:
            drawn.savefig(temporary, dpi=150)
    finally:
        plt.close(drawn)
