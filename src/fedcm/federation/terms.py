"""The terms of a run: what all its sites agree on before the first round.

Every site describes its examples: shape, type, number and classes, and for bytes the sums that a common normalisation
needs. The sums are integers, so the normalisation has the same bits as that of all examples in one place.
"""

import json
from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Annotated, Any

import torch
from pydantic import Field, model_validator
from torch import Tensor

from fedcm.config.schema import Section, read_section
from fedcm.config.sections import FederationSection
from fedcm.data.array_conversion import compute_normalisation, sum_bytes
from fedcm.data.dataset import Dataset, Examples, Normalisation
from fedcm.data.structures.ragged import Ragged
from fedcm.data.structures.tree import describe_tree, rebuild_tree
from fedcm.errors import UserError
from fedcm.federation.trust.foreign_text import clean_text
from fedcm.system.files import write_text

RECORD_FILE = "federation.json"
_MAX_DIMENSIONS = 32  # of an example
_MAX_LEAVES = 1000  # tensors of an example
NEVER = -1  # last counted round of a site none of whose rounds has counted


class DataDescription(Section):
    """A site's description of its examples."""

    examples: Annotated[int, Field(ge=1, lt=2**40)]
    shape: Annotated[list[Annotated[int, Field(ge=1, lt=2**31)]], Field(max_length=_MAX_DIMENSIONS)]  # of one example
    kind: Annotated[str, Field(pattern="^(uint8|int64|float32|structure)$")]  # dtype of the features
    classes: Annotated[int, Field(ge=1, le=10**6)] | None  # None for a regression
    sums: list[list[Annotated[int, Field(ge=0)]]] = Field(default=[])  # for bytes, per channel: count, Σx, Σx²
    versions: dict[str, str] = Field(default={})
    weights: str | None = None  # sha256 of the site's file of initial weights
    structure: dict[str, Any] | None = None  # features and labels, if one of them is more than a tensor or a number

    @model_validator(mode="after")
    def _check_structure(self) -> "DataDescription":
        """Check that the server can make blank examples of the structure."""
        if self.structure is not None:
            _check_structure(self.structure)
        elif self.kind == "structure":
            raise ValueError("structure must be given for features of several tensors")
        return self

    @model_validator(mode="after")
    def _check_sums(self) -> "DataDescription":
        """Check that this many bytes can have these sums: Σx ≤ 255·n, Σx² ≤ 255·Σx and (Σx)² ≤ n·Σx²."""
        channels = self.shape[0] if len(self.shape) > 1 else 1
        count = self.examples * prod(self.shape) // channels
        for sums in self.sums:
            if len(sums) != 3 or sums[0] != count or not (sums[1] <= 255 * count and sums[2] <= 255 * sums[1]):
                raise ValueError("sums must be possible for the site's examples")
            if sums[1] ** 2 > count * sums[2]:
                raise ValueError("sums must be possible for the site's examples")
        if self.sums and len(self.sums) != channels:
            raise ValueError(f"sums must be given for each of {channels} channels")
        return self


def describe_data(
    data: Dataset, versions: dict[str, str], *, with_sums: bool, weights: str | None = None
) -> dict[str, Any]:
    """Return the fields of a `DataDescription` as JSON values, ready to be sent."""
    train = data.train
    is_tensor = isinstance(train.features, Tensor)
    has_bytes = is_tensor and train.features.dtype == torch.uint8
    fields = {
        "examples": train.size,
        "shape": list(train.features.shape[1:]) if is_tensor else [],
        "kind": str(train.features.dtype).removeprefix("torch.") if is_tensor else "structure",
        "classes": data.classes,
        "sums": sum_bytes(train.features) if with_sums and has_bytes else [],
        "versions": versions,
        "weights": weights,
    }
    if train.is_simple and train.labels.dim() == 1:
        return fields
    trees = zip(Examples._fields, train, strict=True)
    return fields | {"structure": {name: describe_tree(tree) for name, tree in trees}}


def make_blank_rows(path: str, leaf: Mapping[str, Any]) -> Any:
    """Return two blank rows of a tensor that `describe_tree` described."""
    dtype = getattr(torch, leaf["dtype"])
    if leaf["ragged"]:
        return Ragged.from_list([torch.zeros((2, *leaf["shape"]), dtype=dtype) for _ in range(2)])
    return torch.zeros((2, *leaf["shape"]), dtype=dtype)


def _check_structure(structure: dict[str, Any]) -> None:
    """Raise ValueError unless this describes features and labels of numbers, in at most `_MAX_LEAVES` tensors."""
    leaves: dict[str, int] = {}  # the number of elements of one row, by path

    def check_leaf(path: str, leaf: Mapping[str, Any]) -> None:
        shape: Any = leaf.get("shape")
        is_shape = isinstance(shape, list) and all(type(length) is int and 1 <= length < 2**31 for length in shape)
        if set(leaf) != {"shape", "dtype", "ragged"} or not is_shape:
            raise ValueError(f"structure must describe tensors, got {str(leaf)[:80]}")
        if leaf["dtype"] not in ("uint8", "bool", "int64", "float32") or not isinstance(leaf["ragged"], bool):
            raise ValueError(f"structure must describe tensors of numbers, got {str(leaf)[:80]}")
        leaves[path] = prod(shape)

    counts = []
    try:
        for name in Examples._fields:
            rebuild_tree(structure[name], check_leaf, name)
            counts.append(len(leaves))
    except (KeyError, TypeError, AttributeError, RecursionError):
        raise ValueError("structure must describe features and labels") from None
    if set(structure) != set(Examples._fields) or not 0 < counts[0] < counts[1] <= _MAX_LEAVES:
        raise ValueError("structure must describe features and labels")
    if sum(leaves.values()) >= 2**31:  # the server makes blank examples
        raise ValueError(f"structure must describe examples of less than 2**31 numbers, got {sum(leaves.values())}")


