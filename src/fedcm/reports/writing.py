"""A report's folder: the page, and its figures and tables for papers."""

import re
from pathlib import Path

import numpy as np

from fedcm.reports.figures.figures import draw_group
from fedcm.reports.figures.label_mix import draw_label_mix
from fedcm.reports.html.cost_table import cost_sheet
from fedcm.reports.html.page import page
from fedcm.reports.html.page_data import mixes
from fedcm.reports.html.result_table import numbers_sheet, result_sheet
from fedcm.reports.sheet import Sheet
from fedcm.reports.story import Story
from fedcm.system.files import write_text

PAGE = "index.html"
_STAMP = "stamp.js"


def write_page(story: Story, folder: Path, stamp: str | None = None) -> Path:
    """The stamp is written after the page, so that whoever sees a new one finds the page that belongs to it."""
    write_text(folder / PAGE, page(story, stamp))
    if stamp is not None:
        write_text(folder / _STAMP, f'window.fedcmStamp = "{stamp}";\n')
    return folder / PAGE


def end_live(story: Story, folder: Path) -> None:
    """The last page looks for no other; the pages that are open go over to it when the stamp changes."""
    write_page(story, folder)
    write_text(folder / _STAMP, 'window.fedcmStamp = "over";\n')


def write_extras(story: Story, folder: Path) -> None:
    """Figures as PNG and PDF, tables as LaTeX, Markdown and CSV."""
    figures, tables = folder / "figures", folder / "tables"
    names: set[str] = set()
    for group in story.groups:
        name = _file_name(group.title, names)
        draw_group(group, story.looks, figures, name)
        result_sheet(group, f"{name}-{group.metric.file_name}").write(tables)
        if costs := cost_sheet(group, f"{name}-costs"):
            costs.write(tables)
    for mix in mixes(story):
        name = _file_name(f"split {mix['title']}", names)
        for suffix in (".png", ".pdf"):
            draw_label_mix(np.array(mix["shown"]), mix["title"], figures / f"{name}{suffix}")
    write_text(tables / "numbers.csv", numbers_sheet(story.groups).csv())
    _claims(story).write(tables)


def _claims(story: Story) -> Sheet:
    body = [(claim.text, claim.verdict, "; ".join(claim.evidence)) for claim in story.claims]
    return Sheet(
        "claims", "The FedCM paper's claims in these runs", ("claim", "verdict", "numbers"), tuple(body), texts=3
    )


def _file_name(title: str, taken: set[str]) -> str:
    plain = re.sub(r"[^a-z0-9.]+", "-", title.lower()).strip("-.")[:60] or "runs"
    name, k = plain, 2
    while name in taken:
        name, k = f"{plain}-{k}", k + 1
    taken.add(name)
    return name
