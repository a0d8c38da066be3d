"""The recorded digests that pages are made from."""

from pathlib import Path

from fedcm.reports.digest import Digest, read_digest

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results"


def read_digests(name: str) -> list[Digest]:
    """Return the digests of a folder of results/, by name of the run."""
    return [read_digest(path) for path in sorted((RESULTS / name).glob("*.json"))]


def get_last(run: Digest, column: str) -> float:
    """Return the value of a curve at the last evaluation."""
    value = run.curve.get_column(column)[-1]
    assert value is not None
    return value
