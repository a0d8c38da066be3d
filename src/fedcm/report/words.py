"""Numbers as a report writes them."""

import math

from fedcm.report.groups import MAIN, Entry
from fedcm.report.rounding import hundredths


def accuracy(entry: Entry, measure: str = MAIN) -> str:
    """
    >>> accuracy(Entry(()))
    '–'
    """
    mean, deviation = entry.mean(measure), entry.deviation(measure)
    if mean is None:
        return entry.diverged or "–"
    return hundredths(mean) + (f" ± {hundredths(deviation)}" if deviation is not None else "")


def score(entry: Entry) -> float:
    """What a claim compares: the mean in percent; what diverged is below everything."""
    mean = entry.mean()
    return -math.inf if mean is None else mean


def signed(points: float) -> str:
    """
    >>> signed(-1.234), signed(0.5)
    ('−1.23', '+0.50')
    """
    return f"{points:+.2f}".replace("-", "−")


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
