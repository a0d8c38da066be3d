"""The page: one HTML file that needs nothing but itself."""

from functools import cache
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from string import Template
from typing import Any

from fedcm.errors import UserError
from fedcm.reports.html import sections
from fedcm.reports.html.markup import Html, embedded, joined, table, tag
from fedcm.reports.html.page_data import page_data
from fedcm.reports.story import Story

_SCRIPTS = ("look.js", "curves.js", "pictures.js", "page.js")  # each stands on those before it


def page(story: Story, stamp: str | None = None) -> str:
    """With a stamp the page looks now and then whether there is a newer one beside it, and shows that."""
    data = page_data(story)
    names = ", ".join(dict.fromkeys(str(run.experiment.get("name", run.name)) for run in story.digests))
    return Template(_template("page.html")).substitute(
        title=joined(f"{names[:80]} – fedcm report"),
        css=_template("page.css"),
        plotly=plotly_js(),
        script="\n".join(map(_template, _SCRIPTS)),
        data=embedded(data | {"stamp": stamp}),
        heading=sections.heading(story),
        result=sections.result(story),
        claims=sections.claims(story),
        curves_state="" if any(cell["rows"] for cell in data["cells"]) else "hidden",
        diagnosis=_pictures("diagnosis", "Why: drift, noise and momentum", data["diagnosis"], _diagnosed),
        costs=sections.costs(story) or "",
        participation=_pictures("participation", "Participation", data["participation"], _times),
        mixes=_pictures("mixes", "Label mix of the clients", data["mixes"], _counts),
        runs=sections.runs(story),
    )


@cache
def plotly_js() -> str:
    """The library as its Python package brings it; the package itself is not imported."""
    package = find_spec("plotly")
    if package is None or package.origin is None:
        raise UserError("a report needs plotly; install it with `pip install plotly`")
    script = (Path(package.origin).parent / "package_data" / "plotly.min.js").read_text(encoding="utf-8")
    return script.replace("</script", "<\\/script")


def _template(name: str) -> str:
    return files("fedcm.reports.html").joinpath(name).read_text(encoding="utf-8")


def _pictures(name: str, title: str, pictures: list[dict[str, Any]], numbers: Any) -> Html:
    """A place for each picture that the script draws, with its numbers as a table below it."""
    if not pictures:
        return Html("")
    figures = [
        tag(
            "figure",
            tag("figcaption", tag("strong", picture["title"]), ": ", picture["said"]),
            tag("div", class_="plot small", role="img", aria_label=f"{title}: {picture['title']}; {picture['said']}"),
            tag("details", tag("summary", "The numbers of this picture"), numbers(picture)),
            data_picture=f"{name} {k}",
        )
        for k, picture in enumerate(pictures)
    ]
    return tag(
        "section",
        tag("h2", title, id=f"{name}-title"),
        tag("div", *figures, class_="pictures"),
        id=name,
        aria_labelledby=f"{name}-title",
    )


def _times(picture: dict[str, Any]) -> Html:
    rows: list[list[object]] = [[times, f"{clients:g}"] for times, clients in picture["times"]]
    return table(f"How often clients took part: {picture['title']}", ["rounds taken part in", "clients"], rows)


def _diagnosed(picture: dict[str, Any]) -> Html:
    rounds = sorted({round for line in picture["lines"] for round in line["round"]})
    by_run = [dict(zip(line["round"], line["value"], strict=True)) for line in picture["lines"]]
    rows: list[list[object]] = [[round, *(_told(values.get(round)) for values in by_run)] for round in rounds]
    return table(
        f"{picture['title']} ({picture['said']})", ["round", *(line["name"] for line in picture["lines"])], rows
    )


def _told(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"


def _counts(picture: dict[str, Any]) -> Html:
    shown = picture["shown"]
    head: list[object] = ["client drawn", *(f"class {k}" for k in range(len(shown[0]) if shown else 0))]
    return table(f"Examples by class: {picture['title']}", head, [[k + 1, *row] for k, row in enumerate(shown)])
