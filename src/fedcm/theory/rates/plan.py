"""What `fedcm theory rates` measures: each experiment varies one quantity and knows what exponent was proven for it.

The proven exponents are those of the theorem's leading noise term, σ_l²/(KST) and (1 − S/N)σ_g²/(ST), so the problems
are noisy enough for it to lead, and the horizons long enough for the start to be forgotten (of ridge, not quite). The
theorem at α = 1 is one on FedAvg. SCAFFOLD's paper proves the same of σ_l²; FedDyn's has no noise in its theorem, so
nothing is proven there.
"""

from dataclasses import replace
from functools import lru_cache

from fedcm.theory.problems.quadratics import Quadratics
from fedcm.theory.problems.regression import digits_logistic, digits_ridge
from fedcm.theory.problems.saturating import Saturating
from fedcm.theory.rates.points import FEW, Case, Claim, Experiment, Point, Replicates


def _noise(exponent: float) -> dict[str, Claim]:
    """Of the leading noise term."""
    return {"fedcm": exponent, "fedavg": exponent, "scaffold": exponent, "feddyn": None}


def _quadratics(**changes: object) -> Quadratics:
    """κ = 10, noise far above what the start leaves."""
    settings = {"distinct": 100, "dimension": 10, "strong_convexity": 0.1, "smoothness": 1.0, "noise": 3.0} | changes
    return Quadratics(**settings)  # pyright: ignore[reportArgumentType]


_HORIZONS = (125, 250, 500, 1000, 2000)
_POWERS = (1, 2, 4, 8, 16)
_FLAT = 2.0**-19  # μ of the general convex problem: over these horizons as good as 0
_EQUAL_SCALES = "curvatures on every scale down to 2⁻¹⁹, so that some direction is slow at each horizon"


def _strongly_convex() -> list[Experiment]:
    case: Case = "strongly convex"
    both, only_noise = _quadratics(dissimilarity=1.0), _quadratics()
    many = _quadratics(dissimilarity=1.0, copies=10)
    rates = (0.02, 0.04, 0.08, 0.16, 0.32)
    return [
        Experiment("strongly-convex-T", case, "T", tuple(Point(t, both, rounds=t) for t in _HORIZONS), _noise(-1)),
        Experiment("strongly-convex-K", case, "K", tuple(Point(k, only_noise, steps=k) for k in _POWERS), _noise(-1)),
        Experiment(
            "strongly-convex-S", case, "S", tuple(Point(2 * s, many, cohort=2 * s) for s in _POWERS), _noise(-1)
        ),
        Experiment(
            "strongly-convex-mu",
            case,
            "μ",
            tuple(
                Point(m, _quadratics(strong_convexity=m, spectrum="two"), rounds=1000, offset=0.1 / m) for m in rates
            ),
            _noise(-1),
            note="x_0 at a distance ∝ 1/μ, so that the logarithm in η_g stays as it is",
        ),
    ]


def _convex() -> list[Experiment]:
    case: Case = "general convex"
    only_noise = _quadratics(strong_convexity=_FLAT, dimension=20)
    both = replace(only_noise, dissimilarity=1.0)
    many = replace(both, copies=10)
    return [
        Experiment(
            "convex-T", case, "T", tuple(Point(t, both, rounds=t) for t in _HORIZONS), _noise(-0.5), note=_EQUAL_SCALES
        ),
        Experiment("convex-K", case, "K", tuple(Point(k, only_noise, steps=k) for k in _POWERS), _noise(-0.5)),
        Experiment("convex-S", case, "S", tuple(Point(2 * s, many, cohort=2 * s) for s in _POWERS), _noise(-0.5)),
    ]


def _nonconvex() -> list[Experiment]:
    case: Case = "not convex"
    both, only_noise = Saturating(1000, 10, noise=10.0, dissimilarity=3.0), Saturating(100, 10, noise=10.0)
    cohorts = tuple(Point(2 * s, both, cohort=2 * s, alpha=0.5) for s in _POWERS)
    return [
        Experiment(
            "nonconvex-T", case, "T", tuple(Point(t, both, rounds=t, alpha=0.5) for t in _HORIZONS), _noise(-0.5)
        ),
        Experiment(
            "nonconvex-K", case, "K", tuple(Point(k, only_noise, steps=k, alpha=0.5) for k in _POWERS), _noise(-0.5)
        ),
        Experiment("nonconvex-S", case, "S", cohorts, _noise(-0.5)),
        Experiment(
            "small-alpha-S",
            case,
            "S",
            tuple(replace(point, alpha=0.1) for point in cohorts),
            {"fedcm": -0.5},
            note="α = 0.1 where the row above has 0.5: at this horizon the term with 1/α² still leads",
        ),
        Experiment(
            "small-alpha-S-long",
            case,
            "S",
            tuple(replace(point, alpha=0.1, rounds=4000) for point in cohorts[::2]),
            {"fedcm": -0.5},
            note="the same at 8 times the horizon",
            replicates=FEW,
        ),
        Experiment(
            "proof-steps-S",
            case,
            "S",
            tuple(replace(point, rounds=2000) for point in cohorts),
            {"fedcm": -0.5},
            steps="proof",
            note="η_g and η_l exactly as the proof chooses them, with G: V contains 160·G², which no S makes smaller",
            replicates=FEW,
        ),
    ]


