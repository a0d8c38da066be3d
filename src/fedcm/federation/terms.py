"""What all sites of a run agree on before its first round.

Every site describes its examples: their shape and kind, how many there are, how many classes, and for bytes the sums
that a common normalisation needs: integers, so that it is to the bit the one of all examples in one place.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import torch
from pydantic import Field

from fedcm.atomic import write_text
from fedcm.data.dataset import Dataset, Normalisation
from fedcm.data.examples import byte_sums, normalisation_from
from fedcm.experiment import Count, Federation
from fedcm.refusal import Refused
from fedcm.settings import Section, read_section

FILE = "federation.json"


class Description(Section):
    """What a site says of its examples."""

    examples: Annotated[int, Field(ge=1, lt=2**40)]
    shape: list[Annotated[int, Field(ge=1, lt=2**31)]]  # of one example
    kind: Annotated[str, Field(pattern="^(uint8|int64|float32)$")]  # of its numbers
    classes: Count | None  # None for a regression
    sums: list[list[Annotated[int, Field(ge=0)]]] = Field(default=[])  # of bytes, a channel each: count, Σx, Σx²
    versions: dict[str, str] = Field(default={})


def described(data: Dataset, versions: dict[str, str], *, with_sums: bool) -> dict[str, Any]:
    """In plain numbers, ready to be sent."""
    features = data.train.features
    return {
        "examples": data.train.size,
        "shape": list(features.shape[1:]),
        "kind": str(features.dtype).removeprefix("torch."),
        "classes": data.classes,
        "sums": byte_sums(features) if with_sums and features.dtype == torch.uint8 else [],
        "versions": versions,
    }


class Terms(Section):
    """What was agreed; it belongs to the run."""

    shape: list[int]
    kind: str
    classes: int | None
    mean: list[float] | None = None
    std: list[float] | None = None

    @property
    def normalisation(self) -> Normalisation | None:
        return None if self.mean is None or self.std is None else Normalisation(tuple(self.mean), tuple(self.std))


def agree(said: Mapping[str, Description], settings: Federation) -> Terms:
    """The terms that hold for all who have described themselves; refused where they cannot share a model."""
    names = sorted(said)
    first = said[names[0]]
    for name in names[1:]:
        refuse_stranger(name, said[name], Terms(shape=first.shape, kind=first.kind, classes=first.classes), names[0])
    known = [own.classes for own in said.values() if own.classes is not None]
    classes = settings.classes or (max(known) if known else None)
    if first.kind != "uint8":
        return Terms(shape=first.shape, kind=first.kind, classes=classes)
    if settings.mean is not None:
        return Terms(shape=first.shape, kind=first.kind, classes=classes, mean=settings.mean, std=settings.std)
    common = _common_normalisation([said[name].sums for name in names])
    mean, std = list(common.mean), list(common.std)
    return Terms(shape=first.shape, kind=first.kind, classes=classes, mean=mean, std=std)


def refuse_stranger(name: str, own: Description, terms: Terms, others: str = "the others") -> None:
    """Refuse examples that one model could not take with those of the others."""
    for what, mine, theirs in (
        ("shape", own.shape, terms.shape),
        ("kind", own.kind, terms.kind),
        ("labels", *["numbers" if classes is None else "classes" for classes in (own.classes, terms.classes)]),
    ):
        if mine != theirs:
            raise Refused(
                f"the examples of all sites must have one shape and kind, and {name} has the {what} {mine} where "
                f"{others} has {theirs}"
            )
    if own.classes is not None and terms.classes is not None and others == "the others" and own.classes > terms.classes:
        raise Refused(f"the labels of {name} must be below {terms.classes}, the run's classes, got {own.classes - 1}")


def _common_normalisation(sums: Sequence[list[list[int]]]) -> Normalisation:
    return normalisation_from([[sum(own) for own in zip(*sites, strict=True)] for sites in zip(*sums, strict=True)])


def write_terms(run: Path, terms: Terms, sites: Sequence[str], run_id: str) -> None:
    write_text(run / FILE, json.dumps({"id": run_id, "sites": list(sites), "terms": terms.model_dump()}, indent=2))


def read_terms(run: Path) -> tuple[Terms, list[str], str]:
    """The terms, the sites and the identity of a run that was begun."""
    try:
        noted = json.loads((run / FILE).read_text(encoding="utf-8"))
        return read_section(Terms, noted["terms"]), list(noted["sites"]), str(noted["id"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Refused(f"{str(run / FILE)!r} must say what the sites of the run agreed on ({error})") from None
