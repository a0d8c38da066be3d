"""Arithmetic that several algorithms share."""

import torch

from fedcm.core.algorithm import Vector


def normalise(vector: Vector) -> Vector:
    """Return the vector over its norm, row by row; 0 stays 0."""
    norm = torch.linalg.vector_norm(vector, dim=-1, keepdim=True)
    return vector / torch.where(norm > 0, norm, 1.0)
