"""How much a curve oscillates, and when FedAdam's is said to do so more than FedCM's."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
from made_digests import made, wavering

from fedcm.reports.claims.claims import claims
from fedcm.reports.claims.oscillation import list_oscillations, measure_oscillation
from fedcm.reports.digest import Digest
from fedcm.reports.entry import Entry
from fedcm.reports.groups import grouped


def verdict(runs: Sequence[Digest]) -> str:
    (claim,) = (claim for claim in claims(grouped(runs), runs) if "oscillates" in claim.text)
    return claim.verdict


def waves(*widths: float, algorithm: str = "fedcm") -> list[Digest]:
    """A run for each width, with seeds 1, 2, …; its curve goes up and down by so much."""
    return [made(algorithm, curve=wavering(0.8, width), seed=seed) for seed, width in enumerate(widths, 1)]


def test_of_noise_about_a_slope_it_is_the_noises_deviation_in_points() -> None:
    draw = np.random.default_rng(0)
    curve = np.linspace(0.2, 0.9, 20_000) + draw.normal(0, 0.013, 20_000)
    assert measure_oscillation(curve.tolist()) == pytest.approx(1.3, rel=0.03)


@pytest.mark.parametrize("slope", [0.0, 0.01, -0.02])
def test_of_alternation_about_a_line_it_is_known(slope: float) -> None:
    """±w has second differences of 4w."""
    curve = [0.5 + slope * k + 0.01 * (-1) ** k for k in range(40)]
    assert measure_oscillation(curve) == pytest.approx(4 * 1.0 / math.sqrt(6))
    assert measure_oscillation([0.5 + slope * k for k in range(40)]) == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("length", [40, 41])
def test_the_second_half_alone_counts_and_all_of_it(length: int) -> None:
    half = length // 2
    wild = [0.5 + 0.1 * (-1) ** k for k in range(half)]
    straight = [0.5 + k / 1000 for k in range(length - half)]
    assert measure_oscillation(wild + straight) == pytest.approx(0, abs=1e-9)
    for place in (half, length - 1):  # its first and its last evaluation
        bent = [*wild, *straight]
        bent[place] += 0.05
        assert (measure_oscillation(bent) or 0) > 0.4


@pytest.mark.parametrize(("evaluations", "known"), [(14, False), (15, True), (16, True)])
def test_it_takes_8_evaluations_in_the_second_half(evaluations: int, known: bool) -> None:
    assert (measure_oscillation([0.5] * evaluations) is not None) == known
    shorter = made("fedadam", curve=wavering(0.8, 0.02, evaluations))
    assert verdict([*waves(0.001), shorter]) == ("suggestive" if known else "not tested")
    own = made(curve=wavering(0.8, 0.001, evaluations))
    assert verdict([own, *waves(0.02, algorithm="fedadam")]) == ("suggestive" if known else "not tested")


def test_rounds_without_an_accuracy_are_passed_over() -> None:
    (run,) = waves(0.01)
    count = len(run.curve.round)
    padded = run.curve.model_copy(
        update={
            "round": [*run.curve.round, count + 1, count + 2],
            "test_accuracy": [*run.curve.test_accuracy, None, None],
        }
    )
    found = list_oscillations(Entry((run.model_copy(update={"curve": padded}),)))
    assert found == list_oscillations(Entry((run,)))


def test_every_seed_is_measured_and_what_diverged_is_not() -> None:
    runs = waves(0.01, 0.02)
    found = list_oscillations(Entry(tuple(runs)))
    assert found == {seed: pytest.approx(4 * 50 * width / math.sqrt(6)) for seed, width in ((1, 0.01), (2, 0.02))}
    assert list_oscillations(Entry((runs[0], runs[1].model_copy(update={"state": "diverged"})))) is None
    assert list_oscillations(Entry((runs[0], made(seed=3, curve=[0.1, 0.2])))) is None


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
def test_it_is_held_against_fedcm_with_the_same_caution(own: list[float], other: list[float], expected: str) -> None:
    assert verdict([*waves(*own), *waves(*other, algorithm="fedadam")]) == expected


def test_others_than_fedadam_do_not_count() -> None:
    assert verdict([*waves(0.005), *waves(0.02, algorithm="fedavg")]) == "not tested"
    runs = [*waves(0.005), *waves(0.02, algorithm="fedadam"), *waves(0.001, algorithm="fedavg")]
    assert verdict(runs) == "suggestive"


def spaced(run: Digest, every: int, last: int | None = None) -> Digest:
    """The same curve, as if it had been evaluated once in `every` rounds; `last` moves the last evaluation."""
    rounds = [every * k for k in range(1, len(run.curve.round) + 1)]
    rounds[-1] = last or rounds[-1]
    return run.model_copy(update={"curve": run.curve.model_copy(update={"round": rounds})})


def test_curves_that_were_evaluated_in_other_rounds_are_not_compared() -> None:
    """A curve that is looked at rarely bends more between two looks."""
    (own,), (other,) = waves(0.005), waves(0.02, algorithm="fedadam")
    assert verdict([own, spaced(other, 10)]) == "not tested"
    assert verdict([spaced(own, 10), other]) == "not tested"
    assert verdict([spaced(own, 10), spaced(other, 10)]) == "suggestive"
    end = 10 * len(own.curve.round) - 3
    assert verdict([spaced(own, 10, end), spaced(other, 10, end)]) == "suggestive", "the last round is evaluated too"


def test_the_evidence_has_both_numbers() -> None:
    runs = [*waves(0.005), *waves(0.02, algorithm="fedadam")]
    (claim,) = (claim for claim in claims(grouped(runs), runs) if "oscillates" in claim.text)
    assert claim.evidence == (
        "(✓) I · dirichlet: FedAdam ±1.63, FedCM ±0.41 points about the trend, +1.22 points (one seed)",
    )