class Terms(Section):
    """What the sites of a run agreed on."""

    shape: list[int]
    kind: str
    classes: int | None
    mean: list[float] | None = None
    std: list[float] | None = None
    structure: dict[str, Any] | None = None
    weights: str | None = None  # sha256 of the file of initial weights, if there is one

    @property
    def normalisation(self) -> Normalisation | None:
        """The common normalisation of bytes; None for other data."""
        return None if self.mean is None or self.std is None else Normalisation(tuple(self.mean), tuple(self.std))


def agree_on_terms(
    descriptions: Mapping[str, DataDescription], settings: FederationSection, weights: str | None = None
) -> tuple[Terms, dict[str, str]]:
    """Choose the terms that fit most sites.

    Args:
        descriptions: What the sites say about their examples.
        settings: The experiment's settings.
        weights: The sha256 of the server's file of initial weights, if there is one.

    Returns:
        The terms; and by site, why each of the others cannot take part.
    """
    groups: dict[tuple[Any, ...], list[str]] = {}
    for name in sorted(descriptions):
        own = descriptions[name]
        form = json.dumps(own.structure, sort_keys=True)
        groups.setdefault((tuple(own.shape), own.kind, own.classes is None, form), []).append(name)
    names = max(groups.values(), key=len)  # of equally large groups the one with the first name
    first = descriptions[names[0]]
    known = [own.classes for own in map(descriptions.__getitem__, names) if own.classes is not None]
    classes = settings.classes or (max(known) if known else None)
    mean, std = settings.mean, settings.std
    if first.kind != "uint8":
        mean = std = None
    elif mean is None:
        names = [name for name in names if descriptions[name].sums]
        if not names:
            raise UserError("sites with bytes must report their sums, or set federation.mean and federation.std")
        common = _combine_normalisation([descriptions[name].sums for name in names])
        mean, std = list(common.mean), list(common.std)
    terms = Terms(shape=first.shape, kind=first.kind, classes=classes, mean=mean, std=std, weights=weights)
    terms = terms.model_copy(update={"structure": first.structure})
    reasons = {}
    for name, own in descriptions.items():
        try:
            reject_unfit_site(name, own, terms)
        except UserError as error:
            reasons[name] = str(error)
    return terms, reasons


def reject_unfit_site(name: str, own: DataDescription, terms: Terms) -> None:
    """Raise UserError if the run's model cannot take a site's examples."""
    for what, given, required in (
        ("shape", own.shape, terms.shape),
        ("kind", own.kind, terms.kind),
        ("structure", own.structure, terms.structure),
        ("labels", *["numbers" if classes is None else "classes" for classes in (own.classes, terms.classes)]),
    ):
        if given != required:
            raise UserError(
                f"the examples of all sites must have the same shape, kind and labels, but {name} has the {what} "
                f"{clean_text(given)} where the others have {required}"
            )
    if own.classes is not None and terms.classes is not None and own.classes > terms.classes:
        raise UserError(f"the labels of {name} must be below {terms.classes}, the run's classes, got {own.classes - 1}")
    if own.weights != terms.weights:
        raise UserError(
            f"the file of weights of {name} must be the server's, with the sha256 {terms.weights}, got "
            f"{clean_text(own.weights, 80)}"
        )


def _combine_normalisation(sums: Sequence[list[list[int]]]) -> Normalisation:
    return compute_normalisation([[sum(own) for own in zip(*sites, strict=True)] for sites in zip(*sums, strict=True)])


class FederationRecord(Section):
    """`federation.json` in the folder of a federated run."""

    id: Annotated[str, Field(pattern="^[0-9a-f]{32}$")]  # by which sites know the run
    by: str  # the admin who began the run and owns it
    sites: list[str]  # by client
    terms: Terms
    examples: dict[str, int] = Field(default={})  # by site, the first number that it described


def write_record(run: Path, record: FederationRecord) -> None:
    """Write `federation.json` into a run's folder."""
    write_text(run / RECORD_FILE, record.model_dump_json(indent=2))


def read_record(run: Path) -> FederationRecord:
    """Read `federation.json` from a run's folder."""
    try:
        table = json.loads((run / RECORD_FILE).read_text(encoding="utf-8"))
        return read_section(FederationRecord, table | {"terms": read_section(Terms, table["terms"], "terms")})
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{str(run / RECORD_FILE)!r} must be the record of a federated run ({error})") from None
