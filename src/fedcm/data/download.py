"""A file from the network, whole or not at all.

Bytes are kept in `<target>.part` as they come, so that a cut connection, or a run stopped by hand, goes on where it
was; only when the md5 is right does the file get its name.
"""

import http.client
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from fedcm.data.checksum import file_md5
from fedcm.errors import UserError
from fedcm.system.files import fsync_file

Progress = Callable[[int, int | None], None]  # bytes so far, bytes in all where the server tells

_TIMEOUT = 30.0  # seconds without an answer or a byte
_CUTS = 5  # connections lost in a row before giving up
_CHUNK = 1 << 18


class _NothingMore(Exception):  # noqa: N818 - an answer of the server
    """The server has nothing beyond what the part file holds."""


def download(url: str, target: Path, *, md5: str, progress: Progress | None = None) -> Path:
    """Fetch `url` to `target`; without `progress` a bar shows on a terminal and nothing elsewhere."""
    if progress is None:
        with bar(target.name) as shown:
            return download(url, target, md5=md5, progress=shown)
    part = target.with_name(f"{target.name}.part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        for _ in range(2):  # what was left by an earlier run may be of another file: once more from nothing
            _fetch(url, part, progress)
            if file_md5(part) == md5:
                fsync_file(part)
                return part.replace(target)
            part.unlink()
    except urllib.error.HTTPError as error:
        raise UserError(f"{url} cannot be downloaded: the server answers {error.code} {error.reason}") from error
    except (OSError, http.client.HTTPException) as error:  # URLError and timeouts are OSErrors
        reason = getattr(error, "reason", error)
        told = getattr(reason, "strerror", None) or str(reason) or type(error).__name__
        raise UserError(f"{url} cannot be downloaded: {told}") from error
    raise UserError(f"{url} must have the md5 {md5}, got another file twice; fetch it by another way")


def _fetch(url: str, part: Path, progress: Progress) -> None:
    """The whole file into `part`, over as many connections as it takes while each of them brings something."""
    for left in reversed(range(_CUTS)):
        before = part.stat().st_size if part.exists() else 0
        try:
            missing = _receive(url, part, before, progress)
        except _NothingMore:
            return
        except (ConnectionError, TimeoutError, http.client.HTTPException):
            if left == 0 or not part.exists() or part.stat().st_size <= before:
                raise
        else:
            if missing == 0:
                return
            if left == 0:
                raise ConnectionError(f"the connection was cut with {missing:,} bytes to go; run it again to go on")


def _receive(url: str, part: Path, have: int, progress: Progress) -> int:
    """One connection: append what is missing, or start over where the server sends the whole; the bytes still to go."""
    request = urllib.request.Request(
        url, headers={"User-Agent": "fedcm"} | ({"Range": f"bytes={have}-"} if have else {})
    )
    try:
        response = urllib.request.urlopen(request, timeout=_TIMEOUT)
    except urllib.error.HTTPError as error:
        error.close()
        if have and error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            raise _NothingMore from error
        raise
    with response:
        resumed = response.headers.get("Content-Range", "").startswith(f"bytes {have}-")
        done = have if resumed else 0
        length = response.headers.get("Content-Length")
        total = done + int(length) if length and length.isdigit() else None
        with part.open("ab" if resumed else "wb") as file:
            while chunk := response.read(_CHUNK):
                file.write(chunk)
                done += len(chunk)
                progress(done, total)
    return 0 if total is None else max(total - done, 0)


@contextmanager
def bar(title: str) -> Iterator[Progress]:
    """A progress bar where a person watches (stderr is a terminal), silence in a log."""
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich import progress as rich_progress
    from rich.console import Console

    columns = (
        rich_progress.TextColumn("{task.description}"),
        rich_progress.BarColumn(),
        rich_progress.DownloadColumn(),
        rich_progress.TransferSpeedColumn(),
        rich_progress.TimeRemainingColumn(),
    )
    with rich_progress.Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task(title, total=None)
        yield lambda done, total: shown.update(task, completed=done, total=total)
