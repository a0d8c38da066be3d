"""The orthogonal factor of a matrix, by Newton–Schulz iterations, for parameters in a flat vector.

The quintic polynomial of Jordan et al. (Muon, 2024) brings all singular values near 1 in five iterations, not to 1.
"""

import math

import torch
from torch import Size, Tensor

from fedcm.core.algorithm import Vector

_COEFFICIENTS = (3.4445, -4.7750, 2.0315)
_ITERATIONS = 5


def orthogonalise_matrices(vector: Vector, other: Vector, shapes: tuple[Size, ...]) -> Vector:
    """Return the orthogonal factor of every matrix of `vector`, and the entries of `other` for all other parameters.

    Args:
        vector: Values of all parameters.
        other: Values to use where a parameter has fewer than two dimensions.
        shapes: The shapes of the parameters; a kernel with more than two dimensions counts as (first, rest).
    """
    sizes = [math.prod(shape) for shape in shapes]
    pieces = zip(vector.split(sizes, -1), other.split(sizes, -1), shapes, strict=True)
    return torch.cat([_orthogonalise(own, shape) if len(shape) > 1 else rest for own, rest, shape in pieces], -1)


def _orthogonalise(flat: Vector, shape: Size) -> Vector:
    matrix = flat.reshape(*flat.shape[:-1], shape[0], -1)
    if shape[0] <= matrix.shape[-1]:
        return _iterate_newton_schulz(matrix).reshape(flat.shape)
    return _iterate_newton_schulz(matrix.mT).mT.reshape(flat.shape)


def _iterate_newton_schulz(matrix: Tensor) -> Tensor:
    a, b, c = _COEFFICIENTS
    matrix = matrix / (torch.linalg.matrix_norm(matrix, keepdim=True) + 1e-7)
    for _ in range(_ITERATIONS):
        gram = matrix @ matrix.mT
        matrix = a * matrix + (b * gram + c * gram @ gram) @ matrix
    return matrix
