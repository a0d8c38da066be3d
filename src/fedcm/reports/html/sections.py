"""The parts of the page, in the order in which a reader asks: the answer, the claims, the curves, then the runs."""

from itertools import groupby

from fedcm.reports.claims.answer import answer
from fedcm.reports.claims.verdicts import MARKS
from fedcm.reports.differences import differing, flat
from fedcm.reports.digest import Digest
from fedcm.reports.entry import MAIN, MEASURES
from fedcm.reports.html.cost_table import cost_table
from fedcm.reports.html.markup import Html, joined, table, tag
from fedcm.reports.html.result_table import result_table
from fedcm.reports.metric import ACCURACY, LOSS, METRICS, choose_metric
from fedcm.reports.outcome import divergence
from fedcm.reports.story import Story
from fedcm.reports.words import amount, duration, several


def heading(story: Story) -> Html:
    names = list(dict.fromkeys(run.experiment.get("name", run.name) for run in story.digests))
    title = ", ".join(map(str, names[:3])) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    algorithms = {run.algorithm for run in story.digests}
    seeds = {run.seed for run in story.digests}
    counts = (several(len(story.digests), "run"), several(len(algorithms), "algorithm"), several(len(seeds), "seed"))
    going = f" {several(story.going_on, 'run')} still going." if story.going_on else ""
    made = tag("time", f"{story.made:%Y-%m-%d %H:%M} UTC", datetime=story.made.isoformat(timespec="seconds"))
    return joined(tag("h1", title), tag("p", f"{', '.join(counts)}. Made ", made, f".{going}", class_="lead"))


def result(story: Story) -> Html:
    parts: list[object] = []
    if not story.evaluated:
        parts.append(tag("p", "Nothing has been evaluated yet: no run has a test accuracy or loss.", class_="answer"))
    else:
        for group in story.groups:
            said = answer(group) if len(story.groups) == 1 else f"{group.title}: {answer(group)}"
            parts.append(tag("p", said, class_="answer"))
        radios = [tag("label", _radio(measure), " ", _name_measure(story, measure)) for measure in MEASURES]
        shown = [metric.title for metric in METRICS if any(group.metric is metric for group in story.groups)]
        parts.append(tag("fieldset", tag("legend", f"{' and '.join(shown)}:"), *radios, class_="measures"))
        parts += [result_table(group) for group in story.groups]
    if story.left_out:
        parts.append(tag("p", "Left out:"))
        parts.append(tag("ul", *(tag("li", sentence) for sentence in story.left_out)))
    return _section("result", "Result", *parts)


def _name_measure(story: Story, measure: str) -> str:
    """Which rounds, where that is the same in all tables; each table says it for itself."""
    words = {group.describe_measure(measure) for group in story.groups}
    return words.pop() if len(words) == 1 else MEASURES[measure]


def _radio(measure: str) -> Html:
    return Html(f'<input type="radio" name="measure" value="{measure}"{" checked" if measure == MAIN else ""}>')


def claims(story: Story) -> Html:
    items = []
    for claim in story.claims:
        mark = tag("span", MARKS[claim.verdict], aria_hidden="true")
        verdict = tag("span", mark, " ", claim.verdict, class_=f"verdict {claim.verdict.replace(' ', '-')}")
        lines = [tag("li", line) for line in claim.evidence]
        items.append(tag("li", verdict, tag("div", tag("strong", claim.text), tag("ul", *lines))))
    about = (
        f"What the FedCM paper claims beyond single cells, held against the {_name_measure(story, MAIN)}. Seen: every "
        "difference is in its favour, and its 95 % interval over seeds excludes 0. Suggestive: in its favour, but "
        "within that uncertainty or from fewer than three seeds. Contradicted: against it, beyond the uncertainty."
    )
    return _section("claims", "Claims", tag("p", about, class_="lead"), tag("ul", *items, class_="claims"))


def costs(story: Story) -> Html | None:
    tables = [found for group in story.groups if (found := cost_table(group))]
    return _section("costs", "Rounds and bytes to an accuracy", *tables) if tables else None


def runs(story: Story) -> Html:
    settings = [flat(run.experiment) for run in story.digests]
    aside = ("cell.", "engine.", "federation.", "name")
    paths = [path for path in differing(settings) if not path.startswith(aside)]
    rows: list[list[object]] = []
    for run, own in zip(story.digests, settings, strict=True):
        last = divergence([run.diverged_in]) or _write_last(run)
        sent = amount(run.summary.get("bytes_down", 0) + run.summary.get("bytes_up", 0))
        facts = [run.state, f"{run.rounds_done} of {run.experiment['rounds']}", last, sent]
        facts.append(duration(run.summary.get("seconds", 0)))
        rows.append([run.name, *facts, *(own.get(path, "–") for path in paths)])
    head = ["run", "state", "rounds", "last evaluation", "bytes", "time", *paths]
    caption = "Every run, and the settings in which they differ" if paths else "Every run; their settings do not differ"
    return _section("runs", "Runs", table(caption, [*head], rows), _all_settings(story), _versions(story))


def _write_last(run: Digest) -> str:
    metric = choose_metric([(run.accuracy, run.test_losses)])
    if run.accuracy and metric is ACCURACY:
        return metric.write_with_unit(metric.scale * run.accuracy["last"])
    return f"test loss {LOSS.write(run.test_losses['last'])}" if run.test_losses else "–"


def _all_settings(story: Story) -> Html:
    parts = [
        tag(
            "details",
            tag("summary", run.name),
            table(f"Settings of {run.name}", ["setting", "value"], _pairs(flat(run.experiment))),
        )
        for run in story.digests
    ]
    return tag("details", tag("summary", "All settings of every run"), *parts)


def _versions(story: Story) -> Html:
    def versions(run: int) -> tuple[tuple[str, str], ...]:
        digest = story.digests[run]
        cpu = [("CPU", " ".join(digest.cpu.values()))] if digest.cpu else []
        return (*digest.versions.items(), ("platform", digest.platform), *cpu)

    ordered = sorted(range(len(story.digests)), key=versions)
    rows = [
        [", ".join(f"{name} {version}" for name, version in used), str(len(list(who)))]
        for used, who in groupby(ordered, key=versions)
    ]
    body: list[list[object]] = [[*row] for row in rows]
    return table("Versions that the runs were made with", ["versions", "runs"], body, class_="words")


def _pairs(settings: dict[str, str]) -> list[list[object]]:
    return [[path, text] for path, text in settings.items()]


def _section(name: str, title: str, *content: object) -> Html:
    return tag("section", tag("h2", title, id=f"{name}-title"), *content, id=name, aria_labelledby=f"{name}-title")
