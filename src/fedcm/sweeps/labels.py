"""The labels of a run in a grid.

The label of an axis is the name of a variant (`setting`: `II`). The label of a swept setting is its value
(`algorithm.alpha`: `0.03`), which says nothing without the setting.
"""

_TOP_LEVEL = ("name", "rounds", "seed")  # settings whose path has no dot


def is_setting(axis: str) -> bool:
    """Return whether an axis is a swept setting."""
    return "." in axis or axis in _TOP_LEVEL


def write_label(axis: str, text: str) -> str:
    """Write a label for people.

    >>> write_label("algorithm.alpha", "0.03"), write_label("setting", "II")
    ('algorithm.alpha=0.03', 'II')
    """
    return f"{axis}={text}" if is_setting(axis) else text
