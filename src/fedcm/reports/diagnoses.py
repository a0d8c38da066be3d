"""What diagnoses found, a picture a quantity, for the page: why the curves above go as they do."""

from typing import Any

from fedcm.reports.digest import Digest
from fedcm.reports.metric import choose_metric
from fedcm.reports.story import Story

# a quantity's name -> its title, what it is, and whether its axis is logarithmic
QUANTITIES = {
    "momentum_cosine": (
        "Does the momentum point uphill?",
        "cosine of the server's (Δ) with ∇f; 1: the same way",
        False,
    ),
    "control_cosine": ("Does the control point uphill?", "cosine of c with ∇f; 1: the same way", False),
    "correction_cosine": ("Does the correction point uphill?", "cosine of h with ∇f; 1: the same way", False),
    "direction_cosine": ("Do clients go the common way?", "cosine of clients' mean directions with ∇f, mean", False),
    "gradient_norm": (
        "Gradient",
        "‖∇f‖ over all clients; from a sample: a gap where its square is estimated ≤ 0",
        True,
    ),
    "momentum_norm": ("Momentum", "norm of the server's, FedCM's ‖Δ‖", True),
    "dissimilarity": ("Dissimilarity of clients", "σ_g² = mean ‖∇f_i − ∇f‖² over all clients, or estimated", True),
    "noise": ("Noise of a minibatch", "σ_l² = mean ‖minibatch gradient − ∇f_i‖² of ten clients", True),
    "drift": ("Drift in the local steps", "ε = mean ‖y_i,k − x‖² over clients and steps", True),
    "client_loss_deviation": ("Spread of the clients' losses", "standard deviation over clients at x", True),
}


def diagnoses(story: Story) -> list[dict[str, Any]]:
    """Only what some run has, after the curve that they explain; a run's line has the look of its row there."""
    labels = {
        run.name: row.label
        for group in story.groups
        for row in group.rows
        for entry in row.entries.values()
        for run in entry.runs
    }
    runs = [run for run in story.digests if run.name in labels and run.diagnoses.round]
    pictures = [_curve(runs, labels)]
    for name, (title, said, log) in QUANTITIES.items():
        found = [run.diagnoses.found.get(name, []) for run in runs]
        if log:  # what is 0 has no place on such an axis
            found = [[value or None for value in values] for values in found]
        lines = [_line(run, labels, run.diagnoses.round, values) for run, values in zip(runs, found, strict=True)]
        pictures.append({"title": title, "said": said, "log": log, "lines": [line for line in lines if line]})
    return [picture for picture in pictures if picture["lines"]]


def _curve(runs: list[Digest], labels: dict[str, str]) -> dict[str, Any]:
    metric = choose_metric((run.accuracy, run.test_losses) for run in runs)
    lines, said = [_line(run, labels, run.curve.round, getattr(run.curve, metric.column)) for run in runs], metric.title
    if not any(lines):
        lines = [_line(run, labels, run.curve.round, run.curve.train_loss) for run in runs]
        said = "loss of the clients that trained"
    return {"title": "The curve", "said": said, "log": False, "legend": True, "lines": [line for line in lines if line]}


def _line(run: Digest, labels: dict[str, str], rounds: list[int], values: list[float | None]) -> dict[str, Any] | None:
    if all(value is None for value in values):
        return None
    return {"label": labels[run.name], "name": run.name, "round": rounds, "value": values}
