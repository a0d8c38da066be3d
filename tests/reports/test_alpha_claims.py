"""The claims about α, on both sides of every boundary of their rules."""

from collections.abc import Mapping, Sequence

import pytest
from made_digests import make_test_digest

from fedcm.reports.claims.paper_claims import judge_paper_claims
from fedcm.reports.claims.verdicts import Claim
from fedcm.reports.digest import Digest
from fedcm.reports.groups import group_runs


def make_sweep(accuracies: Mapping[float, float | Sequence[float]]) -> list[Digest]:
    """Return runs from accuracies in percent by α; a list holds the accuracies of seeds 1, 2, …"""
    return [
        make_test_digest(accuracy=value / 100, seed=seed, options={"alpha": alpha})
        for alpha, values in accuracies.items()
        for seed, value in enumerate([values] if isinstance(values, int | float) else values, 1)
    ]


def judge(runs: Sequence[Digest]) -> tuple[Claim, Claim]:
    inner, beats = judge_paper_claims(group_runs(runs), runs)[-2:]
    assert "inner optimum" in inner.text
    assert "beats α = 1" in beats.text
    return inner, beats


def judge_inner(accuracies: Mapping[float, float | Sequence[float]]) -> str:
    return judge(make_sweep(accuracies))[0].verdict


def judge_beats(accuracies: Mapping[float, float | Sequence[float]]) -> str:
    return judge(make_sweep(accuracies))[1].verdict


@pytest.mark.parametrize("best", [0.031, 0.05, 0.1, 0.2, 0.29])
def test_best_alpha_between_0_03_and_0_3_is_near_0_1(best: float) -> None:
    assert judge_inner({0.01: 60, best: 80, 1.0: 70}) == "suggestive"
    assert judge_inner({0.01: [60, 61, 62], best: [80, 81, 82], 1.0: [70, 71, 72]}) == "seen"


@pytest.mark.parametrize("best", [0.02, 0.03, 0.3, 0.5])
def test_best_alpha_outside_that_range_is_not_near_0_1(best: float) -> None:
    """Also if it is between two others, and a value near 0.1 was tried."""
    assert judge_inner({0.01: 60, best: 80, 0.1: 79, 1.0: 70}) == "not seen"


@pytest.mark.parametrize("end", [{0.05: 80, 0.1: 70, 1.0: 60}, {0.01: 60, 0.1: 70, 0.2: 80}])
def test_best_alpha_at_an_end_is_not_an_inner_optimum(end: dict[float, float]) -> None:
    """The optimum may be beyond the end. The value is near 0.1, so the claim is not contradicted either."""
    assert judge_inner(end) == "not seen"
    assert judge_inner({alpha: [value, value + 1, value + 2] for alpha, value in end.items()}) == "not seen"


@pytest.mark.parametrize("end", [0.01, 1.0])
def test_tie_with_an_end_is_not_an_inner_optimum(end: float) -> None:
    assert judge_inner({0.01: 60, 0.1: 80, 1.0: 70} | {end: 80}) == "not seen"
    assert judge_inner({0.01: 60, 0.1: 80, 1.0: 70} | {end: 80.004}) == "not seen"
    assert judge_inner({0.01: 60, 0.1: 80, 1.0: 70} | {end: 79.9}) == "suggestive"


def test_values_near_0_1_may_tie() -> None:
    assert judge_inner({0.01: 60, 0.05: 80, 0.1: 80, 1.0: 70}) == "suggestive"
    assert judge_inner({0.01: [60, 61, 62], 0.05: [80, 81, 82], 0.1: [82, 81, 80], 1.0: [70, 71, 72]}) == "seen"


def test_claim_needs_three_values_with_one_near_0_1() -> None:
    assert judge_inner({0.1: 80, 1.0: 70}) == "not tested"
    assert judge_inner({0.3: 70, 0.5: 80, 1.0: 70}) == "not tested"
    assert judge_inner({0.01: 70, 0.03: 80, 0.3: 70}) == "not tested"
    assert judge_inner({0.03: 70, 0.1: 80, 0.3: 70}) == "suggestive"


def test_near_value_only_at_an_end_is_not_seen() -> None:
    assert judge_inner({0.1: 60, 0.3: 80, 1.0: 70}) == "not seen"


def test_lead_within_the_spread_is_suggestive() -> None:
    assert judge_inner({0.01: [60, 61, 62], 0.1: [80, 70, 78], 1.0: [70, 72, 79]}) == "suggestive"


def test_best_alpha_must_beat_all_values_and_not_only_the_ends() -> None:
    assert judge_inner({0.01: 60, 0.03: 81, 0.1: 80, 1.0: 70}) == "not seen"
    assert judge_inner({0.01: 60, 0.1: 80, 0.3: 81, 1.0: 70}) == "not seen"
    sure = {0.01: [60, 61, 62], 0.1: [80, 81, 82], 1.0: [70, 71, 72]}
    assert judge_inner(sure) == "seen"
    assert judge_inner(sure | {0.3: [82, 79, 79]}) == "suggestive"


