"""The sites of a federation: how often each one counted, and how much it moved the mean."""

from fedcm.reports.digest import Digest, SiteResults
from fedcm.reports.document import Document
from fedcm.reports.html.markup import Html, make_table, tag
from fedcm.reports.sheet import Sheet

_HEADINGS = (
    "site",
    "rounds counted",
    "rounds missed",
    "rounds shortened",
    "mean share",
    "largest share",
    "in round",
    "lowest cosine",
)
_EXPLANATION = (
    "A share is the distance by which a site's report moves the plain mean of all reports of a round, divided by the "
    "sum of these distances; look first at the sites at the top."
)


def render_site_tables(document: Document) -> list[Html]:
    """Return an explanation and a table for each run that recorded influences; empty if there is none."""
    tables = [
        make_table(_describe_table(run), [*_HEADINGS], [[*row] for row in _list_rows(run)])
        for run in document.digests
        if run.sites
    ]
    return [tag("p", _EXPLANATION, class_="lead"), *tables] if tables else []


def make_site_sheet(run: Digest, name: str) -> Sheet | None:
    """Return the table of a run as a sheet; None if the run recorded no influences."""
    rows = _list_rows(run)
    return Sheet(name, f"{_describe_table(run)}. {_EXPLANATION}", _HEADINGS, tuple(map(tuple, rows))) if rows else None


def _describe_table(run: Digest) -> str:
    return f"Sites of {run.name}"


def _list_rows(run: Digest) -> list[list[str]]:
    """Return one row per site, the largest share first."""
    return [
        [
            one.site,
            *map(str, (one.counted, one.missed, one.shortened)),
            _format_number(one.mean_share),
            _format_number(one.largest_share),
            "–" if one.largest_share_round is None else str(one.largest_share_round),
            _format_number(one.lowest_cosine),
        ]
        for one in sorted(run.sites, key=_rank)
    ]


def _rank(one: SiteResults) -> tuple[float, float, str]:
    share = -1.0 if one.largest_share is None else one.largest_share
    cosine = 1.0 if one.lowest_cosine is None else one.lowest_cosine
    return -share, cosine, one.site


def _format_number(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"
