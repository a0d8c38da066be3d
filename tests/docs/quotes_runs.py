"""Numbers in sentences of the guides, from digests in results/ and from the tables of privacy and robustness."""

import functools
import math
from collections.abc import Iterator, Mapping
from statistics import mean

import robustness_table
from page_numbers import ROOT
from quotes import Quote, read_json, read_run

from fedcm.reports.digest import Digest, read_digest

AUGMENTED, PRIVATE, HOSTILE = (f"docs/guides/{name}.md" for name in ("cifar-augmentation", "privacy", "robustness"))
DIAGNOSED, PERSONAL = "docs/guides/diagnosis.md", "docs/guides/personal-layers.md"


def read_folder(name: str) -> list[Digest]:
    """Return the digests of a folder of results/."""
    return [read_digest(path) for path in sorted((ROOT / "results" / name).glob("*.json"))]


def get_standard_error(accuracy: float, examples: int) -> float:
    """Return the standard error in points of an accuracy in %."""
    return math.sqrt(accuracy * (100 - accuracy) / examples)


def get_private(source: str) -> Mapping[tuple[str, str], float]:
    """Return the mean accuracies in % by algorithm and ε."""
    found: dict[tuple[str, str], list[float]] = {}
    for run in read_folder(f"privacy-{source}"):
        accuracy = run.curve.test_accuracy[-1]
        assert accuracy is not None
        found.setdefault((run.algorithm, run.labels["epsilon"]), []).append(100 * accuracy)
    return {key: mean(values) for key, values in found.items()}


def get_losses(source: str, *algorithms: str) -> list[float]:
    """Return what ε = 2 costs in points, beside no noise."""
    scores = get_private(source)
    return [scores[name, "inf"] - scores[name, "2"] for name in algorithms]


def get_leads(source: str) -> list[float]:
    """Return by how much FedCM is ahead of FedAvg at ε = 2, at ε = 8 and without noise."""
    scores = get_private(source)
    return [scores["fedcm", epsilon] - scores["fedavg", epsilon] for epsilon in ("2", "8", "inf")]


def list_backdoors(source: str, algorithm: str, *means: str) -> Iterator[float]:
    """Yield the successes of the backdoor in %; of all means if none is named."""
    cells = robustness_table.read_cells(ROOT / "results" / f"robust-{source}")
    for (name, attack, kind), (_, success) in cells.items():
        if name == algorithm and attack == "backdoor" and (kind in means or not means):
            assert success is not None
            yield 100 * success


def get_robust(source: str, algorithm: str, attack: str, kind: str) -> float:
    """Return an accuracy in %."""
    accuracy, _ = robustness_table.read_cells(ROOT / "results" / f"robust-{source}")[algorithm, attack, kind]
    assert accuracy is not None
    return 100 * accuracy


FLIPS = ("sign flipped", "sign flipped, three-fold")
COORDINATES = ("median", "trimmed", "bulyan")


def get_held_back() -> list[float]:
    """Return the success of the backdoor without a robust mean, and its range under the means that hold it back."""
    own, other = ([*list_backdoors("digits", name, *COORDINATES)] for name in ("fedavg", "fedcm"))
    return [*list_backdoors("digits", "fedavg", "plain"), min(own), max(own), min(other), max(other)]


def get_cifar_backdoors() -> tuple[float, float]:
    """Return the range of the backdoor's success on CIFAR-10."""
    found = [*list_backdoors("cifar10", "fedavg"), *list_backdoors("cifar10", "fedcm")]
    return min(found), max(found)


def get_hostile(split: str, *attacks: str, column: str = "defaults", algorithm: str = "") -> list[float]:
    """Return the accuracies with one hostile site, in the order of the rows; of all attacks if none is named."""
    rows = [row for row in read_json("hostile-sites.json")[f"hostile-sites, {split}"] if row["site b"] != "none"]
    rows = [row for row in rows if row["site b"] in attacks or not attacks]
    return [row[column] for row in rows if algorithm in row["algorithm"]]


def get_least_of_robust_means() -> float:
    """Return the lowest accuracy of the robust means, with different data."""
    return min(
        value
        for column in ("median", "geometric-median", "centred-clipping")
        for value in get_hostile("Dirichlet 0.5", column=column)
    )


def get_diagnoses(algorithm: str, key: str) -> list[float]:
    """Return what the run of the example measured, in order."""
    values = read_run(f"diagnosis/cifar10-lenet-{algorithm}-seed0").diagnoses.values[key]
    return [value for value in values if value is not None]


def get_late(algorithm: str, key: str) -> float:
    """Return the mean of the last ten diagnoses."""
    return mean(get_diagnoses(algorithm, key)[-10:])


