"""What went wrong in a user's own code, in one sentence with the file and line; its traceback where asked for."""

import errno
import os
import re
import sys
import sysconfig
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

DEBUG = "FEDCM_DEBUG"  # in the environment, so that workers and the runs of a sweep inherit it

_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO)
_NOTES = "_fedcm_notes"
_OURS = str(Path(__file__).parents[1]) + os.sep
_STANDARD = tuple({sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib")})
_INSTALLED = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
_TYPED_IN = ("<stdin>", "<ipython", "<python-input", "<console>")  # files of interactive sessions


class CodeLocation(NamedTuple):
    file: str
    line: int


def find_user_code(error: BaseException) -> CodeLocation | None:
    """Where the user's own code failed: the last frame outside fedcm, torch, the standard library and other installed
    packages. If there is none, the last frame of another package that fedcm called; None if there is none either."""
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        return CodeLocation(error.filename, error.lineno)
    own: CodeLocation | None = None
    called: CodeLocation | None = None
    for frame in traceback.extract_tb(error.__traceback__):
        place = CodeLocation(frame.filename, frame.lineno or 0)
        if frame.filename.startswith(_OURS):
            called = None  # by which fedcm itself was called, such as the command line's library
        elif _is_theirs(frame.filename):
            called = place
            own = own if _is_installed(frame.filename) else place
    return own or called


def is_disk_error(error: BaseException) -> bool:
    """Whether the disk is full, broken or read-only: that is nobody's code."""
    return isinstance(error, OSError) and error.errno in _DISK


def describe_error(error: BaseException) -> str:
    """The error in one line: its kind, what it says and where the user's own code failed.

    >>> describe(KeyError("x"))
    "KeyError: 'x'"
    """
    said = " ".join(str(error).split())
    return f"{type(error).__name__}{': ' if said else ''}{said}{format_location(error)}"


def format_location(error: BaseException) -> str:
    """Where the user's own code failed, to put behind a sentence; empty where no such code took part."""
    place = find_user_code(error)
    return f" ({place.file}, line {place.line})" if place is not None else ""


def hide_paths(sentence: str) -> str:
    """The sentence without files and lines, for a reader who must not see the folders of this machine.

    >>> without_places("the model could not be made: KeyError: 'x' (/home/anna (work)/net.py, line 3)")
    "the model could not be made: KeyError: 'x'"
    >>> without_places("[Errno 2] No such file or directory: '/srv/ward 7/a.npz'; look into /srv/ward/b.npz")
    "[Errno 2] No such file or directory: '…'; look into …"
    """
    sentence = re.sub(r" \((?:/|[A-Za-z]:\\).*?, line \d+\)", "", sentence)
    sentence = re.sub(r"""(['"])(?:/|[A-Za-z]:\\).*?\1""", r"\1…\1", sentence)
    return re.sub(r"(?<![\w./])(?:/|[A-Za-z]:\\)[^\s'\",;()]+", "…", sentence)


def add_note(error: BaseException, what: str) -> None:
    """Remember what was being done when the error came: which part of a step, or what failed with it. Python's own
    traceback shows it too."""
    error.add_note(what)
    error.__dict__.setdefault(_NOTES, []).append(what)


@contextmanager
def note_on_error(what: str) -> Iterator[None]:
    """Inside, an error gets this note."""
    try:
        yield
    except Exception as error:
        add_note(error, what)
        raise


def describe_failure(error: BaseException, otherwise: str) -> str:
    """What failed, by the error's notes or else as given, and the error: one line."""
    notes = [*getattr(error, _NOTES, ()), otherwise]
    first = next((k for k, what in enumerate(notes) if "failed" in what), len(notes) - 1)
    doing = ", ".join(reversed(notes[: first + 1]))
    return f"{doing}: {describe_error(error)}"


def describe_with_trace(error: BaseException, otherwise: str) -> str:
    """`describe_failure`, and below it the traceback if the user asked for it: for another process to print."""
    return "\n".join(part for part in (describe_failure(error, otherwise), format_trace(error)) if part)


def is_debugging() -> bool:
    """Whether the user asked for tracebacks, by `--debug`."""
    return os.environ.get(DEBUG, "") not in ("", "0")


def format_trace(error: BaseException) -> str:
    """The traceback where the user asked for it, with all errors that led to this one; else nothing."""
    if not is_debugging():
        return ""
    chain: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and cause not in chain:
        chain.append(cause)
        cause.__suppress_context__ = cause.__cause__ is not None  # shown even where the sentence stands for it
        cause = cause.__cause__ or cause.__context__
    return "".join(traceback.format_exception(error)).rstrip()


def _is_theirs(file: str) -> bool:
    """Neither torch's, nor the standard library's, nor made up while a program runs."""
    if file.startswith("<"):
        return file.startswith(_TYPED_IN)
    torch = sys.modules.get("torch")
    folder = os.path.dirname(torch.__file__ or "") + os.sep if torch is not None else None  # noqa: PTH120
    if folder is not None and file.startswith(folder):
        return False
    return _is_installed(file) or not file.startswith(_STANDARD)


def _is_installed(file: str) -> bool:
    return any(folder in file for folder in _INSTALLED)
