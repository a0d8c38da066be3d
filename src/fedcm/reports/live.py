"""Keep a report's page current while runs are in progress."""

import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from fedcm.errors import UserError
from fedcm.reports.collect import RunCollection, has_runs
from fedcm.reports.document import Document
from fedcm.reports.write import (
    PAGE,
    read_document,
    report_skipped,
    write_figures_and_tables,
    write_last_page,
    write_page,
)
from fedcm.system.callbacks import Notify, StopRequested
from fedcm.system.signals import StopSignals

_INTERVAL = 3.0  # seconds between two reads of the runs
_PATIENCE = 15.0  # seconds without a run in progress; a comparison starts its next run within this time


def keep_report_current(
    paths: Sequence[Path],
    output: Path,
    data_dir: Path | None = None,
    print_status: Notify = lambda message: None,
    notify: Notify = lambda message: None,
) -> None:
    """Write the page whenever a run has made progress, and figures and tables at the end.

    Waits for the first run if there is none. Returns 15 seconds after the last run has ended, or on Ctrl-C.

    Args:
        paths: runs' folders, folders of runs, or digests.
        output: the report's folder.
        data_dir: where datasets are stored, for the label mixes.
        print_status: Receives where the page is, or that there is no run yet.
        notify: Receives one message per run that cannot be read, and why the function returns.

    Raises:
        UserError: If there are runs or digests, and none can be read.
    """
    collection = RunCollection(data_dir)
    with StopSignals(quiet=True) as stop_requested:
        document = _wait_for_first_run(collection, paths, stop_requested, print_status)
        if document is None:
            notify("no run has started; no report was written")
            return
        print_status(f"report: {output / PAGE}, kept current; Ctrl-C ends it")
        document = _watch_runs(collection, paths, output, document, stop_requested)
        write_last_page(document, output)
        write_figures_and_tables(document, output)
    report_skipped(collection.skipped, notify)
    notify("the page shows the runs up to now; they continue" if document.running else "no run is in progress any more")


def _wait_for_first_run(
    collection: RunCollection, paths: Sequence[Path], stop_requested: StopRequested, print_status: Notify
) -> Document | None:
    """Return the first document; None if stopped before."""
    if has_runs(paths):
        return read_document(collection, paths)
    print_status(f"waiting for the first run in {', '.join(map(str, paths))}; Ctrl-C ends it")
    while not stop_requested():
        if has_runs(paths):
            with suppress(UserError):  # a run whose files are just being written
                return read_document(collection, paths)
        _sleep(_INTERVAL, stop_requested)
    return None


def _watch_runs(
    collection: RunCollection,
    paths: Sequence[Path],
    output: Path,
    document: Document,
    stop_requested: StopRequested,
) -> Document:
    """Write the page whenever a run has changed, and return the last document."""
    written, number, last_active = None, 0, time.monotonic()
    while not stop_requested():
        if document.digests != written:
            number, written = number + 1, document.digests
            write_page(document, output, f"{document.created:%Y%m%d%H%M%S}-{number}")
        now = time.monotonic()
        last_active = now if document.running else last_active
        if now - last_active > _PATIENCE:
            break
        _sleep(_INTERVAL, stop_requested)
        with suppress(UserError):  # a folder that is just being replaced; keep what was read before
            document = read_document(collection, paths)
    return document


def _sleep(seconds: float, stop_requested: StopRequested) -> None:
    """Sleep, but wake up early if stopped."""
    until = time.monotonic() + seconds
    while not stop_requested() and time.monotonic() < until:
        time.sleep(0.1)
