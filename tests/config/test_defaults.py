"""Every default of an algorithm, a split or a bundled model has a source, and the documentation states it.

A source is a publication, the authors' code, or our own choice with its reason.
"""

import dataclasses
import inspect
import re
from pathlib import Path
from typing import Any

import pytest
from made_digests import PAPER_BY_ALPHA

from fedcm.algorithms import ALGORITHMS
from fedcm.config.sections import SECTIONS
from fedcm.core.aggregation.aggregation import PLAIN_MEAN
from fedcm.core.aggregation.robust import MEANS
from fedcm.core.attacks import ATTACKS
from fedcm.core.local.optimizers import OPTIMIZERS
from fedcm.core.participation import PARTICIPATION
from fedcm.core.schedule_kinds import SCHEDULES
from fedcm.data.partition import SPLITS
from fedcm.data.work.stragglers import Stragglers
from fedcm.models import MODELS

DOCUMENTS = Path(__file__).parents[2] / "docs"

WARMUP = (0, "no paper: a warm-up is a choice")
ONE_OF_TWO = (None, "none: one of two settings that exclude each other; 1 for the ratio without both")
NO_BUCKETS = (1, "our choice: no buckets; Karimireddy et al. 2022 recommend 2")
A_FIFTH = (0.2, "our choice: the literature uses 10 to 40 per cent")
NO_HORIZON = (None, "none: the number of rounds, or one of two settings that exclude each other")

