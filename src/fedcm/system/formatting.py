"""Format numbers for people, and make file names from text. Every package uses these functions."""

import re
from decimal import Decimal


def format_bytes(count: float) -> str:
    """Format a number of bytes with three digits and a decimal unit.

    >>> format_bytes(31_700_000), format_bytes(12)
    ('31.7 MB', '12 B')
    """
    for unit in ("B", "kB", "MB", "GB"):
        if count < 999.5:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"


def format_duration(seconds: float) -> str:
    """Format a measured time.

    >>> format_duration(3.72), format_duration(75), format_duration(7300)
    ('3.7 s', '1 min 15 s', '2 h 1 min')
    """
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def format_estimate(seconds: float | None) -> str:
    """Format an estimated time, rounded more than a measured one; None (unknown) becomes an ellipsis.

    >>> format_estimate(75.0), format_estimate(3 * 3600 + 120), format_estimate(90 * 86400.0), format_estimate(None)
    ('1 min', '3 h 2 min', '90 days', '…')
    """
    if seconds is None:
        return "…"
    if seconds < 60:
        return f"{seconds:.0f} s"
    if seconds < 3600:
        return f"{seconds / 60:.0f} min"
    if seconds < 2 * 86400:
        return f"{seconds // 3600:.0f} h {seconds % 3600 // 60:.0f} min"
    return f"{seconds / 86400:.0f} days"


def format_count(count: int, noun: str) -> str:
    """Format a count with its noun, in the plural where needed.

    >>> format_count(1, "run"), format_count(3, "run")
    ('1 run', '3 runs')
    """
    return f"{count} {noun}{'' if count == 1 else 's'}"


def format_signed(number: float) -> str:
    """Format a difference with its sign and two decimals.

    >>> format_signed(-1.234), format_signed(0.5)
    ('−1.23', '+0.50')
    """
    return f"{number:+.2f}".replace("-", "−")


def format_hundredths(number: float) -> str:
    """Format with two decimals. A half is rounded to the even digit of the decimal number, not of its binary value.

    >>> format_hundredths(51.245000000000005), format_hundredths(51.255), format_hundredths(-0.001)
    ('51.24', '51.26', '-0.00')
    """
    return str(round(Decimal(repr(round(number, 9))), 2))


def slugify(text: str, allowed: str = r"\w.+=-") -> str:
    """Replace each run of characters that a file name may not have by one hyphen.

    Args:
        text: any text.
        allowed: the characters to keep, as the inside of a regular expression's `[...]`.

    >>> slugify("data/my set: fedcm"), slugify("digits, mlp", allowed="a-z0-9.")
    ('data-my-set-fedcm', 'digits-mlp')
    """
    return re.sub(rf"[^{allowed}]+", "-", text)
