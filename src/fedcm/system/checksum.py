"""Checksums: sha256 of arrays and files, and md5 where the authors of a dataset published md5."""

import hashlib
from pathlib import Path

import numpy as np

from fedcm.system.storage.mapped_files import iterate_pieces


def compute_sha256(*arrays: np.ndarray) -> str:
    """Return the sha256 of the arrays' bytes, one array after the other."""
    digest = hashlib.sha256()
    for array in arrays:
        for piece in iterate_pieces(np.ascontiguousarray(array)):
            digest.update(piece.data)
    return digest.hexdigest()


def compute_md5(content: bytes) -> str:
    """Return the md5 of some bytes."""
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


def compute_file_md5(path: Path) -> str:
    """Return the md5 of a file's content, read in pieces."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def compute_file_sha256(path: Path) -> str:
    """Return the sha256 of a file's content, read in pieces."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