def get_late_accuracy(algorithm: str) -> float:
    """Return the mean accuracy of the last ten evaluations in %."""
    column = read_run(f"diagnosis/cifar10-lenet-{algorithm}-seed0").curve.test_accuracy
    return 100 * mean(value for value in column[-10:] if value is not None)


def get_both(key: str) -> tuple[float, float]:
    """Return FedCM's mean of the last ten diagnoses, and FedAvg's."""
    return get_late("fedcm", key), get_late("fedavg", key)


def get_cosines() -> tuple[float, float, float]:
    """Return the mean cosine of the momentum over the last ten diagnoses, and its range over all."""
    values = get_diagnoses("fedcm", "momentum_cosine")
    return get_late("fedcm", "momentum_cosine"), round(min(values), 1), round(max(values), 1)


QUOTES = [
    Quote(
        AUGMENTED,
        r"near (\d+) % has a standard error of ([\d.]+) points .* images of ([\d.]+\d)",
        lambda: (45, get_standard_error(45, 10_000), get_standard_error(45, 5000)),
    ),
    Quote(
        PERSONAL,
        r"a mean of ([\d.]+) %, and ([\d.]+) % for the worst",
        lambda: [100 * read_run("personal/adapted").summary["personal"][key] for key in ("mean", "worst")],
    ),
    Quote(
        PRIVATE,
        r"it loses ([\d.]+) points, FedAvg ([\d.]+) and FedAdam ([\d.]+\d)",
        lambda: get_losses("digits", "fedcm", "fedavg", "fedadam"),
    ),
    Quote(
        PRIVATE,
        r"by ([\d.]+) points over FedAvg at ε = 2, ([\d.]+) at ε = 8 and ([\d.]+) without",
        lambda: get_leads("cifar10"),
    ),
    Quote(PRIVATE, r"loses most \(([\d.]+) points", lambda: get_losses("cifar10", "fedadam")),
    Quote(
        HOSTILE, r"from (\d+) % to between (\d+) and (\d+) %, but for FedCM to between (\d+) and (\d+) %", get_held_back
    ),
    Quote(HOSTILE, r"success is between (\d+) and (\d+) %, where", get_cifar_backdoors),
    Quote(
        HOSTILE,
        r"sign flip best \((\d+) and (\d+)\) and fails against inner product manipulation \((\d+) and (\d+)\)",
        lambda: [
            get_robust("digits", name, attack, "krum")
            for attack in ("sign-flip", "ipm")
            for name in ("fedavg", "fedcm")
        ],
    ),
    Quote(
        HOSTILE,
        r"and against a constant \(([\d.]+) to ([\d.]+)\)",
        lambda: (min(get_hostile("IID")), max(get_hostile("IID"))),
    ),
    *(
        Quote(
            HOSTILE,
            pattern,
            functools.partial(get_hostile, "Dirichlet 0.5", *FLIPS, algorithm=algorithm),
        )
        for algorithm, pattern in (
            ("fedavg", r"FedAvg falls to ([\d.]+) and ([\d.]+),"),
            ("fedcm", r"and FedCM to ([\d.]+) and ([\d.]+\d)"),
        )
    ),
    Quote(
        HOSTILE,
        r"FedCM's Δ shows it \(([\d.]+)\)",
        lambda: min(get_hostile("Dirichlet 0.5", *(f"{flip} from round 10" for flip in FLIPS), algorithm="fedcm")),
    ),
    Quote(HOSTILE, r"centred clipping keep ([\d.]+) or more", get_least_of_robust_means),
    Quote(
        HOSTILE,
        r"report is shortened \(([\d.]+)\)",
        lambda: get_hostile("by examples", "constant 1e3, examples overstated to 1e9", algorithm="fedavg"),
    ),
    Quote(
        DIAGNOSED,
        r"ahead \(([\d.]+) % against ([\d.]+) %",
        lambda: (get_late_accuracy("fedcm"), get_late_accuracy("fedavg")),
    ),
    Quote(
        DIAGNOSED,
        r"([\d.]+) against ([\d.]+) \(means of the last ten diagnoses\), (\d+) times less",
        lambda: (*get_both("drift"), get_late("fedavg", "drift") / get_late("fedcm", "drift")),
    ),
    Quote(DIAGNOSED, r"is −([\d.]+) on average, between −([\d.]+) and ([\d.]+\d)", get_cosines),
    Quote(DIAGNOSED, r"a cosine of ([\d.]+) against ([\d.]+\d)", lambda: get_both("direction_cosine")),
    Quote(
        DIAGNOSED,
        r"‖∇f‖ is ([\d.]+) against ([\d.]+), σ_g² is (\d+) against (\d+)",
        lambda: (*get_both("gradient_norm"), *get_both("dissimilarity")),
    ),
]
