"""Describe an exception in one line, with the file and line of the user's code that raised it.

The traceback is added only in debug mode (`--debug`).
"""

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

from fedcm.system.files import find_wrong_kind

DEBUG = "FEDCM_DEBUG"  # an environment variable, so that workers and the runs of a sweep inherit it

_DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO)
_NOTES = "_fedcm_notes"
_FEDCM = str(Path(__file__).parents[1]) + os.sep
_STANDARD_LIBRARY = tuple({sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib")})
_INSTALLED = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
_INTERACTIVE = ("<stdin>", "<ipython", "<python-input", "<console>")


class CodeLocation(NamedTuple):
    """A line of a source file."""

    file: str
    line: int


def find_user_code(error: BaseException) -> CodeLocation | None:
    """Return the line of the user's code that raised the error.

    This is the last frame outside fedcm, torch, the standard library and other installed packages. If there is none,
    it is the last frame of an installed package that fedcm called.

    Returns:
        None if only fedcm, torch and the standard library took part.
    """
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        return CodeLocation(error.filename, error.lineno)
    own: CodeLocation | None = None
    called: CodeLocation | None = None
    for frame in traceback.extract_tb(error.__traceback__):
        location = CodeLocation(frame.filename, frame.lineno or 0)
        if frame.filename.startswith(_FEDCM):
            called = None  # frames before this one called fedcm, such as the command line's library
        elif _may_be_user_code(frame.filename):
            called = location
            own = own if _is_installed(frame.filename) else location
    return own or called


def is_disk_error(error: BaseException) -> bool:
    """Return whether the disk is full, broken or read-only; then no user code is at fault."""
    return isinstance(error, OSError) and error.errno in _DISK_ERRORS


def describe_error(error: BaseException) -> str:
    """Describe an error in one line: its type, its message and the line of the user's code that raised it.

    >>> describe_error(KeyError("x"))
    "KeyError: 'x'"
    """
    message = " ".join(str(error).split())
    return f"{type(error).__name__}{': ' if message else ''}{message}{format_location(error)}"


def describe_os_error(error: OSError) -> str:
    """Describe an error of the operating system in a clause without its number.

    >>> describe_os_error(IsADirectoryError(errno.EISDIR, "Is a directory", "/"))
    "'/' must be a file, and it is a folder"
    >>> describe_os_error(FileNotFoundError(errno.ENOENT, "No such file or directory", "/no/a.txt"))
    "there is no file '/no/a.txt'"
    """
    if error.errno is None or error.filename is None or not isinstance(error.filename, str | bytes | os.PathLike):
        return " ".join((error.strerror or str(error)).split())
    path = Path(os.fsdecode(error.filename))
    try:
        if error.errno in (errno.EISDIR, errno.ENOENT, errno.ELOOP) and (wrong := find_wrong_kind(path)):
            return wrong
        if error.errno in (errno.EEXIST, errno.ENOTDIR, errno.ENOENT):
            for folder in (path, *path.parents):
                if wrong := find_wrong_kind(folder, "folder"):
                    return wrong
    except OSError:  # a name that is too long, for example
        return f"{error.strerror}: {str(path)!r}"
    if error.errno == errno.ENOENT:
        return f"there is no file {str(path)!r}"
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"this user must have access to {str(path)!r}, and has not"
    return f"{error.strerror}: {str(path)!r}"


def format_location(error: BaseException) -> str:
    """Return " (file, line n)" of the user's code that raised the error; empty if there is none."""
    location = find_user_code(error)
    return f" ({location.file}, line {location.line})" if location is not None else ""


def hide_paths(message: str) -> str:
    """Remove files and lines from a message, for a reader who must not see the folders of this machine.

    >>> hide_paths("the model cannot be built: KeyError: 'x' (/home/anna (work)/net.py, line 3)")
    "the model cannot be built: KeyError: 'x'"
    >>> hide_paths("[Errno 2] No such file or directory: '/srv/ward 7/a.npz'; look into /srv/ward/b.npz")
    "[Errno 2] No such file or directory: '…'; look into …"
    """
    message = re.sub(r" \((?:/|[A-Za-z]:\\).*?, line \d+\)", "", message)
    message = re.sub(r"""(['"])(?:/|[A-Za-z]:\\).*?\1""", r"\1…\1", message)
    return re.sub(r"(?<![\w./])(?:/|[A-Za-z]:\\)[^\s'\",;()]+", "…", message)


def add_note(error: BaseException, activity: str) -> None:
    """Add a note to an error: what was being done when it was raised, or what failed because of it.

    Python's own traceback shows the note too.
    """
    error.add_note(activity)
    error.__dict__.setdefault(_NOTES, []).append(activity)


@contextmanager
def note_on_error(activity: str) -> Iterator[None]:
    """Add a note to every error that is raised inside the block."""
    try:
        yield
    except Exception as error:
        add_note(error, activity)
        raise


def describe_failure(error: BaseException, default: str) -> str:
    """Describe in one line what failed, and the error.

    Args:
        error: The error; its notes say what failed.
        default: What failed, if no note says so.
    """
    notes = [*getattr(error, _NOTES, ()), default]
    first = next((index for index, note in enumerate(notes) if "failed" in note), len(notes) - 1)
    activity = ", ".join(reversed(notes[: first + 1]))
    return f"{activity}: {describe_error(error)}"


def describe_failure_with_traceback(error: BaseException, default: str) -> str:
    """Return `describe_failure`, followed by the traceback in debug mode, for another process to print."""
    return "\n".join(part for part in (describe_failure(error, default), format_traceback(error)) if part)


def is_debugging() -> bool:
    """Return whether the user asked for tracebacks with `--debug`."""
    return os.environ.get(DEBUG, "") not in ("", "0")


def format_traceback(error: BaseException) -> str:
    """Return the traceback with all errors that led to this one; empty if not in debug mode."""
    if not is_debugging():
        return ""
    chain: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and cause not in chain:
        chain.append(cause)
        cause.__suppress_context__ = cause.__cause__ is not None  # `raise … from None` must not hide an error here
        cause = cause.__cause__ or cause.__context__
    return "".join(traceback.format_exception(error)).rstrip()


def _may_be_user_code(file: str) -> bool:
    """Return whether a file is neither torch's nor the standard library's nor generated code."""
    if file.startswith("<"):
        return file.startswith(_INTERACTIVE)
    torch = sys.modules.get("torch")
    folder = os.path.dirname(torch.__file__ or "") + os.sep if torch is not None else None  # noqa: PTH120
    if folder is not None and file.startswith(folder):
        return False
    return _is_installed(file) or not file.startswith(_STANDARD_LIBRARY)


def _is_installed(file: str) -> bool:
    return any(folder in file for folder in _INSTALLED)
