"""Numbers as a report writes them."""

import math

from fedcm.reports.claims.contrast import Contrast
from fedcm.reports.metric import ACCURACY, LOSS, Metric  # noqa: F401 - LOSS is for the example


def signed(points: float) -> str:
    """
    >>> signed(-1.234), signed(0.5)
    ('−1.23', '+0.50')
    """
    return f"{points:+.2f}".replace("-", "−")


def write_difference(contrast: Contrast, metric: Metric = ACCURACY, comparisons: int = 1) -> str:
    """With its interval and what that is from; nothing where a side diverged, which has no number.

    >>> write_difference(Contrast(1.5, None, 0, "one seed"))
    '+1.50 points (one seed)'
    >>> write_difference(Contrast(-2.0, 1.0, 1e9, "4 seeds"), LOSS)
    'higher by 2 (95 % interval 0.04 to 3.96; 4 seeds)'
    """
    if not math.isfinite(contrast.difference):
        return ""
    found = contrast.interval(comparisons)
    if metric is ACCURACY:
        digits = "{:.2f}"
    else:
        digits = "{:.3g}"
        if found and contrast.difference < 0:  # of how much higher the loss is
            found = -found[1], -found[0]
    said = f"95 % interval {' to '.join(map(digits.format, found))}; ".replace("-", "−") if found else ""
    return f"{write_size(contrast, metric)} ({said}{contrast.seeds})"


def write_size(contrast: Contrast, metric: Metric = ACCURACY) -> str:
    """A difference alone; nothing where a side diverged."""
    if not math.isfinite(contrast.difference):
        return ""
    if metric is ACCURACY:
        return f"{signed(contrast.difference)} points"
    return f"{'lower' if contrast.difference >= 0 else 'higher'} by {abs(contrast.difference):.3g}"


def amount(count: float) -> str:
    """
    >>> amount(31_700_000), amount(12)
    ('31.7 MB', '12 B')
    """
    for unit in ("B", "kB", "MB", "GB"):
        if count < 999.5:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"


def duration(seconds: float) -> str:
    """
    >>> duration(3.72), duration(75), duration(7300)
    ('3.7 s', '1 min 15 s', '2 h 1 min')
    """
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def several(count: int, word: str) -> str:
    """
    >>> several(1, "run"), several(3, "run")
    ('1 run', '3 runs')
    """
    return f"{count} {word}{'' if count == 1 else 's'}"
