"""The plots of what `--diagnose` measured, one per quantity, and of how far apart the nodes of a graph are."""

from typing import Any

from fedcm.reports.digest import Digest
from fedcm.reports.document import Document
from fedcm.reports.metric import choose_metric

# by the quantity's name: title, caption, and whether the axis is logarithmic
QUANTITIES = {
    "momentum_cosine": (
        "Does the momentum point uphill?",
        "cosine between the server's momentum Δ and ∇f; 1 means the same direction",
        False,
    ),
    "control_cosine": (
        "Does the control variate point uphill?",
        "cosine between c and ∇f; 1 means the same direction",
        False,
    ),
    "correction_cosine": (
        "Does the correction point uphill?",
        "cosine between h and ∇f; 1 means the same direction",
        False,
    ),
    "direction_cosine": (
        "Do clients follow the common gradient?",
        "cosine between a client's mean direction and ∇f, mean over clients",
        False,
    ),
    "gradient_norm": (
        "Gradient norm",
        "‖∇f‖ over all clients; if sampled, a gap where the estimate of its square is not positive",
        True,
    ),
    "momentum_norm": ("Momentum norm", "norm of the server's momentum, ‖Δ‖ for FedCM", True),
    "dissimilarity": (
        "Dissimilarity of clients",
        "σ_g² = mean ‖∇f_i − ∇f‖² over all clients, or an estimate of it",
        True,
    ),
    "noise": ("Minibatch noise", "σ_l² = mean ‖minibatch gradient − ∇f_i‖² of ten clients", True),
    "drift": ("Drift in the local steps", "ε = mean ‖y_i,k − x‖² over clients and steps", True),
    "client_loss_deviation": ("Spread of the clients' losses", "standard deviation over clients at x", True),
}


def list_agreement_plots(document: Document) -> list[dict[str, Any]]:
    """Return one plot of the consensus distances per cell that has decentralised runs."""
    plots = []
    for group in document.groups:
        for cell in group.cells:
            runs = [
                (row.label, run)
                for row in group.rows
                if cell.name in row.entries
                for run in row.entries[cell.name].runs
            ]
            lines = [
                _make_line(run, {run.name: label}, run.curve.round, _leave_out_zeros(run.curve.consensus_distance))
                for label, run in runs
            ]
            title = cell.name if len(document.groups) == 1 else f"{group.title}: {cell.name}"
            caption = "√(mean ‖x_i − x̄‖²) after gossip, the distance of the nodes from their mean x̄"
            plot = {"title": title, "caption": caption, "log": True, "legend": True}
            plots.append(plot | {"lines": [line for line in lines if line]})
    return [plot for plot in plots if plot["lines"]]


def list_diagnosis_plots(document: Document) -> list[dict[str, Any]]:
    """Return the curve that the diagnoses explain, then one plot per quantity that at least one run has."""
    labels = {
        run.name: row.label
        for group in document.groups
        for row in group.rows
        for entry in row.entries.values()
        for run in entry.runs
    }
    runs = [run for run in document.digests if run.name in labels and run.diagnoses.round]
    plots = [_make_score_plot(runs, labels)]
    for name, (title, caption, log) in QUANTITIES.items():
        columns = [run.diagnoses.values.get(name, []) for run in runs]
        if log:
            columns = list(map(_leave_out_zeros, columns))
        lines = [
            _make_line(run, labels, run.diagnoses.round, values) for run, values in zip(runs, columns, strict=True)
        ]
        plots.append({"title": title, "caption": caption, "log": log, "lines": [line for line in lines if line]})
    return [plot for plot in plots if plot["lines"]]


def _leave_out_zeros(values: list[float | None]) -> list[float | None]:
    """Leave gaps where a logarithmic axis has no place."""
    return [value or None for value in values]


def _make_score_plot(runs: list[Digest], labels: dict[str, str]) -> dict[str, Any]:
    metric = choose_metric((run.headline, run.test_losses) for run in runs)
    percent = metric.is_share
    scores = [
        [None if value is None else metric.scale * value for value in run.curve.get_column(metric.column)]
        for run in runs
    ]
    lines = [_make_line(run, labels, run.curve.round, values) for run, values in zip(runs, scores, strict=True)]
    title = metric.title.capitalize()
    if not any(lines):
        lines = [_make_line(run, labels, run.curve.round, run.curve.train_loss) for run in runs]
        title, percent = "Training loss", False
    plot = {"title": title, "caption": "of the diagnosed runs", "log": False, "legend": True, "percent": percent}
    return plot | {"lines": [line for line in lines if line]}


def _make_line(
    run: Digest, labels: dict[str, str], rounds: list[int], values: list[float | None]
) -> dict[str, Any] | None:
    if all(value is None for value in values):
        return None
    return {"label": labels[run.name], "name": run.name, "round": rounds, "value": values}
