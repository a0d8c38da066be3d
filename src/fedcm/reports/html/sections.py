"""The sections of the page: results first, then the paper's claims, costs and runs."""

from itertools import groupby

from fedcm.reports.claims.headline import write_headline
from fedcm.reports.claims.verdicts import MARKS
from fedcm.reports.differences import format_settings, list_differing_settings
from fedcm.reports.digest import Digest
from fedcm.reports.document import Document
from fedcm.reports.entry import MAIN, MEASURES
from fedcm.reports.html.client_table import render_client_table
from fedcm.reports.html.cost_table import name_target, render_cost_table
from fedcm.reports.html.markup import Html, join, make_table, tag
from fedcm.reports.html.metric_table import render_metric_table
from fedcm.reports.html.result_table import render_result_table
from fedcm.reports.metric import ACCURACY, choose_metric, describe_divergence
from fedcm.system.formatting import format_bytes, format_count, format_duration


def render_heading(document: Document) -> Html:
    """Return the title and the number of runs, algorithms and seeds."""
    names = list(dict.fromkeys(run.experiment.get("name", run.name) for run in document.digests))
    title = ", ".join(map(str, names[:3])) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    counts = (
        format_count(len(document.digests), "run"),
        format_count(len({run.algorithm for run in document.digests}), "algorithm"),
        format_count(len({run.seed for run in document.digests}), "seed"),
    )
    running = f" {format_count(document.running, 'run')} in progress." if document.running else ""
    time = document.created
    created = tag("time", f"{time:%Y-%m-%d %H:%M} UTC", datetime=time.isoformat(timespec="seconds"))
    return join(tag("h1", title), tag("p", f"{', '.join(counts)}. Created ", created, f".{running}", class_="lead"))


def render_results(document: Document) -> Html:
    """Return the headlines and tables, and the runs that were left out."""
    parts: list[object] = []
    if not document.is_evaluated:
        parts.append(tag("p", "Nothing has been evaluated yet: no run has a test accuracy or loss.", class_="answer"))
    else:
        for group in document.groups:
            headline = write_headline(group)
            text = headline if len(document.groups) == 1 else f"{group.title}: {headline}"
            parts.append(tag("p", text, class_="answer"))
        radios = [tag("label", _render_radio(m), " ", _describe_measure(document, m)) for m in MEASURES]
        used = dict.fromkeys(group.metric for group in document.groups)
        shown = [metric.title for metric in sorted(used, key=lambda metric: not metric.is_share)]
        parts.append(tag("fieldset", tag("legend", f"{' and '.join(shown)}:"), *radios, class_="measures"))
        parts += [render_result_table(group) for group in document.groups]
        parts += [table for group in document.groups if (table := render_metric_table(group))]
        parts += [table for group in document.groups if (table := render_client_table(group))]
    if document.skipped:
        parts.append(tag("p", "Left out:"))
        parts.append(tag("ul", *(tag("li", sentence) for sentence in document.skipped)))
    return _render_section("result", "Results", *parts)


def render_claims(document: Document) -> Html | None:
    """Return the paper's claims with their verdicts; None if the runs are not of the paper's grids."""
    if not document.claims:
        return None
    items = []
    for claim in document.claims:
        mark = tag("span", MARKS[claim.verdict], aria_hidden="true")
        verdict = tag("span", mark, " ", claim.verdict, class_=f"verdict {claim.verdict.replace(' ', '-')}")
        lines = [tag("li", line) for line in claim.evidence]
        items.append(tag("li", verdict, tag("div", tag("strong", claim.text), tag("ul", *lines))))
    about = (
        "The claims of the FedCM paper that go beyond single cells, compared with these runs by the "
        f"{_describe_measure(document, MAIN)}. Seen: every difference supports the claim, and its 95 % interval over "
        "seeds excludes 0. Suggestive: every difference supports it, but within the uncertainty, or with fewer than "
        "three seeds. Not seen: a difference does not support it. Contradicted: a difference is against it, beyond the "
        "uncertainty."
    )
    return _render_section(
        "claims", "Claims of the paper", tag("p", about, class_="lead"), tag("ul", *items, class_="claims")
    )


