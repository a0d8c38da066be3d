"""Format numbers for people, split lists of names, flatten tables, and make file names from text."""

import re
from collections.abc import Iterator, Mapping
from decimal import Decimal
from itertools import count
from typing import Any


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
    ('3.7 s', '1 min 15 s', '2 h 2 min')
    """
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min"


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


def format_count(count: int, noun: str, plural: str | None = None) -> str:
    """Format a count with its noun, in the plural where needed; by default the plural ends in s.

    >>> format_count(1, "run"), format_count(3, "run"), format_count(2, "process", "processes")
    ('1 run', '3 runs', '2 processes')
    """
    return f"{count} {noun if count == 1 else plural or f'{noun}s'}"


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
        text: Any text.
        allowed: The characters to keep, as the inside of a regular expression's `[...]`.

    >>> slugify("data/my set: fedcm"), slugify("digits, mlp", allowed="a-z0-9.")
    ('data-my-set-fedcm', 'digits-mlp')
    """
    return re.sub(rf"[^{allowed}]+", "-", text)


def split_names(text: str) -> list[str]:
    """Return the names of a comma list.

    >>> split_names("fedavg, fedcm,")
    ['fedavg', 'fedcm']
    """
    return [name.strip() for name in text.split(",") if name.strip()]


def number_names(name: str) -> Iterator[str]:
    """Yield `name`, `name-2`, `name-3`, …, to choose the first free one.

    >>> names = number_names("run")
    >>> next(names), next(names), next(names)
    ('run', 'run-2', 'run-3')
    """
    yield name
    yield from (f"{name}-{number}" for number in count(2))


def flatten_table(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the values of a nested table by their dotted paths.

    >>> flatten_table({"rounds": 3, "client": {"lr": 0.1, "clip": None}})
    {'rounds': 3, 'client.lr': 0.1, 'client.clip': None}
    """
    flat: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, Mapping):
            flat |= flatten_table(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def describe_value(value: Any) -> str:
    """Describe an argument for an error message: a simple value by itself, another object by its type.

    >>> describe_value(3), describe_value("x"), describe_value([1, 2]), describe_value(OSError())
    ('3', "'x'", 'a list', 'an OSError')
    """
    if isinstance(value, str | int | float | bool | None):
        return f"{value!r}"
    kind = type(value).__name__
    return f"{'an' if kind[0] in 'AEIOUaeiou' else 'a'} {kind}"
