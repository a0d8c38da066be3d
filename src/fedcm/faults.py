"""What went wrong in a user's own code, in one sentence with the file and line; its traceback where asked for."""

import os
import sys
import sysconfig
import traceback
from pathlib import Path
from typing import NamedTuple

DEBUG = "FEDCM_DEBUG"  # in the environment, so that workers and the runs of a sweep inherit it

_NOTES = "_fedcm_notes"
_OURS = str(Path(__file__).parent) + os.sep
_STANDARD = tuple({sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib")})
_INSTALLED = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
_TYPED_IN = ("<stdin>", "<ipython", "<python-input", "<console>")  # files of interactive sessions


class Place(NamedTuple):
    file: str
    line: int


def place_of(error: BaseException) -> Place | None:
    """Where the user's own code failed: the last frame outside fedcm, torch, the standard library and, if there is one,
    outside all installed packages. None where no such code took part."""
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        return Place(error.filename, error.lineno)
    places = [Place(frame.filename, frame.lineno or 0) for frame in traceback.extract_tb(error.__traceback__)]
    theirs = [place for place in places if _is_users(place.file)]
    own = [place for place in theirs if not _is_installed(place.file)]
    return next(reversed(own or theirs), None)


def describe(error: BaseException) -> str:
    """The error in one line: its kind, what it says and where the user's own code failed.

    >>> describe(KeyError("x"))
    "KeyError: 'x'"
    """
    said = " ".join(str(error).split())
    return f"{type(error).__name__}{': ' if said else ''}{said}{located(error)}"


def located(error: BaseException) -> str:
    """Where the user's own code failed, to put behind a sentence; empty where no such code took part."""
    place = place_of(error)
    return f" ({place.file}, line {place.line})" if place is not None else ""


def note(error: BaseException, what: str) -> None:
    """Remember what was being done when the error came; Python's own traceback shows it too."""
    error.add_note(what)
    error.__dict__.setdefault(_NOTES, []).append(what)


def tell(error: BaseException, otherwise: str) -> str:
    """What was being done, by the error's notes or else as given, and the error, in one line; on the lines below it the
    traceback, where the user asked for it."""
    doing = ", ".join(reversed(getattr(error, _NOTES, [otherwise])))
    return "\n".join(part for part in (f"{doing}: {describe(error)}", trace_of(error)) if part)


def debugging() -> bool:
    """Whether the user asked for tracebacks, by `--debug`."""
    return os.environ.get(DEBUG, "") not in ("", "0")


def trace_of(error: BaseException) -> str:
    """The traceback where the user asked for it, with all errors that led to this one; else nothing."""
    if not debugging():
        return ""
    chain: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and cause not in chain:
        chain.append(cause)
        cause.__suppress_context__ = cause.__cause__ is not None  # shown even where the sentence stands for it
        cause = cause.__cause__ or cause.__context__
    return "".join(traceback.format_exception(error)).rstrip()


def _is_users(file: str) -> bool:
    if file.startswith("<"):  # code that was made up by Python, torch or a dataclass
        return file.startswith(_TYPED_IN)
    torch = sys.modules.get("torch")
    folder = os.path.dirname(torch.__file__ or "") + os.sep if torch is not None else None  # noqa: PTH120
    if file.startswith(_OURS) or (folder is not None and file.startswith(folder)):
        return False
    return _is_installed(file) or not file.startswith(_STANDARD)


def _is_installed(file: str) -> bool:
    return any(folder in file for folder in _INSTALLED)
