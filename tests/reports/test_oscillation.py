"""How much a curve oscillates, and the claim that FedAdam's oscillates more than FedCM's."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
from made_digests import make_oscillating_curve, make_test_digest

from fedcm.reports.claims.oscillation import list_oscillations, measure_oscillation
from fedcm.reports.claims.paper_claims import judge_paper_claims
from fedcm.reports.digest import Digest
from fedcm.reports.entry import Entry
from fedcm.reports.groups import group_runs


def get_verdict(runs: Sequence[Digest]) -> str:
    (claim,) = (claim for claim in judge_paper_claims(group_runs(runs), runs) if "oscillates" in claim.text)
    return claim.verdict


def make_waves(*widths: float, algorithm: str = "fedcm") -> list[Digest]:
    """Return one run per width, with seeds 1, 2, …, whose curve alternates by this width."""
    return [
        make_test_digest(algorithm, curve=make_oscillating_curve(0.8, width), seed=seed)
        for seed, width in enumerate(widths, 1)
    ]


def test_oscillation_of_noise_about_a_slope_is_its_deviation() -> None:
    draw = np.random.default_rng(0)
    curve = np.linspace(0.2, 0.9, 20_000) + draw.normal(0, 0.013, 20_000)
    assert measure_oscillation(curve.tolist()) == pytest.approx(1.3, rel=0.03)


@pytest.mark.parametrize("slope", [0.0, 0.01, -0.02])
def test_oscillation_of_alternating_values_has_a_closed_form(slope: float) -> None:
    """The second differences of ±w are 4w."""
    curve = [0.5 + slope * k + 0.01 * (-1) ** k for k in range(40)]
    assert measure_oscillation(curve) == pytest.approx(4 * 1.0 / math.sqrt(6))
    assert measure_oscillation([0.5 + slope * k for k in range(40)]) == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("length", [40, 41])
def test_only_the_second_half_counts(length: int) -> None:
    half = length // 2
    wild = [0.5 + 0.1 * (-1) ** k for k in range(half)]
    straight = [0.5 + k / 1000 for k in range(length - half)]
    assert measure_oscillation(wild + straight) == pytest.approx(0, abs=1e-9)
    for place in (half, length - 1):  # its first and its last evaluation
        bent = [*wild, *straight]
        bent[place] += 0.05
        assert (measure_oscillation(bent) or 0) > 0.4


@pytest.mark.parametrize(("evaluations", "known"), [(14, False), (15, True), (16, True)])
def test_oscillation_needs_8_evaluations_in_the_second_half(evaluations: int, known: bool) -> None:
    assert (measure_oscillation([0.5] * evaluations) is not None) == known
    shorter = make_test_digest("fedadam", curve=make_oscillating_curve(0.8, 0.02, evaluations))
    assert get_verdict([*make_waves(0.001), shorter]) == ("suggestive" if known else "not tested")
    own = make_test_digest(curve=make_oscillating_curve(0.8, 0.001, evaluations))
    assert get_verdict([own, *make_waves(0.02, algorithm="fedadam")]) == ("suggestive" if known else "not tested")


def test_rounds_without_an_accuracy_are_skipped() -> None:
    (run,) = make_waves(0.01)
    count = len(run.curve.round)
    padded = run.curve.model_copy(
        update={
            "round": [*run.curve.round, count + 1, count + 2],
            "test_accuracy": [*run.curve.test_accuracy, None, None],
        }
    )
    oscillations = list_oscillations(Entry((run.model_copy(update={"curve": padded}),)))
    assert oscillations == list_oscillations(Entry((run,)))


def test_oscillation_is_measured_per_seed_and_not_for_diverged_runs() -> None:
    runs = make_waves(0.01, 0.02)
    oscillations = list_oscillations(Entry(tuple(runs)))
    assert oscillations == {
        seed: pytest.approx(4 * 50 * width / math.sqrt(6)) for seed, width in ((1, 0.01), (2, 0.02))
    }
    assert list_oscillations(Entry((runs[0], runs[1].model_copy(update={"state": "diverged"})))) is None
    assert list_oscillations(Entry((runs[0], make_test_digest(seed=3, curve=[0.1, 0.2])))) is None


@pytest.mark.parametrize(
    ("own", "other", "expected"),
    [
        ([0.005], [0.02], "suggestive"),  # one seed
        ([0.005, 0.006, 0.007], [0.02, 0.021, 0.022], "seen"),
        ([0.005, 0.006, 0.02], [0.02, 0.021, 0.004], "suggestive"),  # within the spread
        ([0.005], [0.005], "not seen"),  # a tie
        ([0.005], [0.00505], "not seen"),  # 0.004 points more, which do not show
        ([0.005], [0.0051], "suggestive"),  # 0.008 do
        ([0.02], [0.005], "not seen"),
        ([0.02, 0.021, 0.022], [0.005, 0.006, 0.007], "contradicted"),
    ],
)
def test_oscillation_is_judged_by_its_uncertainty(own: list[float], other: list[float], expected: str) -> None:
    assert get_verdict([*make_waves(*own), *make_waves(*other, algorithm="fedadam")]) == expected


def test_only_fedadam_counts() -> None:
    assert get_verdict([*make_waves(0.005), *make_waves(0.02, algorithm="fedavg")]) == "not tested"
    runs = [*make_waves(0.005), *make_waves(0.02, algorithm="fedadam"), *make_waves(0.001, algorithm="fedavg")]
    assert get_verdict(runs) == "suggestive"


def set_spacing(run: Digest, every: int, last: int | None = None) -> Digest:
    """Return the same curve as if evaluated every `every` rounds, with the last evaluation at round `last`."""
    rounds = [every * k for k in range(1, len(run.curve.round) + 1)]
    rounds[-1] = last or rounds[-1]
    return run.model_copy(update={"curve": run.curve.model_copy(update={"round": rounds})})


def test_curves_with_different_evaluation_intervals_are_not_compared() -> None:
    """The rarer the evaluations, the more the trend bends between two of them."""
    (own,), (other,) = make_waves(0.005), make_waves(0.02, algorithm="fedadam")
    assert get_verdict([own, set_spacing(other, 10)]) == "not tested"
    assert get_verdict([set_spacing(own, 10), other]) == "not tested"
    assert get_verdict([set_spacing(own, 10), set_spacing(other, 10)]) == "suggestive"
    end = 10 * len(own.curve.round) - 3
    assert get_verdict([set_spacing(own, 10, end), set_spacing(other, 10, end)]) == "suggestive", (
        "the last round is evaluated too"
    )


def test_evidence_has_both_oscillations() -> None:
    runs = [*make_waves(0.005), *make_waves(0.02, algorithm="fedadam")]
    (claim,) = (claim for claim in judge_paper_claims(group_runs(runs), runs) if "oscillates" in claim.text)
    assert claim.evidence == (
        "(✓) I · dirichlet: FedAdam ±1.63, FedCM ±0.41 points about the trend, +1.22 points (one seed)",
    )
