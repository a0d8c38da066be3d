"""Download a file completely or not at all.

Bytes are appended to `<target>.part` as they arrive, so a lost connection or an interrupted command resumes where it
stopped. The file gets its name only if its checksum is right.
"""

import http.client
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from fedcm.errors import UserError
from fedcm.system.checksum import compute_file_md5, compute_file_sha256
from fedcm.system.files import fsync_file

Progress = Callable[[int, int | None], None]  # (bytes received, bytes in total if the server reports it)

_TIMEOUT = 30.0  # seconds to wait for an answer or a byte
_MAX_CONNECTIONS = 5
_CHUNK = 1 << 18


class _AlreadyComplete(Exception):  # noqa: N818 - an answer of the server, not an error
    """The server has no bytes beyond those in the part file."""


def download_file(
    url: str, target: Path, *, md5: str | None = None, sha256: str | None = None, progress: Progress | None = None
) -> Path:
    """Download `url` to `target`; one of the two checksums must be given.

    Args:
        url: The address.
        target: The file to write; its folder is created.
        md5: The md5 that the file must have.
        sha256: The sha256 that the file must have.
        progress: Called with the bytes received and the total. By default a progress bar is shown on a terminal.

    Raises:
        UserError: If the server cannot be reached, or the file has another checksum twice.
    """
    if progress is None:
        with show_progress_bar(target.name) as update:
            return download_file(url, target, md5=md5, sha256=sha256, progress=update)
    kind, expected, compute = (
        ("md5", md5, compute_file_md5) if sha256 is None else ("sha256", sha256, compute_file_sha256)
    )
    part = target.with_name(f"{target.name}.part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        for _ in range(2):  # the part file of an earlier command may be of another file; then start again
            _fetch(url, part, progress)
            if compute(part) == expected:
                fsync_file(part)
                return part.replace(target)
            part.unlink()
    except urllib.error.HTTPError as error:
        raise UserError(f"{url} cannot be downloaded: the server answers {error.code} {error.reason}") from error
    except (OSError, http.client.HTTPException) as error:  # URLError and timeouts are OSErrors
        reason = getattr(error, "reason", error)
        message = getattr(reason, "strerror", None) or str(reason) or type(error).__name__
        raise UserError(f"{url} cannot be downloaded: {message}") from error
    raise UserError(f"{url} must have the {kind} {expected}, got another file twice; download it in another way")


def _fetch(url: str, part: Path, progress: Progress) -> None:
    """Fetch the whole file into `part`, reconnecting as long as every connection brings some bytes."""
    for retries in reversed(range(_MAX_CONNECTIONS)):
        before = part.stat().st_size if part.exists() else 0
        try:
            missing = _receive(url, part, before, progress)
        except _AlreadyComplete:
            return
        except (ConnectionError, TimeoutError, http.client.HTTPException):
            if retries == 0 or not part.exists() or part.stat().st_size <= before:
                raise
        else:
            if missing == 0:
                return
            if retries == 0:
                raise ConnectionError(f"the connection was lost with {missing:,} bytes to go; run it again to resume")


def _receive(url: str, part: Path, size: int, progress: Progress) -> int:
    """Append the missing bytes to `part` over one connection, or start over if the server sends the whole file.

    Returns:
        The number of bytes still missing.
    """
    request = urllib.request.Request(
        url, headers={"User-Agent": "fedcm"} | ({"Range": f"bytes={size}-"} if size else {})
    )
    try:
        response = urllib.request.urlopen(request, timeout=_TIMEOUT)
    except urllib.error.HTTPError as error:
        error.close()
        if size and error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            raise _AlreadyComplete from error
        raise
    with response:
        is_resumed = response.headers.get("Content-Range", "").startswith(f"bytes {size}-")
        done = size if is_resumed else 0
        length = response.headers.get("Content-Length")
        total = done + int(length) if length and length.isdigit() else None
        with part.open("ab" if is_resumed else "wb") as file:
            while chunk := response.read(_CHUNK):
                file.write(chunk)
                done += len(chunk)
                progress(done, total)
    return 0 if total is None else max(total - done, 0)


@contextmanager
def show_progress_bar(title: str) -> Iterator[Progress]:
    """Show a progress bar inside the block if stderr is a terminal; the block receives the function that updates it."""
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
    with rich_progress.Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
