"""What all sites of a run agree on before its first round.

Every site describes its examples: their shape and kind, how many there are, how many classes, and for bytes the sums
that a common normalisation needs: integers, so that it is to the bit the one of all examples in one place.
"""

import json
from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Annotated, Any

import torch
from pydantic import Field, model_validator

from fedcm.config.experiment import FederationSection
from fedcm.config.schema import Section, read_section
from fedcm.data.dataset import Dataset, Normalisation
from fedcm.data.examples import byte_sums, normalisation_from
from fedcm.errors import UserError
from fedcm.system.files import write_text

FILE = "federation.json"


class Description(Section):
    """What a site says of its examples."""

    examples: Annotated[int, Field(ge=1, lt=2**40)]
    shape: list[Annotated[int, Field(ge=1, lt=2**31)]]  # of one example
    kind: Annotated[str, Field(pattern="^(uint8|int64|float32)$")]  # of its numbers
    classes: Annotated[int, Field(ge=1, le=10**6)] | None  # None for a regression
    sums: list[list[Annotated[int, Field(ge=0)]]] = Field(default=[])  # of bytes, a channel each: count, Σx, Σx²
    versions: dict[str, str] = Field(default={})

    @model_validator(mode="after")
    def _possible(self) -> "Description":
        """Sums that so many bytes can have: Σx ≤ 255·n, Σx² ≤ 255·Σx and (Σx)² ≤ n·Σx²."""
        channels = self.shape[0] if len(self.shape) > 1 else 1
        count = self.examples * prod(self.shape) // channels
        for sums in self.sums:
            if len(sums) != 3 or sums[0] != count or not (sums[1] <= 255 * count and sums[2] <= 255 * sums[1]):
                raise ValueError("sums must be those of its examples")
            if sums[1] ** 2 > count * sums[2]:
                raise ValueError("sums must be those of its examples")
        if self.sums and len(self.sums) != channels:
            raise ValueError(f"sums must be given for each of {channels} channels")
        return self


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


def agree(said: Mapping[str, Description], settings: FederationSection) -> tuple[Terms, dict[str, str]]:
    """The terms of most of those who have described themselves; and of the others, why they cannot take part."""
    kinds: dict[tuple[Any, ...], list[str]] = {}
    for name in sorted(said):
        own = said[name]
        kinds.setdefault((tuple(own.shape), own.kind, own.classes is None), []).append(name)
    names = max(kinds.values(), key=len)  # of equally many those with the first name
    first, known = said[names[0]], [own.classes for own in map(said.__getitem__, names) if own.classes is not None]
    classes = settings.classes or (max(known) if known else None)
    mean, std = settings.mean, settings.std
    if first.kind != "uint8":
        mean = std = None
    elif mean is None:
        names = [name for name in names if said[name].sums]
        if not names:
            raise UserError("sites with bytes must tell their sums, or federation.mean and federation.std be given")
        common = _common_normalisation([said[name].sums for name in names])
        mean, std = list(common.mean), list(common.std)
    terms, why = Terms(shape=first.shape, kind=first.kind, classes=classes, mean=mean, std=std), {}
    for name, own in said.items():
        try:
            reject_stranger(name, own, terms)
        except UserError as refusal:
            why[name] = str(refusal)
    return terms, why


def reject_stranger(name: str, own: Description, terms: Terms) -> None:
    """Refuse examples that the run's model could not take."""
    for what, mine, theirs in (
        ("shape", own.shape, terms.shape),
        ("kind", own.kind, terms.kind),
        ("labels", *["numbers" if classes is None else "classes" for classes in (own.classes, terms.classes)]),
    ):
        if mine != theirs:
            raise UserError(
                f"the examples of all sites must have one shape and kind, and {name} has the {what} {mine} where the "
                f"others have {theirs}"
            )
    if own.classes is not None and terms.classes is not None and own.classes > terms.classes:
        raise UserError(f"the labels of {name} must be below {terms.classes}, the run's classes, got {own.classes - 1}")


def _common_normalisation(sums: Sequence[list[list[int]]]) -> Normalisation:
    return normalisation_from([[sum(own) for own in zip(*sites, strict=True)] for sites in zip(*sums, strict=True)])


class Noted(Section):
    """What is kept beside a run of a federation."""

    id: Annotated[str, Field(pattern="^[0-9a-f]{32}$")]  # by which sites know the run
    by: str  # whose run it is: the admin who began it
    sites: list[str]  # by client
    terms: Terms


def write_noted(run: Path, noted: Noted) -> None:
    write_text(run / FILE, noted.model_dump_json(indent=2))


def read_noted(run: Path) -> Noted:
    """Of a run that was begun."""
    try:
        table = json.loads((run / FILE).read_text(encoding="utf-8"))
        return read_section(Noted, table | {"terms": read_section(Terms, table["terms"], "terms")})
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{str(run / FILE)!r} must say what the sites of the run agreed on ({error})") from None
