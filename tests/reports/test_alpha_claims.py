"""Where the best α lies, and whether every α < 1 beats α = 1: both sides of every boundary of the rules."""

from collections.abc import Mapping, Sequence

import pytest
from made_digests import made

from fedcm.reports.claims.claims import claims
from fedcm.reports.claims.verdicts import Claim
from fedcm.reports.digest import Digest
from fedcm.reports.groups import grouped


def sweep(accuracies: Mapping[float, float | Sequence[float]]) -> list[Digest]:
    """Accuracies in percent by α, with seeds 1, 2, … where there are several."""
    return [
        made(accuracy=value / 100, seed=seed, options={"alpha": alpha})
        for alpha, values in accuracies.items()
        for seed, value in enumerate([values] if isinstance(values, int | float) else values, 1)
    ]


def judged(runs: Sequence[Digest]) -> tuple[Claim, Claim]:
    inner, beats = claims(grouped(runs), runs)[-2:]
    assert "inner optimum" in inner.text
    assert "beats α = 1" in beats.text
    return inner, beats


def inner(accuracies: Mapping[float, float | Sequence[float]]) -> str:
    return judged(sweep(accuracies))[0].verdict


def beats(accuracies: Mapping[float, float | Sequence[float]]) -> str:
    return judged(sweep(accuracies))[1].verdict


@pytest.mark.parametrize("best", [0.031, 0.05, 0.1, 0.2, 0.29])
def test_an_optimum_between_0_03_and_0_3_is_near_0_1(best: float) -> None:
    assert inner({0.01: 60, best: 80, 1.0: 70}) == "suggestive"
    assert inner({0.01: [60, 61, 62], best: [80, 81, 82], 1.0: [70, 71, 72]}) == "seen"


@pytest.mark.parametrize("best", [0.02, 0.03, 0.3, 0.5])
def test_an_optimum_elsewhere_is_not_near_it(best: float) -> None:
    """Though it lies between others, and a value near 0.1 was tried."""
    assert inner({0.01: 60, best: 80, 0.1: 79, 1.0: 70}) == "not seen"


@pytest.mark.parametrize("end", [{0.05: 80, 0.1: 70, 1.0: 60}, {0.01: 60, 0.1: 70, 0.2: 80}])
def test_the_best_at_an_end_of_what_was_tried_is_no_inner_optimum(end: dict[float, float]) -> None:
    """It may lie beyond; near 0.1 though it is, so the claim is not contradicted either."""
    assert inner(end) == "not seen"
    assert inner({alpha: [value, value + 1, value + 2] for alpha, value in end.items()}) == "not seen"


@pytest.mark.parametrize("end", [0.01, 1.0])
def test_a_tie_with_an_end_is_no_inner_optimum(end: float) -> None:
    assert inner({0.01: 60, 0.1: 80, 1.0: 70} | {end: 80}) == "not seen"
    assert inner({0.01: 60, 0.1: 80, 1.0: 70} | {end: 80.004}) == "not seen"
    assert inner({0.01: 60, 0.1: 80, 1.0: 70} | {end: 79.9}) == "suggestive"


def test_values_near_0_1_need_not_be_told_apart() -> None:
    assert inner({0.01: 60, 0.05: 80, 0.1: 80, 1.0: 70}) == "suggestive"
    assert inner({0.01: [60, 61, 62], 0.05: [80, 81, 82], 0.1: [82, 81, 80], 1.0: [70, 71, 72]}) == "seen"


def test_it_takes_three_values_one_of_them_near_0_1() -> None:
    assert inner({0.1: 80, 1.0: 70}) == "not tested"
    assert inner({0.3: 70, 0.5: 80, 1.0: 70}) == "not tested"
    assert inner({0.01: 70, 0.03: 80, 0.3: 70}) == "not tested"
    assert inner({0.03: 70, 0.1: 80, 0.3: 70}) == "suggestive"


def test_a_near_value_at_an_end_alone_cannot_show_it() -> None:
    assert inner({0.1: 60, 0.3: 80, 1.0: 70}) == "not seen"


def test_a_lead_within_the_spread_is_suggestive() -> None:
    assert inner({0.01: [60, 61, 62], 0.1: [80, 70, 78], 1.0: [70, 72, 79]}) == "suggestive"


def test_every_other_value_must_be_beaten_and_not_the_ends_alone() -> None:
    assert inner({0.01: 60, 0.03: 81, 0.1: 80, 1.0: 70}) == "not seen"
    assert inner({0.01: 60, 0.1: 80, 0.3: 81, 1.0: 70}) == "not seen"
    sure = {0.01: [60, 61, 62], 0.1: [80, 81, 82], 1.0: [70, 71, 72]}
    assert inner(sure) == "seen"
    assert inner(sure | {0.3: [82, 79, 79]}) == "suggestive"


def test_the_best_of_two_near_values_was_chosen_and_must_lead_by_more() -> None:
    """A lead of 4, 5 and 6 over the ends (t = 8.7) is enough for one candidate, and for the best of two (6.2); one of
    4, 6 and 7 (t = 6.4, of 4.3) too; one of 3, 5 and 6 (t = 5.3) is for one alone."""
    ends = {0.01: [70, 70, 70], 1.0: [70, 70, 70]}
    one, two = {0.1: [73, 75, 76]}, {0.1: [73, 75, 76], 0.05: [72, 72, 72.5]}
    assert inner(ends | one) == "seen"
    assert inner(ends | two) == "suggestive"
    assert inner(ends | two | {0.1: [74, 76, 77]}) == "seen"


