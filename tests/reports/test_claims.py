"""The paper's claims are judged by their uncertainty over seeds, and by rows that were not selected by test scores."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from made_digests import (
    make_decentralised_digest,
    make_loss_digest,
    make_paper_grid,
    make_paper_sweep,
    make_test_digest,
)

from fedcm.algorithms.client_momentum.fedcm import FedCM
from fedcm.reports.claims.paper import DEFAULT_ALPHA
from fedcm.reports.claims.paper_claims import judge_paper_claims
from fedcm.reports.claims.verdicts import Claim
from fedcm.reports.digest import Digest
from fedcm.reports.groups import group_runs

TEXTS = ["most accurate", "setting I ", "from IID", "oscillates", "inner optimum", "beats α = 1"]
SHIFTS = {1: -0.03, 2: 0.0, 3: 0.04}  # by seed, the effect on all runs


def judge(runs: Sequence[Digest]) -> dict[str, Claim]:
    claims = judge_paper_claims(group_runs(runs), runs)
    assert len(claims) == len(TEXTS)
    return {text: next(claim for claim in claims if text in claim.text) for text in TEXTS}


def list_verdicts(runs: Sequence[Digest]) -> dict[str, str]:
    return {text: claim.verdict for text, claim in judge(runs).items()}


def list_marks(claim: Claim) -> list[str]:
    return [line.split()[0] for line in claim.evidence]


def make_runs(accuracies: Mapping[str, Sequence[float]], **changes: Any) -> list[Digest]:
    """Return runs in one cell from the accuracies of seeds 1, 2, … by algorithm."""
    return [
        make_test_digest(name, a, seed, **changes) for name, own in accuracies.items() for seed, a in enumerate(own, 1)
    ]


def set_accuracy(runs: list[Digest], value: float, **where: Any) -> list[Digest]:
    def is_selected(run: Digest) -> bool:
        return run.algorithm == where["algorithm"] and run.labels == where["labels"]

    def replace(run: Digest) -> Digest:
        figures = dict.fromkeys(("last", "mean_last", "best"), value)
        return run.model_copy(update={"summary": run.summary | {"accuracy": (run.accuracy or {}) | figures}})

    return [replace(run) if is_selected(run) else run for run in runs]


def test_paper_figures_as_one_seed_make_all_claims_suggestive() -> None:
    assert set(list_verdicts(make_paper_grid() + make_paper_sweep()).values()) == {"suggestive"}


def test_paper_figures_over_paired_seeds_make_all_claims_seen() -> None:
    """Seeds differ by 3.5 points and algorithms by as little as 0.02, but seed by seed every difference is the same."""
    runs = [
        run for seed, by in SHIFTS.items() for run in make_paper_grid(by, seed=seed) + make_paper_sweep(by, seed=seed)
    ]
    assert set(list_verdicts(runs).values()) == {"seen"}


def test_unpaired_seeds_leave_the_differences_within_the_spread() -> None:
    def change_seed(run: Digest) -> Digest:
        seed = run.seed if run.algorithm == "fedcm" else run.seed + 10
        return run.model_copy(update={"experiment": run.experiment | {"seed": seed}})

    runs = [change_seed(run) for seed, by in SHIFTS.items() for run in make_paper_grid(by, seed=seed)]
    verdicts = list_verdicts(runs)
    assert [verdicts[text] for text in TEXTS[:3]] == ["suggestive"] * 3


def test_claims_without_runs_are_not_tested_and_say_what_they_need() -> None:
    claims = judge([make_test_digest()])
    assert {claim.verdict for claim in claims.values()} == {"not tested"}
    assert all(claim.evidence[0].startswith("needs ") for claim in claims.values())


# FedCM and others in one cell


@pytest.mark.parametrize(
    ("own", "other", "verdict"),
    [
        ([0.8], [0.7], "suggestive"),  # one seed
        ([0.8, 0.81], [0.7], "suggestive"),  # one side has one seed
        ([0.80, 0.82, 0.84], [0.78, 0.80, 0.82], "seen"),
        ([0.73, 0.75, 0.76], [0.70, 0.70, 0.70], "seen"),  # t = 5.3, and 4.3 is enough
        ([0.80, 0.82, 0.84], [0.83, 0.80, 0.81], "suggestive"),  # on average ahead, by less than the spread
        ([0.8], [0.8], "not seen"),  # a tie
        ([0.80004], [0.8], "not seen"),  # a tie as it is shown
        ([0.80, 0.90], [0.90, 0.80], "not seen"),  # a tie on average
        ([0.7], [0.8], "not seen"),  # one seed contradicts nothing
        ([0.83, 0.80, 0.81], [0.80, 0.82, 0.84], "not seen"),
        ([0.78, 0.80, 0.82], [0.80, 0.82, 0.84], "contradicted"),
    ],
)
def test_lead_is_judged_by_its_uncertainty(own: list[float], other: list[float], verdict: str) -> None:
    assert list_verdicts(make_runs({"fedcm": own, "fedavg": other}))["most accurate"] == verdict


def test_evidence_has_the_difference_and_its_interval() -> None:
    claim = judge(make_runs({"fedcm": [0.80, 0.82, 0.85], "fedavg": [0.78, 0.80, 0.82]}))["most accurate"]
    # differences of 2, 2 and 3 points: 2.333 ± 4.303 · 0.57735 / √3
    assert claim.evidence == (
        "✓ I · dirichlet: FedCM 82.33 ± 2.52, best other FedAvg 80.00 ± 2.00, "
        "+2.33 points (95 % interval 0.90 to 3.77; paired over 3 seeds)",
    )


def test_evidence_includes_a_lower_rival_that_leaves_a_doubt() -> None:
    runs = make_runs({"fedcm": [0.8, 0.8, 0.8], "fedavg": [0.79, 0.79, 0.79], "scaffold": [0.5, 0.95, 0.7]})
    claim = judge(runs)["most accurate"]
    assert claim.verdict == "suggestive"
    assert "best other FedAvg" in claim.evidence[0]
    assert "SCAFFOLD 71.67 ± 22.55" in claim.evidence[0]


def test_one_cell_with_a_better_rival_makes_the_claim_not_seen() -> None:
    runs = set_accuracy(make_paper_grid(), 0.99, algorithm="scaffold", labels={"setting": "II", "split": "iid"})
    claim = judge(runs)["most accurate"]
    assert claim.verdict == "not seen"
    assert list_marks(claim) == ["(✓)", "(✓)", "✗", "(✓)"]
    assert "FedCM 86.85, best other SCAFFOLD 99.00, −12.15 points (one seed)" in claim.evidence[2]


def test_contradiction_needs_more_evidence_with_more_comparisons() -> None:
    """Differences of −4 to −6 points have t = 8.7: more than 4.3 for one comparison, less than 8.9 for four."""
    own, better = [0.80, 0.80, 0.80], [0.84, 0.85, 0.86]
    worse = {name: [0.5, 0.6, 0.4] for name in ("fedadam", "scaffold", "feddyn")}
    alone, among = {"fedcm": own, "fedavg": better}, {"fedcm": own, "fedavg": better, **worse}
    assert list_verdicts(make_runs(alone))["most accurate"] == "contradicted"
    assert list_verdicts(make_runs(among))["most accurate"] == "not seen"


def test_unfinished_runs_do_not_count_and_diverged_runs_lose() -> None:
    assert (
        list_verdicts([make_test_digest(accuracy=0.9, state="running"), make_test_digest("fedavg", 0.5)])[
            "most accurate"
        ]
        == "not tested"
    )
    claim = judge([make_test_digest(accuracy=0.9, state="diverged"), make_test_digest("fedavg", 0.5)])["most accurate"]
    assert claim.verdict == "not seen"
    assert claim.evidence == ("✗ I · dirichlet: FedCM diverged (round 40), best other FedAvg 50.00",)


def test_lead_over_a_diverged_run_has_no_points() -> None:
    claim = judge([make_test_digest(accuracy=0.5), make_test_digest("fedavg", 0.9, state="diverged")])["most accurate"]
    assert claim.evidence == ("(✓) I · dirichlet: FedCM 50.00, best other FedAvg diverged (round 40)",)
    neither = [make_test_digest(accuracy=0.9, state="diverged"), make_test_digest("fedavg", 0.9, state="diverged")]
    assert list_verdicts(neither)["most accurate"] == "not seen"


def test_divergence_of_two_seeds_is_sure() -> None:
    runs = [make_test_digest(accuracy=0.5, seed=k) for k in (1, 2)]
    diverged = [make_test_digest("fedavg", 0.9, seed=k, state="diverged") for k in (1, 2)]
    assert list_verdicts(runs + diverged)["most accurate"] == "seen"
    assert list_verdicts([*runs, diverged[0], make_test_digest("fedavg", 0.9, seed=2)])["most accurate"] == "suggestive"


def test_evidence_names_a_rival_of_which_only_some_seeds_diverged() -> None:
    runs = [make_test_digest(accuracy=a, seed=k) for k, a in ((1, 0.5), (2, 0.51), (3, 0.52))]
    runs += [make_test_digest("fedavg", a, seed=k) for k, a in ((1, 0.4), (2, 0.41), (3, 0.42))]
    diverged = [make_test_digest("scaffold", 0.9, seed=k, state="diverged") for k in (1, 2)]
    claim = judge([*runs, *diverged, make_test_digest("scaffold", 0.9, seed=3)])["most accurate"]
    assert claim.verdict == "suggestive"
    assert claim.evidence[0].endswith("SCAFFOLD diverged (rounds 40, 40; 2 of 3 seeds)")
    all_diverged = [*diverged, make_test_digest("scaffold", 0.9, seed=3, state="diverged")]
    assert "SCAFFOLD" not in judge([*runs, *all_diverged])["most accurate"].evidence[0]
    one_seed = [run for run in [*runs, *diverged] if run.seed == 1]
    assert "SCAFFOLD" not in judge(one_seed)["most accurate"].evidence[0]


def test_cells_without_a_published_figure_do_not_count_if_others_have_one() -> None:
    tuned = [
        make_test_digest(accuracy=0.5, labels={"change": "lr"}),
        make_test_digest("fedavg", 0.6, labels={"change": "lr"}),
    ]
    claim = judge([*make_paper_grid(published=1.0), *tuned])["most accurate"]
    assert claim.verdict == "suggestive"
    assert claim.evidence[-1] == "– not counted: 1 cell without a published figure of FedCM"
    assert judge([*make_paper_grid(), *tuned])["most accurate"].verdict == "not seen"


# Which of several rows represents an algorithm


def make_alpha_runs(accuracies: Mapping[float, float], **changes: Any) -> list[Digest]:
    return [
        make_test_digest(accuracy=value, options={"alpha": alpha}, **changes) for alpha, value in accuracies.items()
    ]


def set_lr(lr: float, *runs: Digest) -> list[Digest]:
    client = {"client": {"epochs": 5, "lr": lr}}
    return [run.model_copy(update={"experiment": run.experiment | client}) for run in runs]


def test_default_alpha_equals_that_of_the_algorithm() -> None:
    assert FedCM().alpha == DEFAULT_ALPHA


@pytest.mark.parametrize(("tried", "default"), [(0.95, 0.7), (0.5, 0.9)])
def test_default_alpha_represents_fedcm_and_not_the_best_one(tried: float, default: float) -> None:
    runs = [*make_alpha_runs({0.05: tried, 0.1: default, 0.3: tried}), make_test_digest("fedavg", 0.8)]
    claim = judge(runs)["most accurate"]
    assert claim.verdict == ("suggestive" if default > 0.8 else "not seen")
    assert len(claim.evidence) == 1
    assert "FedCM (alpha = 0.1)" in claim.evidence[0]


def test_every_alpha_represents_fedcm_if_the_default_is_missing() -> None:
    runs = make_alpha_runs({0.05: 0.9, 0.2: 0.7})
    claim = judge([*runs, make_test_digest("fedavg", 0.8)])["most accurate"]
    assert (claim.verdict, list_marks(claim)) == ("not seen", ["(✓)", "✗"])
    assert list_verdicts([*runs, make_test_digest("fedavg", 0.6)])["most accurate"] == "suggestive"


def test_rows_are_compared_with_rows_of_the_same_settings() -> None:
    fast = set_lr(0.3, make_test_digest(accuracy=0.6), make_test_digest("fedavg", 0.5))
    slow = set_lr(0.1, make_test_digest(accuracy=0.8), make_test_digest("fedavg", 0.7))
    claim = judge([*fast, *slow])["most accurate"]
    assert (claim.verdict, list_marks(claim)) == ("suggestive", ["(✓)", "(✓)"])
    worse = set_lr(0.3, make_test_digest(accuracy=0.4), make_test_digest("fedavg", 0.5))
    assert list_verdicts([*worse, *slow])["most accurate"] == "not seen"


def test_all_rows_of_a_rival_must_be_beaten_if_no_settings_match() -> None:
    other = set_lr(0.2, make_test_digest("fedavg", 0.7)) + set_lr(0.5, make_test_digest("fedavg", 0.9))
    assert list_verdicts([make_test_digest(accuracy=0.8), *other])["most accurate"] == "not seen"
    assert list_verdicts([make_test_digest(accuracy=0.95), *other])["most accurate"] == "suggestive"


def test_all_own_settings_of_a_rival_must_be_beaten() -> None:
    dyn = [make_test_digest("feddyn", value, options={"alpha": alpha}) for alpha, value in ((0.01, 0.7), (0.1, 0.85))]
    assert list_verdicts([make_test_digest(accuracy=0.8), *dyn])["most accurate"] == "not seen"
    weak, strong = (
        make_test_digest("feddyn", value, options={"alpha": alpha}) for alpha, value in ((0.1, 0.7), (0.01, 0.9))
    )
    assert list_verdicts([make_test_digest(accuracy=0.8), *set_lr(0.2, weak, strong)])["most accurate"] == "not seen"


def test_row_in_the_most_cells_represents_an_algorithm() -> None:
    tuned = make_test_digest(accuracy=0.99, options={"alpha": 0.3}, setting="II", split="iid")
    weaker = set_accuracy(make_paper_grid(), 0.5, algorithm="fedcm", labels={"setting": "II", "split": "iid"})
    assert list_verdicts([*weaker, tuned])["most accurate"] == "not seen"


def test_row_with_a_published_figure_takes_precedence() -> None:
    published = make_test_digest(accuracy=0.7, options={"alpha": 0.3}, published=80.0)
    wide = [
        make_test_digest(accuracy=0.9),
        make_test_digest(accuracy=0.9, setting="II"),
        make_test_digest("fedavg", 0.8),
        make_test_digest("fedavg", 0.8, setting="II"),
    ]
    claim = judge([published, *wide])["most accurate"]
    assert "FedCM (alpha = 0.3) 70.00, best other FedAvg 80.00" in claim.evidence[0]
    assert claim.verdict == "not seen"


# Points lost from one cell to another


def test_rival_that_loses_less_makes_the_claims_not_seen() -> None:
    labels = {"setting": "II", "split": "dirichlet"}
    verdicts = list_verdicts(set_accuracy(make_paper_grid(), 0.87, algorithm="fedadam", labels=labels))
    assert (verdicts["setting I "], verdicts["from IID"]) == ("not seen", "not seen")


def test_evidence_has_the_points_lost() -> None:
    claim = judge(make_paper_grid())["setting I "]
    assert (
        "I · iid to II · iid: FedCM −1.07, FedDyn −2.12, FedAdam −2.29, SCAFFOLD −6.22, FedAvg −8.08"
        in (claim.evidence[0])
    )
    assert claim.evidence[0].endswith("FedCM against FedDyn: +1.05 points (one seed)")


def test_iid_to_dirichlet_compares_only_with_uncorrected_methods() -> None:
    """As in the paper, whose own table has SCAFFOLD lose 0.01 less than FedCM in setting II."""
    claim = judge(make_paper_grid())["from IID"]
    assert "II · iid to II · dirichlet: SCAFFOLD −0.60, FedCM −0.61" in claim.evidence[1]
    assert claim.verdict == "suggestive"
    steady = set_accuracy(
        make_paper_grid(), 0.8541, algorithm="scaffold", labels={"setting": "I", "split": "dirichlet"}
    )
    assert list_verdicts(steady)["from IID"] == "suggestive"
    alone = [run for run in make_paper_grid() if run.algorithm in ("fedcm", "scaffold", "feddyn")]
    assert list_verdicts(alone)["from IID"] == "not tested"


@pytest.mark.parametrize("rival", ["fedavg", "fedadam"])
def test_iid_to_dirichlet_is_not_seen_if_one_pair_of_cells_is_against_it(rival: str) -> None:
    """However much the rival loses elsewhere; an average over settings would hide it."""
    before = {"setting": "I", "split": "iid"}
    level = set_accuracy(make_paper_grid(), 0.5, algorithm=rival, labels=before)
    runs = set_accuracy(level, 0.5, algorithm=rival, labels=before | {"split": "dirichlet"})
    runs = set_accuracy(runs, 0.1, algorithm=rival, labels={"setting": "II", "split": "dirichlet"})
    claim = judge(runs)["from IID"]
    assert (claim.verdict, list_marks(claim)) == ("not seen", ["✗", "(✓)"])


@pytest.mark.parametrize(("text", "first"), [("setting I ", {"setting": "I"}), ("from IID", {"split": "iid"})])
def test_equal_drops_are_a_tie_despite_rounding(text: str, first: dict[str, str]) -> None:
    """In floating point, 55 − 54 percent is more than 50 − 49."""
    second = {"setting": "II"} if "setting" in first else {"split": "dirichlet"}
    place = {"setting": "I", "split": "dirichlet"}
    before: dict[str, Any] = {**place, **first}
    after: dict[str, Any] = {**place, **second}
    runs = [make_test_digest(accuracy=0.5, **before), make_test_digest(accuracy=0.49, **after)]
    runs += [make_test_digest("fedavg", 0.55, **before), make_test_digest("fedavg", 0.54, **after)]
    assert list_verdicts(runs)[text] == "not seen"


@pytest.mark.parametrize(
    ("lost", "verdict"),
    [
        ([0.05, 0.06, 0.07], "seen"),  # FedCM loses 0.01 to 0.03
        ([0.02, 0.01, 0.06], "suggestive"),
        ([0.02, 0.00, 0.03], "not seen"),
        ([-0.02, -0.01, -0.01], "contradicted"),
    ],
)
def test_drops_are_judged_by_their_uncertainty(lost: list[float], verdict: str) -> None:
    own = [0.01, 0.02, 0.03]
    runs = make_runs({"fedcm": [0.8, 0.82, 0.84], "fedavg": [0.7, 0.74, 0.71]}, setting="I")
    after = [0.8 - own[0], 0.82 - own[1], 0.84 - own[2]]
    others = [value - by for value, by in zip([0.7, 0.74, 0.71], lost, strict=True)]
    runs += make_runs({"fedcm": after, "fedavg": others}, setting="II")
    assert list_verdicts(runs)["setting I "] == verdict


def test_settings_are_recognised_by_clients_without_labels() -> None:
    verdicts = list_verdicts(make_paper_grid(labels={}))
    assert (verdicts["setting I "], verdicts["from IID"]) == ("suggestive", "suggestive")


def test_diverged_rival_has_lost_most() -> None:
    def let_diverge(run: Digest) -> Digest:
        gone = run.algorithm == "scaffold" and run.labels["setting"] == "II"
        return run.model_copy(update={"state": "diverged"}) if gone else run

    claim = judge([let_diverge(run) for run in make_paper_grid()])["setting I "]
    assert claim.verdict == "suggestive"
    assert "FedAvg −8.08, SCAFFOLD diverged" in claim.evidence[0]


def test_claim_is_not_seen_if_fedcm_diverges() -> None:
    diverged = {("scaffold", "iid"), ("fedcm", "dirichlet")}
    runs = [
        run.model_copy(update={"state": "diverged"})
        if run.labels["setting"] == "II" and (run.algorithm, run.labels["split"]) in diverged
        else run
        for run in make_paper_grid()
    ]
    assert judge(runs)["setting I "].verdict == "not seen"


def test_alpha_that_depends_on_the_cell_makes_one_row() -> None:
    runs = [run for run in make_paper_grid() if run.algorithm != "fedcm" and run.labels["split"] == "iid"]
    runs += [
        make_test_digest(accuracy=0.88, split="iid"),
        make_test_digest(accuracy=0.87, options={"alpha": 0.05}, setting="II", split="iid"),
    ]
    assert "I · iid to II · iid: FedCM −1.00" in judge(runs)["setting I "].evidence[0]


# Test loss instead of accuracy


def test_lower_loss_is_better_and_claims_in_points_are_left_out() -> None:
    runs = [make_loss_digest(loss=0.2), make_loss_digest("fedavg", 0.3), make_loss_digest("fedavg", 0.3, setting="II")]
    runs += [make_loss_digest(loss=0.25, setting="II")]
    claims = judge_paper_claims(group_runs(runs), runs)
    assert [claim.text for claim in claims] == [
        "FedCM has the lowest test loss in every cell",
        "α has an inner optimum near 0.1",
        "Every α < 1 beats α = 1",
    ]
    assert claims[0].verdict == "suggestive"
    assert claims[0].evidence[0] == "(✓) I · dirichlet: FedCM 0.2000, best other FedAvg 0.3000, lower by 0.1 (one seed)"
    worse = [run for k in (1, 2, 3) for run in (make_loss_digest(loss=0.3, seed=k), make_loss_digest("fedavg", 0.2, k))]
    (lowest, *_) = judge_paper_claims(group_runs(worse), worse)
    assert lowest.verdict == "contradicted"
    assert lowest.evidence[0].endswith("higher by 0.1 (95 % interval 0.1 to 0.1; paired over 3 seeds)")


@pytest.mark.parametrize(
    ("own", "other", "verdict"),
    [(0.00100, 0.00120, "suggestive"), (20.0, 20.0005, "not seen"), (20.0, 20.02, "suggestive")],
)
def test_tie_of_losses_is_relative(own: float, other: float, verdict: str) -> None:
    """Not a fixed number as for accuracies, because losses have any size."""
    runs = [make_loss_digest(loss=own), make_loss_digest("fedavg", other)]
    assert judge_paper_claims(group_runs(runs), runs)[0].verdict == verdict


def test_alphas_are_judged_by_the_lowest_loss() -> None:
    losses = {0.01: 0.4, 0.1: 0.2, 1.0: 0.5}
    runs = [make_loss_digest(loss=loss, options={"alpha": alpha}) for alpha, loss in losses.items()]
    assert [claim.verdict for claim in judge_paper_claims(group_runs(runs), runs)] == [
        "not tested",
        "suggestive",
        "suggestive",
    ]
    tiny = [make_loss_digest(loss=1e-6 * loss, options={"alpha": alpha}) for alpha, loss in losses.items()]
    assert [claim.verdict for claim in judge_paper_claims(group_runs(tiny), tiny)][1:] == ["suggestive", "suggestive"]
    upside_down = [make_loss_digest(loss=1 - loss, options={"alpha": alpha}) for alpha, loss in losses.items()]
    assert [claim.verdict for claim in judge_paper_claims(group_runs(upside_down), upside_down)][1:] == [
        "not seen",
        "not seen",
    ]


def test_tables_of_accuracies_and_of_losses_are_judged_separately() -> None:
    runs = [
        make_test_digest(),
        make_test_digest("fedavg", 0.7),
        make_loss_digest(source="toy"),
        make_loss_digest("fedavg", 0.6, source="toy"),
    ]
    claims = judge(runs)
    assert claims["most accurate"].verdict == "suggestive"
    assert len(claims["most accurate"].evidence) == 2
    assert "lower by 0.1" in claims["most accurate"].evidence[1]


def test_decentralised_runs_do_not_count() -> None:
    runs = make_paper_grid()
    better = [
        make_decentralised_digest(accuracy=0.99, setting=setting, split=split, name=f"{setting}-{split}")
        for setting in ("I", "II")
        for split in ("iid", "dirichlet")
    ]
    assert judge([*runs, *better]) == judge(runs)
