"""The page: one HTML file that needs no other file and no network."""

from collections.abc import Callable, Sequence
from functools import cache
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from string import Template
from typing import Any, NamedTuple

from fedcm.errors import UserError
from fedcm.reports.document import Document
from fedcm.reports.html import sections
from fedcm.reports.html.markup import Html, embed_json, join, make_table, tag
from fedcm.reports.html.page_data import make_page_data
from fedcm.reports.html.site_table import render_site_tables

_SCRIPTS = ("style.js", "curves.js", "pictures.js", "page.js")  # each uses those before it


class SearchSection(NamedTuple):
    """The section about the trials of a tuning."""

    pictures: Sequence[dict[str, Any]] = ()
    tables: Sequence[Html] = ()


def render_page(document: Document, stamp: str | None = None, search: SearchSection | None = None) -> str:
    """Return the page as HTML.

    Args:
        document: The content.
        stamp: For a live page; the page reloads itself when `stamp.js` beside it has another stamp.
        search: The trials of a tuning, if the report is about one.
    """
    search = search or SearchSection()
    data = make_page_data(document) | {"search": [*search.pictures]}
    names = ", ".join(dict.fromkeys(str(run.experiment.get("name", run.name)) for run in document.digests))
    return Template(_read_template("page.html")).substitute(
        title=join(f"{names[:80]} – fedcm report"),
        css=_read_template("page.css"),
        plotly=read_plotly_js(),
        script="\n".join(map(_read_template, _SCRIPTS)),
        data=embed_json(data | {"stamp": stamp}),
        heading=sections.render_heading(document),
        result=sections.render_results(document),
        claims=sections.render_claims(document) or "",
        curves_state="" if any(cell["rows"] for cell in data["cells"]) else "hidden",
        search=_render_pictures("search", "Search", data["search"], _render_trials, *search.tables),
        diagnosis=_render_pictures("diagnosis", "Drift, noise and momentum", data["diagnosis"], _render_diagnosis),
        agreement=_render_pictures("agreement", "Agreement of the nodes", data["agreement"], _render_diagnosis),
        system=_render_pictures(
            "system", "System", data["system"], _render_lines_or_bins, *render_site_tables(document)
        ),
        costs=sections.render_costs(document) or "",
        clients=_render_pictures("clients", "Results of the clients", data["clients"], _render_bins),
        participation=_render_pictures("participation", "Participation", data["participation"], _render_times),
        mixes=_render_pictures("mixes", "Label mix of the clients", data["mixes"], _render_counts),
        runs=sections.render_runs(document),
    )


@cache
def read_plotly_js() -> str:
    """Return plotly.js from plotly's Python package, without importing the package.

    Raises:
        UserError: If plotly is not installed.
    """
    package = find_spec("plotly")
    if package is None or package.origin is None:
        raise UserError("a report needs plotly; install it with `pip install plotly`")
    script = (Path(package.origin).parent / "package_data" / "plotly.min.js").read_text(encoding="utf-8")
    return script.replace("</script", "<\\/script")


def _read_template(name: str) -> str:
    return files("fedcm.reports.html").joinpath(name).read_text(encoding="utf-8")


def _render_pictures(
    name: str,
    title: str,
    pictures: list[dict[str, Any]],
    render_numbers: Callable[[dict[str, Any]], Html],
    *tables: Html,
) -> Html:
    """Return a section with a place for each picture that the script draws, and the picture's numbers as a table."""
    if not pictures and not tables:
        return Html("")
    figures = [
        tag(
            "figure",
            tag("figcaption", tag("strong", picture["title"]), ": ", picture["caption"]),
            tag(
                "div", class_="plot small", role="img", aria_label=f"{title}: {picture['title']}; {picture['caption']}"
            ),
            tag("details", tag("summary", "The numbers of this figure"), render_numbers(picture)),
            data_picture=f"{name} {k}",
        )
        for k, picture in enumerate(pictures)
    ]
    return tag(
        "section",
        tag("h2", title, id=f"{name}-title"),
        tag("div", *figures, class_="pictures"),
        *tables,
        id=name,
        aria_labelledby=f"{name}-title",
    )


def _render_trials(picture: dict[str, Any]) -> Html:
    rows: list[list[object]] = [[number, x, _format_value(y), state] for x, y, number, state in picture["points"]]
    return make_table(picture["title"], ["trial", picture["x_title"], picture["y_title"], "state"], rows)


def _render_times(picture: dict[str, Any]) -> Html:
    rows: list[list[object]] = [[times, f"{clients:g}"] for times, clients in picture["times"]]
    return make_table(f"How often clients took part: {picture['title']}", ["rounds taken part in", "clients"], rows)


def _render_bins(picture: dict[str, Any]) -> Html:
    rows: list[list[object]] = [[f"{centre:.4g}", count] for centre, count in picture["bins"]]
    head: list[object] = [f"{picture['metric']}, centre", picture["counted"]]
    return make_table(f"{picture['title']}: {picture['caption']}", head, rows)


def _render_lines_or_bins(picture: dict[str, Any]) -> Html:
    return _render_bins(picture) if "bins" in picture else _render_diagnosis(picture)


def _render_diagnosis(picture: dict[str, Any]) -> Html:
    rounds = sorted({round for line in picture["lines"] for round in line["round"]})
    by_run = [dict(zip(line["round"], line["value"], strict=True)) for line in picture["lines"]]
    rows: list[list[object]] = [[round, *(_format_value(values.get(round)) for values in by_run)] for round in rounds]
    head: list[object] = [picture.get("x", "round"), *(line["name"] for line in picture["lines"])]
    return make_table(f"{picture['title']} ({picture['caption']})", head, rows)


def _format_value(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"


def _render_counts(picture: dict[str, Any]) -> Html:
    shown = picture["shown"]
    head: list[object] = ["client shown", *(f"class {k}" for k in range(len(shown[0]) if shown else 0))]
    return make_table(f"Examples by class: {picture['title']}", head, [[k + 1, *row] for k, row in enumerate(shown)])
