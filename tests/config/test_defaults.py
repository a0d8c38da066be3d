"""Every default of an algorithm, a split or a bundled model is a published value, and the documentation states it."""

import dataclasses
import inspect
import re
from pathlib import Path
from typing import Any

import pytest
from made_digests import PAPER_BY_ALPHA

from fedcm.algorithms import ALGORITHMS
from fedcm.config.sections import SECTIONS
from fedcm.core.participation import PARTICIPATION
from fedcm.data.partition import SPLITS
from fedcm.models import MODELS

DOCUMENTS = Path(__file__).parents[2] / "docs"

# by kind and name: the settings with a default, its value, and its source
PUBLISHED: dict[tuple[str, str], dict[str, tuple[Any, str]]] = {
    ("algorithm", "fedavg"): {},
    ("algorithm", "fedcm"): {
        "alpha": (
            0.1,
            "Xu et al. 2021, CIFAR-10, setting I with the Dirichlet split; the best of their table of alphas",
        ),
    },
    ("algorithm", "fedadam"): {
        "beta1": (0.9, "Xu et al. 2021 write it as alpha = 1 - beta1 = 0.1; Reddi et al. 2021 use the same"),
        "beta2": (0.99, "Reddi et al. 2021; Xu et al. 2021 name none"),
        "tau": (0.01, "Xu et al. 2021, FedAdam on CIFAR-10 and CIFAR-100"),
    },
    ("algorithm", "scaffold"): {
        "option": ("II", "Karimireddy et al. 2020 offer both; option II costs no further pass over the data"),
    },
    ("algorithm", "feddyn"): {
        "alpha": (0.01, "Xu et al. 2021, FedDyn on CIFAR-10 in every setting"),
    },
    ("split", "iid"): {},
    ("split", "dirichlet"): {"concentration": (0.6, "Xu et al. 2021, the Dirichlet split of all their tables")},
    ("split", "dirichlet-by-label"): {
        "concentration": (0.6, "Xu et al. 2021, as above, so that the two splits compare"),
        "least": (1, "no paper: a client must hold something to take part"),
    },
    ("split", "shards"): {"per_client": (2, "McMahan et al. 2017, section 3: 200 shards, two for each of 100 clients")},
    ("split", "natural"): {},
    ("participation", "independent"): {},
    ("participation", "fixed"): {},
    ("participation", "everyone"): {},
    ("model", "linear"): {},
    ("model", "mlp"): {"hidden": ((200, 200), "McMahan et al. 2017, section 3: 2NN, two hidden layers of 200 units")},
    ("model", "lenet"): {},
    ("model", "cnn"): {},
    ("model", "resnet8"): {
        "width": (16, "He et al. 2016, section 4.2: 16, 32 and 64 filters in the CIFAR networks"),
        "groups": (2, "Acar et al. 2021, public code of the ResNet-18 with group norm"),
    },
    **{
        ("model", name): {
            "width": (64, "He et al. 2016, table 1: 64, 128, 256 and 512 channels"),
            "groups": (2, "Acar et al. 2021, public code of the ResNet-18 with group norm"),
        }
        for name in ("resnet18", "resnet18-imagenet-stem")
    },
}


def list_defaults(kind: Any) -> dict[str, Any]:
    """Return the defaults of a dataclass's fields or a function's keywords, by name."""
    if dataclasses.is_dataclass(kind):
        fields = dataclasses.fields(kind)
        return {field.name: field.default for field in fields if field.default is not dataclasses.MISSING}
    parameters = inspect.signature(kind).parameters.values()
    return {own.name: own.default for own in parameters if own.default is not own.empty}


KINDS = {
    (what, name): kind
    for what, kinds in (
        ("algorithm", ALGORITHMS),
        ("split", SPLITS),
        ("participation", PARTICIPATION),
        ("model", MODELS),
    )
    for name, kind in kinds.items()
}


def test_every_kind_has_a_row() -> None:
    assert set(PUBLISHED) == set(KINDS)


@pytest.mark.parametrize("which", PUBLISHED, ids=" ".join)
def test_a_default_is_the_published_value(which: tuple[str, str]) -> None:
    published = {setting: value for setting, (value, _) in PUBLISHED[which].items()}
    assert list_defaults(KINDS[which]) == published
    assert all(len(source) > 10 for _, source in PUBLISHED[which].values())


def test_the_default_alpha_is_the_best_of_the_papers_table() -> None:
    assert list_defaults(ALGORITHMS["fedcm"])["alpha"] == max(PAPER_BY_ALPHA, key=lambda alpha: PAPER_BY_ALPHA[alpha])


@pytest.mark.parametrize("which", [which for which in PUBLISHED if PUBLISHED[which]], ids=" ".join)
def test_the_documentation_states_the_default(which: tuple[str, str]) -> None:
    """As `name` (default) in the row of its kind; SCAFFOLD's row names the default first."""
    what, name = which
    text = (DOCUMENTS / ("models.md" if what == "model" else "experiments.md")).read_text()
    row = next(line for line in text.splitlines() if line.startswith(f"| `{name}` |"))
    for setting, (value, _) in PUBLISHED[which].items():
        shown = str(list(value)) if isinstance(value, tuple) else f'"{value}"' if isinstance(value, str) else str(value)
        assert f"`{setting}` ({shown}" in row, f"{setting} in {row}"


# settings without a default: what docs/experiments.md says about them
IN_WORDS = {
    "epochs": "1",
    "sites": "all connected sites",
    "classes": "the most that a site has",
    "mean": "from the sites' sums",
    "std": "from the sites' sums",
}


@pytest.mark.parametrize("section", SECTIONS)
def test_the_documentation_states_the_defaults_of_a_section(section: str) -> None:
    chapter = (DOCUMENTS / "experiments.md").read_text().split(f"## `[{section}]`")[1].split("\n## ")[0]
    rows = [[cell.strip() for cell in line.split("|")[1:]] for line in chapter.splitlines() if line.startswith("| `")]
    documented = {name: row[1] for row in rows for name in re.findall(r"`(\w+)`", row[0])}
    for setting, field in SECTIONS[section].model_fields.items():
        default = field.get_default(call_default_factory=True)
        if default is None or default in ([], {}):
            assert documented[setting] in (IN_WORDS.get(setting, ""), "none"), setting
        else:
            written = f'"{default}"' if isinstance(default, str) else str(default)
            assert documented[setting].strip("`") == written, setting
