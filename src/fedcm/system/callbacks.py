"""The types of callbacks that functions of many packages take, and their defaults."""

from collections.abc import Callable

Notify = Callable[[str], None]  # called with one sentence about each thing that the user should know
StopRequested = Callable[[], bool]  # called often; the work stops when it returns True


def ignore_message(sentence: str) -> None:
    """Do nothing: the default of `notify` in packages below the API, which print nothing."""
