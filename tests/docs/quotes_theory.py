"""Numbers in the sentences of docs/theory.md, from what `fedcm theory rates` wrote."""

import functools
import math
from typing import Any

from quotes import Quote, read_json

from fedcm.theory.rates.plan import list_experiments
from fedcm.theory.theorem.bounds import compute_leading_noise

PAGE = "docs/theory.md"


@functools.cache
def _read_rows() -> dict[tuple[str, str], dict[str, Any]]:
    return {(row["experiment"], row["algorithm"]): row for row in read_json("theory/theory-rates.json")}


def get(experiment: str, key: str, algorithm: str = "fedcm") -> Any:
    """Return a value of an experiment."""
    return _read_rows()[experiment, algorithm][key]


def get_ratios(experiment: str, algorithm: str = "fedavg", of: str = "fedcm") -> list[float]:
    """Return by how many percent an algorithm's errors are above FedCM's."""
    pairs = zip(get(experiment, "errors", algorithm), get(experiment, "errors", of), strict=True)
    return [100 * (own / other - 1) for own, other in pairs]


def get_extremes(*experiments: str) -> tuple[float, float]:
    """Return the least and the largest of these percentages."""
    found = [ratio for experiment in experiments for ratio in get_ratios(experiment)]
    return min(found), max(found)


def get_band() -> tuple[float, float]:
    """Return the band around the exponents of the example."""
    return get("strongly-convex-T", "proven") - 0.1, get("strongly-convex-T", "proven_with_log") + 0.1


def compute_memories(*names: str) -> tuple[float, float]:
    """Return the least and the largest μ²DT/(4v) of some experiments."""
    found = []
    for experiment in (experiment for experiment in list_experiments() if experiment.name in names):
        for point in experiment.points:
            noise = compute_leading_noise(point.make_setting())
            curvature = point.problem.constants.strong_convexity
            found.append(curvature**2 * point.distance * point.rounds / (4 * noise))
    return min(found), max(found)


def get_bound_ratios(*names: str, key: str = "stated_bounds") -> list[float]:
    """Return bound over error at all points of some experiments."""
    rows = [_read_rows()[name, "fedcm"] for name in names]
    return [
        bound / error for row in rows for bound, error in zip(row[key], row["errors"], strict=True) if bound is not None
    ]


def _get_stable_bound_ratios() -> tuple[float, float]:
    """Return the range of explicit bound over error in the table, without `noise-free` and the proof's own steps."""
    names = {name for name, algorithm in _read_rows() if algorithm == "fedcm" and not name.startswith("momentum-")}
    own = [name for name in names - {"noise-free", "proof-steps-S"} if get(name, "explicit_bounds")]
    ratios = get_bound_ratios(*own, key="explicit_bounds")
    return round(min(ratios), -1), round(max(ratios) / 1e6, -1)


SHORT, LONG = "clients-N-short", "clients-N"
NONCONVEX = ("nonconvex-T", "nonconvex-K", "nonconvex-S", "small-alpha-S", "small-alpha-S-long")


def get_rounds(name: str) -> int:
    """Return the rounds of an experiment whose points have equally many."""
    (experiment,) = (experiment for experiment in list_experiments() if experiment.name == name)
    return experiment.points[0].rounds