def test_a_far_value_that_is_surely_better_than_every_near_one_contradicts_it() -> None:
    near = {0.05: [75, 76, 77], 0.1: [74, 75, 76]}
    rest = {0.01: [60, 61, 62], 1.0: [70, 71, 72]}
    better = {0.3: [80, 81, 82]}
    assert inner(near | rest | better) == "contradicted"
    assert inner(near | {0.05: [79, 84, 77]} | rest | better) == "not seen"  # one near value may be as good
    assert inner({0.05: 75, 0.1: 74, 0.01: 60, 1.0: 70, 0.3: 80}) == "not seen"  # one seed
    assert inner({0.1: [60, 61, 62], 0.3: [80, 81, 82], 1.0: [70, 71, 72]}) == "contradicted"


def test_the_evidence_has_every_value_and_the_closest_lead() -> None:
    claim, _ = judged(sweep({0.03: 58.76, 0.05: 60.84, 0.1: 59.2, 0.3: 54.5}))
    assert claim.evidence[0].endswith(
        "α = 0.05 against 0.03, the best of those not near 0.1 or at an end: +2.08 points (one seed), "
        "of 0.03: 58.76, 0.05: 60.84, 0.1: 59.20, 0.3: 54.50"
    )


@pytest.mark.parametrize(
    ("accuracies", "verdict"),
    [
        ({0.1: 80, 1.0: 70}, "suggestive"),
        ({0.1: [80, 81, 82], 1.0: [70, 71, 72]}, "seen"),
        ({0.1: [80, 71, 82], 1.0: [70, 71, 72]}, "suggestive"),
        ({0.1: 70, 1.0: 70}, "not seen"),  # a tie
        ({0.1: 80, 0.5: 69, 1.0: 70}, "not seen"),  # one of them does not
        ({0.1: [80, 81, 82], 0.5: [69, 71, 72], 1.0: [70, 71, 72]}, "not seen"),
        ({0.1: [80, 81, 82], 0.5: [60, 61, 62], 1.0: [70, 71, 72]}, "contradicted"),
        ({0.1: 80, 0.5: 70}, "not tested"),
    ],
)
def test_every_alpha_below_1_is_held_against_1(accuracies: dict[float, float], verdict: str) -> None:
    assert beats(accuracies) == verdict


def test_the_evidence_has_the_closest_to_alpha_1() -> None:
    _, claim = judged(sweep({0.1: 80, 0.3: 75, 1.0: 70}))
    assert claim.evidence[0].endswith("α = 0.3 against 1: +5.00 points (one seed), of 0.1: 80.00, 0.3: 75.00, 1: 70.00")


def test_alpha_1_alone_says_nothing() -> None:
    assert [claim.verdict for claim in judged(sweep({1.0: 70}))] == ["not tested", "not tested"]


def test_alphas_of_other_algorithms_are_no_sweep() -> None:
    runs = [made("feddyn", value, options={"alpha": alpha}) for alpha, value in ((0.01, 0.6), (0.1, 0.8), (1.0, 0.7))]
    assert [claim.verdict for claim in judged(runs)] == ["not tested", "not tested"]
    without = made(accuracy=0.9, options={"alpha": None})
    assert [claim.verdict for claim in judged([*sweep({0.1: 80, 1.0: 70}), without])] == ["not tested", "suggestive"]


def test_runs_that_go_on_are_no_part_of_a_sweep() -> None:
    running = made(accuracy=0.9, options={"alpha": 0.3}, state="running")
    assert [claim.verdict for claim in judged([*sweep({0.1: 80, 1.0: 70}), running])] == ["not tested", "suggestive"]


def test_alphas_of_runs_that_differ_otherwise_are_no_sweep() -> None:
    runs = [made(options={"alpha": a}, setting=s) for a, s in ((0.1, "I"), (1.0, "II"), (0.3, "II"))]
    assert judged([*runs, made(options={"alpha": 0.03}, split="iid")])[0].verdict == "not tested"


def test_what_diverged_is_in_a_sweep_as_such() -> None:
    runs = [made(accuracy=a, options={"alpha": alpha}) for alpha, a in ((0.05, 0.7), (0.1, 0.8))]
    both = judged([*runs, made(accuracy=0.9, options={"alpha": 1.0}, state="diverged")])
    assert [claim.verdict for claim in both] == ["suggestive", "suggestive"]
    assert "1: diverged (round 40)" in both[0].evidence[0]
    assert "α = 0.05 against 1: diverged, of" in both[1].evidence[0]


@pytest.mark.parametrize("lost", [0.05, 0.1])
def test_of_the_values_near_0_1_one_that_diverged_is_not_the_best(lost: float) -> None:
    kept = sweep({alpha: value for alpha, value in {0.01: 60, 0.05: 80, 0.1: 80, 1.0: 70}.items() if alpha != lost})
    assert judged([*kept, made(options={"alpha": lost}, state="diverged")])[0].verdict == "suggestive"