# by kind and name: the settings with a default, its value, and its source
PUBLISHED: dict[tuple[str, str], dict[str, tuple[Any, str]]] = {
    ("algorithm", "fedavg"): {},
    ("algorithm", "fedcm"): {
        "alpha": (
            0.1,
            "Xu et al. 2021, CIFAR-10, setting I with the Dirichlet split; the best of their table of alphas",
        ),
    },
    ("algorithm", "fedcm-anytime"): {
        "alpha": (0.05, "our own method: chosen on validation data, docs/results.md"),
        "average": (8.0, "our own method: chosen on validation data, docs/results.md"),
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
    ("algorithm", "fedprox"): {
        "mu": (0.01, "our choice, within the 0.001 to 1 between which Li et al. 2020 tune it"),
    },
    ("algorithm", "fednova"): {
        "momentum": (0.0, "our choice: plain local SGD, the first case of Wang et al. 2020"),
    },
    ("algorithm", "fedexp"): {
        "epsilon": (0.001, "the authors' code for CIFAR and CINIC (Divyansh03/FedExP)"),
    },
    ("algorithm", "fedswa"): {
        "rho": (0.1, "Liu et al. 2025, section 6.1, as two other sources quote it"),
        "alpha": (1.5, "Liu et al. 2025, section 6.1, as two other sources quote it"),
    },
    ("algorithm", "signsgd"): {},
    ("algorithm", "fedavgm"): {
        "beta": (0.9, "usual; Hsu et al. 2019 try 0 to 0.997"),
    },
    ("algorithm", "slowmo"): {
        "beta": (0.5, "fairscale's recommendation for 8 nodes"),
    },
    ("algorithm", "fedacg"): {
        "decay": (0.85, "the authors' code (geehokim/FedACG)"),
        "beta": (0.001, "the authors' code (geehokim/FedACG)"),
    },
    ("algorithm", "mimelite"): {
        "beta": (0.9, "usual for momentum; Karimireddy et al. 2020"),
    },
    ("algorithm", "mime"): {
        "beta": (0.9, "usual for momentum; Karimireddy et al. 2020"),
    },
    ("algorithm", "ghbm"): {
        "beta": (0.9, "the authors' configuration (RickZack/GHBM)"),
        "tau": (10, "the authors' example with 10 % participation (RickZack/GHBM)"),
    },
    ("algorithm", "mfl"): {
        "gamma": (0.5, "Liu et al. 2020, as far as we know; its text was not found"),
    },
    ("algorithm", "fedac"): {
        "alpha": (5.0, "our choice; Yuan & Ma 2020 compute it from the strong convexity"),
        "beta": (6.0, "our choice: alpha + 1, as in FedAc-I of Yuan & Ma 2020"),
        "gamma": (2.0, "our choice; Yuan & Ma 2020 compute it from the strong convexity"),
    },
    ("algorithm", "fedmoswa"): {
        "rho": (0.1, "Liu et al. 2025, section 6.1, as two other sources quote it"),
        "alpha": (1.5, "Liu et al. 2025, section 6.1, as two other sources quote it"),
        "gamma": (0.2, "Liu et al. 2025, section 6.1, as two other sources quote it"),
    },
    ("algorithm", "vrl-sgd"): {},
    ("algorithm", "feddane"): {
        "mu": (0.01, "the authors' code (litian96/FedDANE, pggd.py)"),
    },
    ("algorithm", "fedpd"): {
        "sigma": (10.0, "our choice, a proximal term of 0.1; the authors' code has sigma = 0.1"),
    },
    ("algorithm", "fedsplit"): {
        "sigma": (10.0, "our choice, as for FedPD; Pathak & Wainwright 2020 compute it from the curvature"),
    },
    ("algorithm", "fedsam"): {
        "rho": (0.01, "our choice; the public code has 0.1 (woodenchild95/FL-Simulator)"),
    },
    ("algorithm", "mofedsam"): {
        "alpha": (0.1, "README of woodenchild95/FL-Simulator"),
        "rho": (0.1, "README of woodenchild95/FL-Simulator"),
    },
    ("algorithm", "fedlesam"): {
        "rho": (0.01, "our choice; the authors' code has 0.1 (MediaBrain-SJTU/FedLESAM)"),
    },
    ("algorithm", "fedspeed"): {
        "strength": (0.1, "README of the authors' code (woodenchild95/FL-Simulator)"),
        "rho": (0.1, "README of the authors' code (woodenchild95/FL-Simulator)"),
    },
    ("algorithm", "fedsmoo"): {
        "strength": (0.1, "README of the authors' code (woodenchild95/FL-Simulator)"),
        "rho": (0.1, "README of the authors' code (woodenchild95/FL-Simulator)"),
    },
    ("algorithm", "fedyogi"): {
        "beta1": (0.9, "Flower's documentation of FedYogi"),
        "beta2": (0.99, "Flower's documentation of FedYogi"),
        "tau": (0.01, "our choice, as for FedAdam; Flower has 0.001"),
    },
    ("algorithm", "fedadagrad"): {
        "beta1": (0.0, "the experiments of Reddi et al. 2021, as far as we know"),
        "tau": (0.01, "our choice, as for FedAdam"),
    },
    ("algorithm", "adaalter"): {
        "epsilon": (1.0, "Xie et al. 2019, as far as we know; the authors' code has 1e-7 after a warm-up"),
    },
    ("algorithm", "fedlada"): {
        "alpha": (0.1, "test configuration of a public port (DadrasAli/fedbrew)"),
        "beta1": (0.9, "test configuration of a public port (DadrasAli/fedbrew)"),
        "beta2": (0.99, "test configuration of a public port (DadrasAli/fedbrew)"),
        "epsilon": (1e-08, "test configuration of a public port (DadrasAli/fedbrew)"),
    },
    ("algorithm", "fedmuon"): {
        "gamma": (0.5, "the authors' code (junkangLiu0/FedMuon)"),
        "beta": (0.98, "the authors' code (junkangLiu0/FedMuon)"),
        "others": ("adam", "the authors' code (junkangLiu0/FedMuon)"),
    },
    ("algorithm", "d-sgd"): {
        "beta": (0.0, "our choice: plain D-SGD, as in Lian et al. 2017"),
    },
    ("algorithm", "qg-dsgdm"): {
        "beta": (0.9, "the authors' code (epfml/quasi-global-momentum)"),
        "mu": (0.9, "the authors' code (epfml/quasi-global-momentum)"),
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
    ("schedule", "constant"): {"warmup": WARMUP},
    ("schedule", "exponential"): {"warmup": WARMUP},
    ("schedule", "step"): {
        "factor": (0.1, "torch.optim.lr_scheduler.StepLR and MultiStepLR, gamma"),
        "every": NO_HORIZON,
        "milestones": ((), "none; every or milestones must be given"),
        "warmup": WARMUP,
    },
    ("schedule", "cosine"): {
        "final": (0.0, "torch.optim.lr_scheduler.CosineAnnealingLR, eta_min"),
        "over": NO_HORIZON,
        "warmup": WARMUP,
    },
    ("schedule", "polynomial"): {
        "power": (1.0, "torch.optim.lr_scheduler.PolynomialLR"),
        "final": (0.0, "torch.optim.lr_scheduler.PolynomialLR ends at 0"),
        "over": NO_HORIZON,
        "warmup": WARMUP,
    },
    ("optimizer", "sgd"): {
        "momentum": (0.0, "torch.optim.SGD"),
        "dampening": (0.0, "torch.optim.SGD"),
        "nesterov": (False, "torch.optim.SGD"),
    },
    ("optimizer", "adam"): {"betas": ((0.9, 0.999), "torch.optim.Adam"), "eps": (1e-8, "torch.optim.Adam")},
    ("optimizer", "adamw"): {
        "betas": ((0.9, 0.999), "torch.optim.AdamW"),
        "eps": (1e-8, "torch.optim.AdamW"),
        "weight_decay": (0.01, "torch.optim.AdamW"),
    },
    ("schedule", "function"): {"over": NO_HORIZON, "warmup": WARMUP},
    ("model", "linear"): {},
    ("model", "mlp"): {"hidden": ((200, 200), "McMahan et al. 2017, section 3: 2NN, two hidden layers of 200 units")},
    ("model", "lenet"): {},
    ("model", "lenet-wide"): {},
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
    ("model", "lstm"): {
        "embedding": (8, "Caldas et al. 2018 (LEAF), public code of their model for Shakespeare"),
        "hidden": (256, "Caldas et al. 2018 (LEAF), public code of their model for Shakespeare"),
        "layers": (2, "Caldas et al. 2018 (LEAF), public code of their model for Shakespeare"),
        "vocabulary": (0, "our choice: next-token prediction, whose classes are the tokens"),
        "outputs": ("all", "our choice: next-token prediction, with a label at every position"),
    },
    ("model", "transformer"): {
        "width": (128, "our choice: small enough for clients on a CPU"),
        "layers": (2, "our choice: small enough for clients on a CPU"),
        "heads": (4, "our choice: 32 numbers per head, half of the 64 of Vaswani et al. 2017"),
        "vocabulary": (0, "our choice: next-token prediction, whose classes are the tokens"),
        "outputs": ("all", "our choice: next-token prediction, with a label at every position"),
    },
    ("mean", "plain"): {},
    ("mean", "clipped"): {"bound": ONE_OF_TWO, "ratio": ONE_OF_TWO, "bucketing": NO_BUCKETS},
    ("mean", "centred-clipping"): {
        "radius": ONE_OF_TWO,
        "ratio": ONE_OF_TWO,
        "iterations": (3, "our choice: Karimireddy et al. 2021 use 1 to 5"),
        "bucketing": NO_BUCKETS,
    },
    ("mean", "median"): {"bucketing": NO_BUCKETS},
    ("mean", "trimmed"): {
        "share": (0.2, "our choice: as many as the hostile clients of [attack] by default"),
        "bucketing": NO_BUCKETS,
    },
    ("mean", "geometric-median"): {
        "iterations": (8, "our choice: Pillutla et al. 2022 find that 3 to 5 suffice"),
        "smoothing": (1e-6, "Pillutla et al. 2022, section V"),
        "bucketing": NO_BUCKETS,
    },
    ("mean", "krum"): {"keep": (1, "Blanchard et al. 2017: Krum is one vector"), "bucketing": NO_BUCKETS},
    ("mean", "bulyan"): {"bucketing": NO_BUCKETS},
    ("attack", "sign-flip"): {"clients": A_FIFTH, "factor": (1.0, "our choice: the sign alone")},
    ("attack", "scaled"): {"clients": A_FIFTH, "factor": (10.0, "our choice: large enough to be seen")},
    ("attack", "noise"): {"clients": A_FIFTH, "factor": (10.0, "our choice: large enough to be seen")},
    ("attack", "label-flip"): {"clients": A_FIFTH},
    ("attack", "alie"): {"clients": A_FIFTH, "z": (None, "Baruch et al. 2019, algorithm 3: from the cohort")},
    ("attack", "ipm"): {"clients": A_FIFTH, "epsilon": (0.5, "our choice among the 0.1 to 0.5 of small attacks")},
    ("attack", "backdoor"): {
        "clients": A_FIFTH,
        "target": (0, "our choice: every dataset has this class"),
        "size": (2, "our choice: visible in images of 8 by 8 pixels"),
        "share": (0.5, "our choice: half of the images stay honest"),
        "boost": (1.0, "our choice: no boost, which is harder to detect"),
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
        ("schedule", SCHEDULES),
        ("optimizer", OPTIMIZERS),
        ("mean", MEANS),
        ("attack", ATTACKS),
    )
    for name, kind in kinds.items()
}


def test_every_kind_has_a_row() -> None:
    assert set(PUBLISHED) == set(KINDS)


@pytest.mark.parametrize("which", PUBLISHED, ids=" ".join)
def test_a_default_is_the_value_of_its_source(which: tuple[str, str]) -> None:
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
    chapters = {"schedule": "## Schedules", "mean": "## Means", "attack": "## `[attack]`"}
    if what in chapters:
        text = text.split(chapters[what])[1].split("\n## ")[0]
    row = next(line for line in text.splitlines() if line.startswith(f"| `{name}` |"))
    for setting, (value, _) in PUBLISHED[which].items():
        if value in (None, ()):
            assert f"`{setting}`" in row
            continue
        shown = str(list(value)) if isinstance(value, tuple) else f'"{value}"' if isinstance(value, str) else str(value)
        shown = shown.lower() if isinstance(value, bool) else shown
        assert f"`{setting}` ({shown}" in row, f"{setting} in {row}"


# settings whose default is that the simulation has no such effect, with the reason
WITHOUT_EFFECT: dict[str, tuple[Any, str]] = {
    "seconds_per_step": (1.0, "our choice: deadlines are then numbers of steps"),
    "spread": (0.0, "our choice: all clients are equally fast"),
    "jitter": (0.0, "our choice: a client is equally fast in all rounds"),
    "file": (None, "no paper: speeds are drawn"),
    "policy": ("drop", "Bonawitz et al. 2019, section 2.2: reports after the deadline are ignored"),
}


def test_defaults_of_stragglers_are_documented() -> None:
    assert list_defaults(Stragglers) == {name: value for name, (value, _) in WITHOUT_EFFECT.items()}
    chapter = (DOCUMENTS / "experiments.md").read_text().split("## `[stragglers]`")[1].split("\n## ")[0]
    for name, (value, _) in WITHOUT_EFFECT.items():
        shown = "none" if value is None else f'`"{value}"`' if isinstance(value, str) else str(value)
        assert f"| `{name}` | {shown} |" in chapter


# settings without a default: what docs/experiments.md says about them
IN_WORDS = {
    "epochs": "1",
    "sites": "all connected sites",
    "norm_ratio": "5; 0 with `[privacy]` or a robust `server.mean`",
    "colluding": "1",
    "min_cosine": "-0.5; -1 with `[privacy]`",
    "threshold": "more than two thirds of the run's sites",
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
        if default == PLAIN_MEAN:
            default = "plain"
        if default is None or default in ([], {}):
            assert documented[setting] in (IN_WORDS.get(setting, ""), "none"), setting
        else:
            written = f'"{default}"' if isinstance(default, str) else str(default)
            written = written.lower() if isinstance(default, bool) else written
            assert documented[setting].strip("`") == written, setting