QUOTES = [
    Quote(PAGE, r"K·S·T \| ([\d,]+) \|", lambda: 10 * 10 * 1000),
    Quote(PAGE, r"visits, S·T \| ([\d,]+) \|", lambda: 10 * 1000),
    Quote(PAGE, r"of rounds, T \| ([\d,]+) \|", lambda: 1000),
    Quote(
        PAGE,
        r"With (\d+) times as many rounds it agrees",
        lambda: get_rounds("small-alpha-S-long") / get_rounds("small-alpha-S"),
    ),
    Quote(
        PAGE,
        r"error falls from (\S+) at T = 125 to (\S+) at T = 2000. So (\d+) times as many rounds give a (\d+) times",
        lambda: (
            get("strongly-convex-T", "errors")[0],
            get("strongly-convex-T", "errors")[-1],
            2000 / 125,
            get("strongly-convex-T", "errors")[0] / get("strongly-convex-T", "errors")[-1],
        ),
    ),
    Quote(PAGE, r"−log 12 / log 16 = −([\d.]+\d)", lambda: -math.log(12) / math.log(16)),
    Quote(PAGE, r"The fit over all five points is −([\d.]+\d)", lambda: get("strongly-convex-T", "slope")),
    Quote(PAGE, r"has the exponent −([\d.]+\d)", lambda: get("strongly-convex-T", "proven_with_log")),
    Quote(PAGE, r"In the example it is −([\d.]+\d) to −([\d.]+\d)", get_band),
    Quote(
        PAGE,
        r"exponents are −([\d.]+), −([\d.]+) and −([\d.]+\d)",
        lambda: [get(f"strongly-convex-{varied}", "slope") for varied in "TKS"],
    ),
    Quote(
        PAGE,
        r"proven −1 into −([\d.]+), −([\d.]+) and −([\d.]+\d)",
        lambda: [get(f"strongly-convex-{varied}", "proven_with_log") for varied in "TKS"],
    ),
    Quote(
        PAGE,
        r"from point to point are \+([\d.]+), \+([\d.]+) and \+([\d.]+\d)",
        lambda: get("alpha-small", "slopes_between"),
    ),
    Quote(
        PAGE,
        r"some (\d+) times smaller at σ_g = 1 and (\d+) times smaller at σ_g = 8",
        lambda: [
            round(get("dissimilarity", "errors")[place] / get("dissimilarity", "errors", "scaffold")[place], digits)
            for place, digits in ((0, -2), (-1, -3))
        ],
    ),
    Quote(PAGE, r"\| `ridge-T` \| ([\d.]+) to ([\d.]+) \|", lambda: compute_memories("ridge-T")),
    Quote(PAGE, r"\| `logistic-T` \| ([\d.]+) to ([\d.]+) \|", lambda: compute_memories("logistic-T")),
    Quote(
        PAGE,
        r"T, K or S varies \| (\d+) to (\d+) \|",
        lambda: compute_memories(*(f"strongly-convex-{varied}" for varied in "TKS")),
    ),
    Quote(PAGE, r"\| `strongly-convex-mu` \| (\d+) \|", lambda: compute_memories("strongly-convex-mu")[0]),
    Quote(PAGE, r"\| `dissimilarity` \| (\d+) to (\d+) \|", lambda: compute_memories("dissimilarity")),
    Quote(PAGE, r"it is −([\d.]+) over the last doubling", lambda: get("ridge-T", "slopes_between")[-1]),
    Quote(
        PAGE,
        r"error is (\d+) to (\d+) % above FedCM's at T = 1000 and (\d+) to (\d+) % at T = 200",
        lambda: (*get_extremes(LONG), *get_extremes(SHORT)),
    ),
    Quote(PAGE, r"once in (\d+) rounds and ([\d.]+) times in 200", lambda: (10**4 / 10, 200 * 10 / 10**4)),
    Quote(PAGE, r"η_g = ([\d.]+), and 1/L is 1", lambda: 0.08 * 10),
    Quote(PAGE, r"For example, ([\d.]+) means that FedAvg's error is (\d+) %", lambda: (1.4, 40)),
    Quote(
        PAGE,
        r"T: ([\d.]+) falling to ([\d.]+) where",
        lambda: [1 + get_ratios("momentum-biased")[place] / 100 for place in (0, -1)],
    ),
    Quote(
        PAGE,
        r"between 1 and ([\d.]+) without alignment or spread, ([\d.]+) rising to 1",
        lambda: (
            1 + get_extremes("momentum-unaligned", "momentum-no-spread")[1] / 100,
            1 + get_ratios("momentum-equal-clients")[0] / 100,
        ),
    ),
    Quote(
        PAGE,
        r"error is (\d+) % above FedCM's at T = 125 and (\d+) % above at T = 1000",
        lambda: [get_ratios("momentum-biased")[place] for place in (0, -1)],
    ),
    Quote(
        PAGE,
        r"the difference is (\d+) to (\d+) %, and without spread (\d+) to (\d+) %",
        lambda: (*get_extremes("momentum-unaligned"), *get_extremes("momentum-no-spread")),
    ),
    Quote(
        PAGE,
        r"Momentum gains at most (\d+) % in either",
        lambda: get_extremes("momentum-unaligned", "momentum-no-spread")[1],
    ),
    Quote(PAGE, r"error is (\d+) % \*below\*", lambda: -get_ratios("momentum-equal-clients")[0]),
    Quote(
        PAGE,
        r"From T = 250 on it is within (\d+) %",
        lambda: max(map(abs, get_ratios("momentum-equal-clients")[1:])),
    ),
    Quote(
        PAGE,
        r"\(`proof-steps-S`\): (\d+) times the error",
        lambda: get_bound_ratios("proof-steps-S", key="explicit_bounds")[0],
    ),
    Quote(
        PAGE,
        r"it is ([\d.]+) to ([\d.]+) times the error",
        lambda: (min(get_bound_ratios(*NONCONVEX)), max(get_bound_ratios(*NONCONVEX))),
    ),
    Quote(PAGE, r"above the error by factors of (\d+) to (\d+) million", _get_stable_bound_ratios),
    Quote(PAGE, r"mostly by factors of (\d+) to (\d+) million", _get_stable_bound_ratios),
]
