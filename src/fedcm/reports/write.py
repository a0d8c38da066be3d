"""Write a report's folder: the page, with figures and tables for papers."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fedcm.reports.collect import RunCollection
from fedcm.reports.digest import write_digest
from fedcm.reports.document import Document, build_document
from fedcm.reports.figures.client_histogram import draw_client_histogram
from fedcm.reports.figures.group_curves import draw_group
from fedcm.reports.figures.label_mix import draw_label_mix
from fedcm.reports.html.client_table import list_client_histograms, make_client_sheet
from fedcm.reports.html.cost_table import make_cost_sheet
from fedcm.reports.html.page import SearchSection, render_page
from fedcm.reports.html.page_data import list_label_mixes
from fedcm.reports.html.result_table import make_numbers_sheet, make_result_sheet
from fedcm.reports.html.site_table import make_site_sheet
from fedcm.reports.html.system_plots import list_step_histograms
from fedcm.reports.sheet import Sheet
from fedcm.system.callbacks import Notify
from fedcm.system.files import write_text
from fedcm.system.formatting import slugify

PAGE = "index.html"
_STAMP = "stamp.js"


def write_report(
    paths: Sequence[Path],
    output: Path,
    data_dir: Path | None = None,
    cells: Mapping[Path, dict[str, Any]] | None = None,
    notify: Notify = lambda message: None,
    search: SearchSection | None = None,
) -> Path:
    """Write a page about runs, with figures and tables.

    Args:
        paths: runs' folders, folders of runs, or digests.
        output: the report's folder.
        data_dir: where datasets are stored, for the label mixes.
        cells: by run folder, the cell to show the run in, in place of the cell in the run's own files.
        notify: Receives one message per run that cannot be read.
        search: The trials of the tuning that chose the runs' settings, if there was one.

    Returns:
        The page's path.

    Raises:
        UserError: If a path does not exist, or there is no run to report.
    """
    collection = RunCollection(data_dir, cells or {})
    document = read_document(collection, paths)
    write_page(document, output, search=search)
    write_figures_and_tables(document, output)
    report_skipped(collection.skipped, notify)
    return output / PAGE


def write_digests(
    paths: Sequence[Path],
    output: Path,
    data_dir: Path | None = None,
    notify: Notify = lambda message: None,
) -> list[Path]:
    """Write one digest per run into a folder, and return their paths. The arguments are those of `write_report`."""
    collection = RunCollection(data_dir)
    written = []
    for digest in collection.read_digests(paths):
        # a run's name is that of a folder, but a digest's may have any characters
        name = slugify(digest.name).strip(".-") or "run"
        written.append(output / f"{name}.json")
        write_digest(digest, written[-1])
    report_skipped(collection.skipped, notify)
    return written


def read_document(collection: RunCollection, paths: Sequence[Path]) -> Document:
    """Read runs and build a report's content."""
    return build_document(collection.read_digests(paths), collection.skipped, datetime.now(UTC))


def report_skipped(skipped: Sequence[str], notify: Notify) -> None:
    """Pass on one message per run that could not be read."""
    for reason in skipped:
        notify(f"left out: {reason}")


def write_page(document: Document, folder: Path, stamp: str | None = None, search: SearchSection | None = None) -> Path:
    """Write the page.

    Args:
        document: The content.
        folder: The report's folder.
        stamp: For a live page, a text that changes with every version. An open page reloads itself when the stamp
            changes; it is written after the page, so that the reload finds the new page.
        search: The trials of a tuning, if the report is about one.
    """
    write_text(folder / PAGE, render_page(document, stamp, search))
    if stamp is not None:
        write_text(folder / _STAMP, f'window.fedcmStamp = "{stamp}";\n')
    return folder / PAGE


def write_last_page(document: Document, folder: Path) -> None:
    """Write the last version of a live page: open pages reload it, and it does not look for another."""
    write_page(document, folder)
    write_text(folder / _STAMP, 'window.fedcmStamp = "over";\n')


def write_figures_and_tables(document: Document, folder: Path) -> None:
    """Write figures as PNG and PDF, and tables as LaTeX, Markdown and CSV."""
    figures, tables = folder / "figures", folder / "tables"
    names: set[str] = set()
    for group in document.groups:
        name = _choose_file_name(group.title, names)
        draw_group(group, document.styles, figures, name)
        make_result_sheet(group, f"{name}-{group.metric.file_name}").write(tables)
        for sheet in (make_client_sheet(group, f"{name}-clients"), make_cost_sheet(group, f"{name}-costs")):
            if sheet is not None:
                sheet.write(tables)
    titled = [(f"clients {one['title']} {one['model']}", one) for one in list_client_histograms(document)]
    titled += [(f"steps {one['name']}", one) for one in list_step_histograms(document)]
    for title, picture in titled:
        _draw_twice(partial(draw_client_histogram, picture), figures / _choose_file_name(title, names))
    for mix in list_label_mixes(document):
        draw = partial(draw_label_mix, np.array(mix["shown"]), mix["title"])
        _draw_twice(draw, figures / _choose_file_name(f"split {mix['title']}", names))
    for run in document.digests:
        if sheet := make_site_sheet(run, _choose_file_name(f"sites {run.name}", names)):
            sheet.write(tables)
    write_text(tables / "numbers.csv", make_numbers_sheet(document.groups).to_csv())
    if document.claims:
        _make_claims_sheet(document).write(tables)


def _draw_twice(draw: Callable[[Path], object], path: Path) -> None:
    """Draw a figure as PNG and PDF."""
    for suffix in (".png", ".pdf"):
        draw(path.with_name(f"{path.name}{suffix}"))


def _make_claims_sheet(document: Document) -> Sheet:
    body = [(claim.text, claim.verdict, "; ".join(claim.evidence)) for claim in document.claims]
    return Sheet(
        "claims", "The FedCM paper's claims in these runs", ("claim", "verdict", "numbers"), tuple(body), texts=3
    )


def _choose_file_name(title: str, taken: set[str]) -> str:
    """Return a file name for a title that is not taken yet, and add it to `taken`."""
    plain = slugify(title.lower(), allowed="a-z0-9.").strip("-.")[:60] or "runs"
    name, k = plain, 2
    while name in taken:
        name, k = f"{plain}-{k}", k + 1
    taken.add(name)
    return name