def _digits() -> list[Experiment]:
    note = "real digits, 20 clients of unlike labels, from x_0 = 0"
    ridge, logistic = digits_ridge(noise=1.0), digits_logistic(noise=0.3)
    return [
        Experiment(
            f"{name}-T",
            "strongly convex",
            "T",
            tuple(Point(t, problem, rounds=t, steps=2, cohort=5, offset=None) for t in (125, 250, 500, 1000)),
            _noise(-1),
            note=note,
        )
        for name, problem in (("ridge", ridge), ("logistic", logistic))
    ]


def _other_constants() -> list[Experiment]:
    case: Case = "strongly convex"
    both = _quadratics(dissimilarity=1.0)
    differ = (1.0, 2.0, 4.0, 8.0)

    def memory(*rounds: int) -> tuple[Point, ...]:
        return tuple(Point(m, both, rounds=1000, alpha=1 / m) for m in rounds)

    return [
        Experiment(
            "alpha",
            case,
            "1/α",
            memory(1, 4, 20, 80),
            {"fedcm": 0.0},
            note="the leading term, which α hardly enters",
            replicates=Replicates(8, 96),
        ),
        Experiment(
            "alpha-small",
            case,
            "1/α",
            memory(80, 160, 320, 640),
            {"fedcm": 2.0},
            note="the term with 1/α², for which steps must be shorter",
            times=tuple(2.0**k for k in range(-6, 1)),
        ),
        Experiment(
            "dissimilarity",
            case,
            "σ_g",
            tuple(Point(s, _quadratics(noise=0.1, dissimilarity=s)) for s in differ),
            {"fedcm": 2.0, "fedavg": 2.0, "scaffold": None, "feddyn": None},
            note="hardly any gradient noise; clients that keep a state can take σ_g out",
        ),
        Experiment(
            "noise-free",
            case,
            "T",
            tuple(Point(t, _quadratics(noise=0.0), rounds=t, cohort=100) for t in (50, 100, 200)),
            {"fedcm": -1.0, "fedavg": -1.0, "scaffold": None, "feddyn": None},
            note="no noise, equal clients: what is left of the bound is G²/(μT)",
        ),
    ]


def _participation() -> list[Experiment]:
    problem = _quadratics(noise=0.3, dissimilarity=3.0, spread=0.5)

    def over(rounds: int, name: str, note: str) -> Experiment:
        points = tuple(
            Point(100 * copies, replace(problem, copies=copies), rounds=rounds, steps=10) for copies in (1, 10, 100)
        )
        claims: dict[str, Claim] = {"fedcm": 0.0, "fedavg": 0.0, "scaffold": "grows", "feddyn": "grows"}
        return Experiment(name, "strongly convex", "N", points, claims, "averaging", note)

    note = "S = 10 always; the same 100 clients, copied: f and all constants stay, only S/N falls"
    return [
        over(1000, "clients-N", note),
        over(200, "clients-N-short", "a fifth of the rounds: of 10⁴ clients most are never seen"),
    ]


def _momentum() -> list[Experiment]:
    """FedCM against FedAvg where local steps are biased, and controls that take the cause away, one part after another.

    f is the same function in all four: without a spread, μ and L are those of the mean of the A_i with it.
    """
    biased = _quadratics(noise=0.3, dissimilarity=3.0, spread=0.5, copies=10)
    low, high = (float(end) for end in biased.eigenvalues[[0, -1]])
    level = replace(biased, spread=0.0, alignment=0.0, strong_convexity=low, smoothness=high)
    problems = {
        "biased": (
            biased,
            "curvatures differ (spread 0.5), and slopes with them (alignment 0.5): the problem of clients-N",
        ),
        "unaligned": (
            replace(biased, alignment=0.0),
            "control: alignment 0, local steps differ but make no common bias",
        ),
        "no-spread": (level, "control: spread 0 and alignment 0, only the clients' slopes differ"),
        "equal-clients": (replace(level, dissimilarity=0.0), "control: σ_g = 0 as well, clients differ in nothing"),
    }
    return [
        Experiment(
            f"momentum-{name}",
            "strongly convex",
            "T",
            tuple(Point(t, problem, rounds=t, steps=10) for t in (125, 250, 500, 1000)),
            {"fedcm": None, "fedavg": None},
            "averaging",
            note,
            Replicates(16, 96),
            client_lrs=tuple(0.00125 * 2 ** (k / 4) for k in range(29)),  # fine: the two need different steps
        )
        for name, (problem, note) in problems.items()
    ]


@lru_cache(maxsize=1)
def experiments() -> tuple[Experiment, ...]:
    made = [_strongly_convex(), _convex(), _nonconvex(), _digits(), _other_constants(), _participation(), _momentum()]
    return tuple(experiment for group in made for experiment in group)
