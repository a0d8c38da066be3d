"""Robust means as their papers define them, in plain loops over numpy vectors of all fields joined."""

import math

import numpy as np


def norm(vector: np.ndarray) -> float:
    return math.sqrt(math.fsum(float(entry) ** 2 for entry in vector))


def mean(rows: np.ndarray) -> np.ndarray:
    return np.array([math.fsum(column) / len(column) for column in rows.T])


def clipped(rows: np.ndarray, bound: float) -> np.ndarray:
    return mean(np.array([row * min(1.0, bound / norm(row)) for row in rows]))


def centred_clipping(rows: np.ndarray, centre: np.ndarray, radius: float, iterations: int) -> np.ndarray:
    """Karimireddy et al. 2021, equation (CC)."""
    for _ in range(iterations):
        centre = centre + mean(np.array([(row - centre) * min(1.0, radius / norm(row - centre)) for row in rows]))
    return centre


def median(rows: np.ndarray) -> np.ndarray:
    result = []
    for column in rows.T:
        ordered, half = sorted(map(float, column)), len(column) // 2
        result.append(ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2)
    return np.array(result)


def trimmed(rows: np.ndarray, cut: int) -> np.ndarray:
    return np.array([np.mean(sorted(map(float, column))[cut : len(column) - cut]) for column in rows.T])


def sum_of_distances(rows: np.ndarray, point: np.ndarray) -> float:
    return math.fsum(norm(row - point) for row in rows)


def krum_scores(rows: list[np.ndarray], f: int) -> list[float]:
    """Blanchard et al. 2017: Σ ‖V_i − V_j‖² over the n − f − 2 closest vectors."""
    scores = []
    for i, own in enumerate(rows):
        apart = sorted(norm(own - other) ** 2 for j, other in enumerate(rows) if j != i)
        scores.append(math.fsum(apart[: max(len(rows) - f - 2, 1)]))
    return scores


def multi_krum(rows: np.ndarray, f: int, m: int) -> np.ndarray:
    scores = krum_scores(list(rows), f)
    chosen = sorted(range(len(rows)), key=lambda i: scores[i])[:m]
    return mean(rows[chosen])


def bulyan(rows: np.ndarray, f: int) -> np.ndarray:
    """El Mhamdi et al. 2018: θ = n − 2f by repeated Krum, then the β = θ − 2f values around each median.

    The paper leaves open which of two equal scores wins; here the vector with the smaller sum of squared distances.
    """
    received, selected = list(rows), []
    theta = len(rows) - 2 * f
    while len(selected) < theta:
        scores = krum_scores(received, f)
        sums = [math.fsum(norm(own - other) ** 2 for other in received) for own in received]
        selected.append(received.pop(min(range(len(scores)), key=lambda i: (round(scores[i], 9), sums[i]))))
    beta, result = theta - 2 * f, []
    for column in np.array(selected).T:
        middle = float(median(column[:, None])[0])
        closest = sorted(map(float, column), key=lambda value: abs(value - middle))[:beta]
        result.append(math.fsum(closest) / beta)
    return np.array(result)
