"""What diagnoses found, a picture a quantity, for the page: why the curves above go as they do."""

from typing import Any

from fedcm.report.story import Story

# a quantity's name -> its title, what it is, and whether its axis is logarithmic
QUANTITIES = {
    "momentum_cosine": ("Does the momentum point uphill?", "cosine of Δ with ∇f; 1 = the same direction", False),
    "control_cosine": ("Does the control point uphill?", "cosine of c with ∇f; 1 = the same direction", False),
    "correction_cosine": ("Does the correction point uphill?", "cosine of h with ∇f", False),
    "direction_cosine": ("Do clients go the common way?", "cosine of clients' mean directions with ∇f, mean", False),
    "gradient_norm": ("Gradient", "‖∇f‖ over all clients looked at", True),
    "dissimilarity": ("Dissimilarity of clients", "σ_g² = mean ‖∇f_i − ∇f‖²", True),
    "noise": ("Noise of a minibatch", "σ_l² = mean ‖minibatch gradient − ∇f_i‖²", True),
    "drift": ("Drift in the local steps", "ε = mean ‖y_i,k − x‖² over clients and steps", True),
    "client_loss_deviation": ("Spread of the clients' losses", "standard deviation over clients at x", True),
}


def diagnoses(story: Story) -> list[dict[str, Any]]:
    """Only what some run has; a run's line has the look of its row in the curves."""
    labels = {
        run.name: row.label
        for group in story.groups
        for row in group.rows
        for entry in row.entries.values()
        for run in entry.runs
    }
    pictures = []
    for name, (title, said, log) in QUANTITIES.items():
        lines = [
            {
                "label": labels[run.name],
                "name": run.name,
                "round": run.diagnoses.round,
                "value": run.diagnoses.found[name],
            }
            for run in story.digests
            if run.name in labels and any(value is not None for value in run.diagnoses.found.get(name, ()))
        ]
        if lines:
            pictures.append({"title": title, "said": said, "log": log, "lines": lines})
    return pictures