def test_best_of_two_near_values_needs_a_larger_lead() -> None:
    """A lead of 3, 5 and 6 over the ends has t = 5.3: more than 4.3 for one candidate, less than 6.2 for two. A lead of
    4, 6 and 7 has t = 6.4."""
    ends = {0.01: [70, 70, 70], 1.0: [70, 70, 70]}
    one, two = {0.1: [73, 75, 76]}, {0.1: [73, 75, 76], 0.05: [72, 72, 72.5]}
    assert judge_inner(ends | one) == "seen"
    assert judge_inner(ends | two) == "suggestive"
    assert judge_inner(ends | two | {0.1: [74, 76, 77]}) == "seen"


def test_far_value_surely_better_than_all_near_values_contradicts() -> None:
    near = {0.05: [75, 76, 77], 0.1: [74, 75, 76]}
    rest = {0.01: [60, 61, 62], 1.0: [70, 71, 72]}
    better = {0.3: [80, 81, 82]}
    assert judge_inner(near | rest | better) == "contradicted"
    assert judge_inner(near | {0.05: [79, 84, 77]} | rest | better) == "not seen"  # one near value may be as good
    assert judge_inner({0.05: 75, 0.1: 74, 0.01: 60, 1.0: 70, 0.3: 80}) == "not seen"  # one seed
    assert judge_inner({0.1: [60, 61, 62], 0.3: [80, 81, 82], 1.0: [70, 71, 72]}) == "contradicted"


def test_evidence_lists_all_values_and_the_smallest_lead() -> None:
    claim, _ = judge(make_sweep({0.03: 58.76, 0.05: 60.84, 0.1: 59.2, 0.3: 54.5}))
    assert claim.evidence[0].endswith(
        "α = 0.05 against 0.03, the best of those not near 0.1 or at an end: +2.08 points (one seed); "
        "by α: 0.03: 58.76, 0.05: 60.84, 0.1: 59.20, 0.3: 54.50"
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
def test_every_alpha_below_1_is_compared_with_1(accuracies: dict[float, float], verdict: str) -> None:
    assert judge_beats(accuracies) == verdict


def test_evidence_has_the_alpha_closest_to_the_score_of_alpha_1() -> None:
    _, claim = judge(make_sweep({0.1: 80, 0.3: 75, 1.0: 70}))
    assert claim.evidence[0].endswith(
        "α = 0.3 against 1: +5.00 points (one seed); by α: 0.1: 80.00, 0.3: 75.00, 1: 70.00"
    )


def test_only_alpha_1_is_not_tested() -> None:
    assert [claim.verdict for claim in judge(make_sweep({1.0: 70}))] == ["not tested", "not tested"]


def test_alphas_of_other_algorithms_are_not_a_sweep() -> None:
    runs = [
        make_test_digest("feddyn", value, options={"alpha": alpha})
        for alpha, value in ((0.01, 0.6), (0.1, 0.8), (1.0, 0.7))
    ]
    assert [claim.verdict for claim in judge(runs)] == ["not tested", "not tested"]
    without = make_test_digest(accuracy=0.9, options={"alpha": None})
    assert [claim.verdict for claim in judge([*make_sweep({0.1: 80, 1.0: 70}), without])] == [
        "not tested",
        "suggestive",
    ]


def test_unfinished_runs_are_not_part_of_a_sweep() -> None:
    running = make_test_digest(accuracy=0.9, options={"alpha": 0.3}, state="running")
    assert [claim.verdict for claim in judge([*make_sweep({0.1: 80, 1.0: 70}), running])] == [
        "not tested",
        "suggestive",
    ]


def test_runs_that_differ_in_other_settings_are_not_a_sweep() -> None:
    runs = [make_test_digest(options={"alpha": a}, setting=s) for a, s in ((0.1, "I"), (1.0, "II"), (0.3, "II"))]
    assert judge([*runs, make_test_digest(options={"alpha": 0.03}, split="iid")])[0].verdict == "not tested"


def test_sweep_includes_diverged_runs() -> None:
    runs = [make_test_digest(accuracy=a, options={"alpha": alpha}) for alpha, a in ((0.05, 0.7), (0.1, 0.8))]
    both = judge([*runs, make_test_digest(accuracy=0.9, options={"alpha": 1.0}, state="diverged")])
    assert [claim.verdict for claim in both] == ["suggestive", "suggestive"]
    assert "1: diverged (round 40)" in both[0].evidence[0]
    assert "α = 0.05 against 1: diverged; by α:" in both[1].evidence[0]


@pytest.mark.parametrize("diverged", [0.05, 0.1])
def test_diverged_alpha_near_0_1_is_not_the_best(diverged: float) -> None:
    kept = make_sweep(
        {alpha: value for alpha, value in {0.01: 60, 0.05: 80, 0.1: 80, 1.0: 70}.items() if alpha != diverged}
    )
    assert judge([*kept, make_test_digest(options={"alpha": diverged}, state="diverged")])[0].verdict == "suggestive"
