"""A run's labels in words. A label is of a grid's axis, whose variants have names of their own (`setting`, `II`), or of
a setting that was swept (`algorithm.alpha`, `0.03`), whose values say nothing without its name."""

_AT_THE_TOP = ("name", "rounds", "seed")  # settings whose path has no dot


def names_setting(axis: str) -> bool:
    return "." in axis or axis in _AT_THE_TOP


def write_label(axis: str, text: str) -> str:
    """
    >>> write_label("algorithm.alpha", "0.03"), write_label("setting", "II")
    ('algorithm.alpha=0.03', 'II')
    """
    return f"{axis}={text}" if names_setting(axis) else text