def render_costs(document: Document) -> Html | None:
    """Return the tables of rounds and bytes; None if no run reached a target."""
    tables = {k: table for k, group in enumerate(document.groups) if (table := render_cost_table(group))}
    target = name_target(document.groups[k] for k in tables)
    return _render_section("costs", f"Rounds and bytes to reach {target}", *tables.values()) if tables else None


def render_runs(document: Document) -> Html:
    """Return the table of runs, all settings and versions."""
    settings = [format_settings(run.experiment) for run in document.digests]
    hidden = ("cell.", "engine.", "federation.", "name", "topology.")
    graph = ["graph"] if any(run.is_decentralised for run in document.digests) else []
    private = ["ε spent"] if any(run.curve.epsilon for run in document.digests) else []
    paths = [path for path in list_differing_settings(settings) if not path.startswith(hidden)]
    rows: list[list[object]] = []
    for run, own in zip(document.digests, settings, strict=True):
        last = describe_divergence([run.divergence_round]) or _format_last_evaluation(run)
        sent = format_bytes(run.summary.get("bytes_down", 0) + run.summary.get("bytes_up", 0))
        columns = [run.state, f"{run.rounds_done} of {run.experiment['rounds']}", last, sent]
        columns.append(format_duration(run.summary.get("seconds", 0)))
        columns += [f"{run.curve.epsilon[-1]:.3g}" if run.curve.epsilon else "∞" for _ in private]
        rows.append([run.name, *columns, *(run.graph or "–" for _ in graph), *(own.get(path, "–") for path in paths)])
    head = ["run", "state", "rounds", "last evaluation", "bytes", "time", *private, *graph, *paths]
    differ = paths or len({run.graph for run in document.digests}) > 1
    caption = "All runs, with the settings in which they differ" if differ else "All runs; their settings do not differ"
    table = make_table(caption, [*head], rows)
    return _render_section("runs", "Runs", table, _render_all_settings(document), _render_versions(document))


def _describe_measure(document: Document, measure: str) -> str:
    """Describe the rounds of a measure if they are the same in all tables; each table also describes its own."""
    descriptions = {group.describe_measure(measure) for group in document.groups}
    return descriptions.pop() if len(descriptions) == 1 else MEASURES[measure]


def _render_radio(measure: str) -> Html:
    return Html(f'<input type="radio" name="measure" value="{measure}"{" checked" if measure == MAIN else ""}>')


def _format_last_evaluation(run: Digest) -> str:
    metric = choose_metric([(run.headline, run.test_losses)])
    scores = run.read_scores(metric)
    if scores is None:
        return "–"
    value = metric.format_with_unit(metric.scale * scores["last"])
    return value if metric == ACCURACY else f"{metric.title} {value}"


def _render_all_settings(document: Document) -> Html:
    parts = []
    for run in document.digests:
        rows: list[list[object]] = [[path, text] for path, text in format_settings(run.experiment).items()]
        table = make_table(f"Settings of {run.name}", ["setting", "value"], rows)
        parts.append(tag("details", tag("summary", run.name), table))
    return tag("details", tag("summary", "All settings of all runs"), *parts)


def _render_versions(document: Document) -> Html:
    def list_versions(run: Digest) -> tuple[tuple[str, str], ...]:
        cpu = [("CPU", " ".join(run.cpu.values()))] if run.cpu else []
        return (*run.versions.items(), ("platform", run.platform), *cpu)

    ordered = sorted(document.digests, key=list_versions)
    rows: list[list[object]] = [
        [", ".join(f"{name} {version}" for name, version in versions), str(len(list(runs)))]
        for versions, runs in groupby(ordered, key=list_versions)
    ]
    return make_table("Versions and machines of the runs", ["versions", "runs"], rows, class_="words")


def _render_section(name: str, title: str, *content: object) -> Html:
    return tag("section", tag("h2", title, id=f"{name}-title"), *content, id=name, aria_labelledby=f"{name}-title")
