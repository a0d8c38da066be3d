"""All experiments of `fedcm theory rates`: each varies one quantity and states the exponent that is proven for it.

The proven exponents are those of the theorem's leading noise term, σ_l²/(KST) and (1 − S/N)σ_g²/(ST). So the problems
are noisy enough for this term to dominate, and the horizons long enough to forget the start (ridge: not quite). The
theorem at α = 1 is about FedAvg. SCAFFOLD's paper proves the same for σ_l². FedDyn's theorem has no noise, so nothing
is proven for it.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from fedcm.errors import UserError, suggest
from fedcm.theory.problems.quadratics import Quadratics
from fedcm.theory.problems.regression import make_digits_logistic, make_digits_ridge
from fedcm.theory.problems.saturating import Saturating
from fedcm.theory.rates.experiment import FEW, Case, Claim, RateExperiment, RatePoint, ReplicateCounts


def _make_noise_claims(exponent: float) -> dict[str, Claim]:
    """Return the claims about the leading noise term."""
    return {"fedcm": exponent, "fedavg": exponent, "scaffold": exponent, "feddyn": None}


def _make_quadratics(**changes: object) -> Quadratics:
    """Make quadratics with κ = 10, and noise far above the remaining effect of the start."""
    settings = {"distinct": 100, "dimension": 10, "strong_convexity": 0.1, "smoothness": 1.0, "noise": 3.0} | changes
    return Quadratics(**settings)  # pyright: ignore[reportArgumentType]


_HORIZONS = (125, 250, 500, 1000, 2000)
_POWERS = (1, 2, 4, 8, 16)
_FLAT = 2.0**-19  # μ of the general convex problem: over these horizons practically 0
_ALL_SCALES = "curvatures on every scale down to 2⁻¹⁹, so that some direction is slow at each horizon"


def _make_strongly_convex() -> list[RateExperiment]:
    case: Case = "strongly convex"
    both, only_noise = _make_quadratics(dissimilarity=1.0), _make_quadratics()
    many = _make_quadratics(dissimilarity=1.0, copies=10)
    rates = (0.02, 0.04, 0.08, 0.16, 0.32)
    return [
        RateExperiment(
            "strongly-convex-T",
            case,
            "T",
            tuple(RatePoint(t, both, rounds=t) for t in _HORIZONS),
            _make_noise_claims(-1),
        ),
        RateExperiment(
            "strongly-convex-K",
            case,
            "K",
            tuple(RatePoint(k, only_noise, steps=k) for k in _POWERS),
            _make_noise_claims(-1),
        ),
        RateExperiment(
            "strongly-convex-S",
            case,
            "S",
            tuple(RatePoint(2 * s, many, cohort_size=2 * s) for s in _POWERS),
            _make_noise_claims(-1),
        ),
        RateExperiment(
            "strongly-convex-mu",
            case,
            "μ",
            tuple(
                RatePoint(m, _make_quadratics(strong_convexity=m, spectrum="two"), rounds=1000, offset=0.1 / m)
                for m in rates
            ),
            _make_noise_claims(-1),
            note="x_0 at a distance ∝ 1/μ, so that the logarithm in η_g stays constant",
        ),
    ]


def _make_convex() -> list[RateExperiment]:
    case: Case = "general convex"
    only_noise = _make_quadratics(strong_convexity=_FLAT, dimension=20)
    both = replace(only_noise, dissimilarity=1.0)
    many = replace(both, copies=10)
    return [
        RateExperiment(
            "convex-T",
            case,
            "T",
            tuple(RatePoint(t, both, rounds=t) for t in _HORIZONS),
            _make_noise_claims(-0.5),
            note=_ALL_SCALES,
        ),
        RateExperiment(
            "convex-K", case, "K", tuple(RatePoint(k, only_noise, steps=k) for k in _POWERS), _make_noise_claims(-0.5)
        ),
        RateExperiment(
            "convex-S",
            case,
            "S",
            tuple(RatePoint(2 * s, many, cohort_size=2 * s) for s in _POWERS),
            _make_noise_claims(-0.5),
        ),
    ]


def _make_nonconvex() -> list[RateExperiment]:
    case: Case = "not convex"
    both, only_noise = Saturating(1000, 10, noise=10.0, dissimilarity=3.0), Saturating(100, 10, noise=10.0)
    cohorts = tuple(RatePoint(2 * s, both, cohort_size=2 * s, alpha=0.5) for s in _POWERS)
    return [
        RateExperiment(
            "nonconvex-T",
            case,
            "T",
            tuple(RatePoint(t, both, rounds=t, alpha=0.5) for t in _HORIZONS),
            _make_noise_claims(-0.5),
        ),
        RateExperiment(
            "nonconvex-K",
            case,
            "K",
            tuple(RatePoint(k, only_noise, steps=k, alpha=0.5) for k in _POWERS),
            _make_noise_claims(-0.5),
        ),
        RateExperiment("nonconvex-S", case, "S", cohorts, _make_noise_claims(-0.5)),
        RateExperiment(
            "small-alpha-S",
            case,
            "S",
            tuple(replace(point, alpha=0.1) for point in cohorts),
            {"fedcm": -0.5},
            note="α = 0.1 instead of 0.5: at this horizon the term with 1/α² still dominates",
        ),
        RateExperiment(
            "small-alpha-S-long",
            case,
            "S",
            tuple(replace(point, alpha=0.1, rounds=4000) for point in cohorts[::2]),
            {"fedcm": -0.5},
            note="the same at 8 times the horizon",
            replicates=FEW,
        ),
        RateExperiment(
            "proof-steps-S",
            case,
            "S",
            tuple(replace(point, rounds=2000) for point in cohorts),
            {"fedcm": -0.5},
            steps="proof",
            note="η_g and η_l exactly as the proof chooses them, with G: V contains 160·G², which does not fall with S",
            replicates=FEW,
        ),
    ]


def _make_digits() -> list[RateExperiment]:
    note = "real digits, 20 clients with different labels, from x_0 = 0"
    ridge, logistic = make_digits_ridge(noise=1.0), make_digits_logistic(noise=0.3)
    return [
        RateExperiment(
            f"{name}-T",
            "strongly convex",
            "T",
            tuple(RatePoint(t, problem, rounds=t, steps=2, cohort_size=5, offset=None) for t in (125, 250, 500, 1000)),
            _make_noise_claims(-1),
            note=note,
        )
        for name, problem in (("ridge", ridge), ("logistic", logistic))
    ]


def _make_other_constants() -> list[RateExperiment]:
    case: Case = "strongly convex"
    both = _make_quadratics(dissimilarity=1.0)
    differ = (1.0, 2.0, 4.0, 8.0)

    def vary_alpha(*memories: int) -> tuple[RatePoint, ...]:
        return tuple(RatePoint(memory, both, rounds=1000, alpha=1 / memory) for memory in memories)

    return [
        RateExperiment(
            "alpha",
            case,
            "1/α",
            vary_alpha(1, 4, 20, 80),
            {"fedcm": 0.0},
            note="the leading term, which hardly depends on α",
            replicates=ReplicateCounts(8, 96),
        ),
        RateExperiment(
            "alpha-small",
            case,
            "1/α",
            vary_alpha(80, 160, 320, 640),
            {"fedcm": 2.0},
            note="the term with 1/α², which needs shorter steps",
            times=tuple(2.0**k for k in range(-6, 1)),
        ),
        RateExperiment(
            "dissimilarity",
            case,
            "σ_g",
            tuple(RatePoint(s, _make_quadratics(noise=0.1, dissimilarity=s)) for s in differ),
            {"fedcm": 2.0, "fedavg": 2.0, "scaffold": None, "feddyn": None},
            note="hardly any gradient noise; client state can remove σ_g",
        ),
        RateExperiment(
            "noise-free",
            case,
            "T",
            tuple(RatePoint(t, _make_quadratics(noise=0.0), rounds=t, cohort_size=100) for t in (50, 100, 200)),
            {"fedcm": -1.0, "fedavg": -1.0, "scaffold": None, "feddyn": None},
            note="no noise, equal clients: G²/(μT) is left of the bound",
        ),
    ]


def _make_participation() -> list[RateExperiment]:
    problem = _make_quadratics(noise=0.3, dissimilarity=3.0, spread=0.5)

    def vary_clients(rounds: int, name: str, note: str) -> RateExperiment:
        points = tuple(
            RatePoint(100 * copies, replace(problem, copies=copies), rounds=rounds, steps=10) for copies in (1, 10, 100)
        )
        claims: dict[str, Claim] = {"fedcm": 0.0, "fedavg": 0.0, "scaffold": "grows", "feddyn": "grows"}
        return RateExperiment(name, "strongly convex", "N", points, claims, "averaging", note)

    note = "S = 10; the same 100 clients, copied: f and all constants stay the same, only S/N falls"
    return [
        vary_clients(1000, "clients-N", note),
        vary_clients(200, "clients-N-short", "a fifth of the rounds: most of 10⁴ clients are never sampled"),
    ]


def _make_momentum() -> list[RateExperiment]:
    """Compare FedCM with FedAvg where local steps are biased, and in controls that remove the cause step by step.

    f is the same function in all four: without a spread, μ and L are those of the mean of the A_i with a spread.
    """
    biased = _make_quadratics(noise=0.3, dissimilarity=3.0, spread=0.5, copies=10)
    low, high = (float(end) for end in biased.eigenvalues[[0, -1]])
    level = replace(biased, spread=0.0, alignment=0.0, strong_convexity=low, smoothness=high)
    problems = {
        "biased": (
            biased,
            "curvatures differ (spread 0.5) and slopes correlate with them (alignment 0.5): the problem of clients-N",
        ),
        "unaligned": (
            replace(biased, alignment=0.0),
            "control: alignment 0; local steps differ but have no common bias",
        ),
        "no-spread": (level, "control: spread 0 and alignment 0; only the clients' slopes differ"),
        "equal-clients": (replace(level, dissimilarity=0.0), "control: σ_g = 0 as well; all clients are equal"),
    }
    return [
        RateExperiment(
            f"momentum-{name}",
            "strongly convex",
            "T",
            tuple(RatePoint(t, problem, rounds=t, steps=10) for t in (125, 250, 500, 1000)),
            {"fedcm": None, "fedavg": None},
            "averaging",
            note,
            ReplicateCounts(16, 96),
            client_lrs=tuple(
                0.00125 * 2 ** (k / 4) for k in range(29)
            ),  # a fine grid: the two algorithms need different steps
        )
        for name, (problem, note) in problems.items()
    ]


@lru_cache(maxsize=1)
def list_experiments() -> tuple[RateExperiment, ...]:
    """List all experiments, in the order of the tables."""
    groups = [
        _make_strongly_convex(),
        _make_convex(),
        _make_nonconvex(),
        _make_digits(),
        _make_other_constants(),
        _make_participation(),
        _make_momentum(),
    ]
    return tuple(experiment for group in groups for experiment in group)


def select_experiments(names: Sequence[str], quick: bool) -> list[RateExperiment]:
    """Select experiments by name.

    Args:
        names: Exact names or, if no experiment has that name, beginnings of names. Empty selects all.
        quick: Shorten them.

    Raises:
        UserError: If a name matches no experiment.
    """
    known = list_experiments()
    wanted = {e.name for name in names for e in _match_name(name, known)} if names else {e.name for e in known}
    selected = [e for e in known if e.name in wanted]
    return [e.shorten() for e in selected] if quick else selected


def _match_name(name: str, known: Sequence[RateExperiment]) -> list[RateExperiment]:
    if not name:
        raise UserError("--only needs the name of an experiment or its beginning, got ''; omit --only to run all")
    matches = [e for e in known if e.name == name] or [e for e in known if e.name.startswith(name)]
    if not matches:
        raise UserError(f"there is no experiment {name!r}; {suggest(name, [e.name for e in known])}")
    return matches
