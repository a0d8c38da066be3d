"""The plots of the conditions: available and hostile clients, missed reports, unequal steps, simulated time and ε."""

from typing import Any

import numpy as np

from fedcm.reports.digest import Digest
from fedcm.reports.document import Document
from fedcm.reports.metric import choose_metric

# by the column of a curve: title and caption
QUANTITIES = {
    "available": ("Available clients", "clients that can take part, mean per round"),
    "missed": ("Missed reports", "clients that were asked and missed the deadline, mean per round"),
    "steps": ("Local steps", "mean over the clients that reported"),
    "steps_least": ("Fewest local steps", "of any client that reported"),
    "steps_most": ("Most local steps", "of any client that reported"),
    "hostile": ("Hostile clients", "clients of the cohort that attack, mean per round"),
    "backdoor_success": ("Success of the backdoor", "share of triggered test images that get the target label"),
    "largest_influence": ("Largest influence of a site", "share of the distances by which sites move the mean"),
    "epsilon": ("Privacy spent", "ε of client-level differential privacy so far"),
}

_BARS = 40  # at most, in a histogram


def list_system_plots(document: Document) -> list[dict[str, Any]]:
    """Return one plot per quantity that at least one run has, and the test metric against simulated time.

    Steps are shown only for runs whose settings make them unequal.
    """
    labels = {
        run.name: row.label
        for group in document.groups
        for row in group.rows
        for entry in row.entries.values()
        for run in entry.runs
    }
    runs = [run for run in document.digests if run.name in labels and has_conditions(run)]
    plots = [_make_time_plot(runs, labels)]
    for name, (title, caption) in QUANTITIES.items():
        lines = [
            {"label": labels[run.name], "name": run.name, "round": run.curve.round, "value": column}
            for run in runs
            if (column := getattr(run.curve, name))
        ]
        plots.append({"title": title, "caption": caption, "log": False, "legend": True, "lines": lines})
    return [plot for plot in plots if plot["lines"]]


def list_step_histograms(document: Document) -> list[dict[str, Any]]:
    """Return a histogram of the local steps of clients for each run whose settings make them unequal."""
    return [_make_step_histogram(run) for run in document.digests if run.step_counts and has_conditions(run)]


def _make_step_histogram(run: Digest) -> dict[str, Any]:
    steps, times = np.array(run.step_counts).T
    width = max(1, -(-int(steps.max() - steps.min() + 1) // _BARS))  # whole numbers of steps per bar
    first = int(steps.min())
    counts = np.bincount((steps - first) // width, weights=times)
    span = f"mean {np.average(steps, weights=times):.4g}, from {first} to {steps.max()}"
    return {
        "title": f"Distribution of local steps, {run.name}",
        "caption": f"how often a client did this number of steps in a round; {span}",
        "name": run.name,
        "metric": "local steps of a client in a round",
        "counted": "times",
        "bins": [[first + width * k + (width - 1) / 2, int(count)] for k, count in enumerate(counts)],
        "width": width,
    }


def has_conditions(run: Digest) -> bool:
    """Return whether a run has an availability, stragglers, unequal work, an attack, privacy or influences."""
    client = run.experiment.get("client", {})
    work = [client.get(unit) for unit in ("steps", "epochs")] if isinstance(client, dict) else []
    own = any(isinstance(amount, dict) for amount in work)
    named = any(key in run.experiment for key in ("availability", "stragglers", "attack"))
    return own or named or bool(run.curve.largest_influence or run.curve.epsilon)


def _make_time_plot(runs: list[Digest], labels: dict[str, str]) -> dict[str, Any]:
    timed = [run for run in runs if run.curve.simulated_seconds]
    metric = choose_metric((run.headline, run.test_losses) for run in timed)
    lines = []
    for run in timed:
        points = zip(run.curve.simulated_seconds, run.curve.get_column(metric.column), strict=False)  # it may lack one
        known = [(time, metric.scale * value) for time, value in points if time is not None and value is not None]
        if known:
            times, values = zip(*known, strict=True)
            line = {"label": labels[run.name], "name": run.name, "round": list(times), "value": list(values)}
            lines.append(line)
    caption = "against simulated time, which ends a round at its deadline"
    plot = {"title": metric.title.capitalize(), "caption": caption, "log": False, "legend": True}
    return plot | {"percent": metric.is_share, "x": "simulated seconds", "lines": lines}
