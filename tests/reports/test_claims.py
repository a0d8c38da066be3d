"""Each of the paper's claims is seen only beyond the uncertainty over seeds, and by runs that were not chosen by it."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from made_digests import made, made_with_loss, paper_grid, paper_sweep

from fedcm.algorithms.fedcm import FedCM
from fedcm.reports.claims.claims import claims
from fedcm.reports.claims.paper import DEFAULT_ALPHA
from fedcm.reports.claims.verdicts import Claim
from fedcm.reports.digest import Digest
from fedcm.reports.groups import grouped

TEXTS = ["most accurate", "setting I ", "from IID", "oscillates", "inner optimum", "beats α = 1"]
SHIFTS = {1: -0.03, 2: 0.0, 3: 0.04}  # what a seed does to all runs alike


def judged(runs: Sequence[Digest]) -> dict[str, Claim]:
    found = claims(grouped(runs), runs)
    assert len(found) == len(TEXTS)
    return {text: next(claim for claim in found if text in claim.text) for text in TEXTS}


def verdicts(runs: Sequence[Digest]) -> dict[str, str]:
    return {text: claim.verdict for text, claim in judged(runs).items()}


def marks(claim: Claim) -> list[str]:
    return [line.split()[0] for line in claim.evidence]


def over_seeds(accuracies: Mapping[str, Sequence[float]], **changes: Any) -> list[Digest]:
    """Runs in one cell: an algorithm's accuracies with seeds 1, 2, …"""
    return [made(name, a, seed, **changes) for name, own in accuracies.items() for seed, a in enumerate(own, 1)]


def with_accuracy(runs: list[Digest], value: float, **where: Any) -> list[Digest]:
    def chosen(run: Digest) -> bool:
        return run.algorithm == where["algorithm"] and run.labels == where["labels"]

    def other(run: Digest) -> Digest:
        figures = dict.fromkeys(("last", "mean_last", "best"), value)
        return run.model_copy(update={"summary": run.summary | {"accuracy": (run.accuracy or {}) | figures}})

    return [other(run) if chosen(run) else run for run in runs]


def test_the_papers_own_figures_suggest_all_its_claims_and_show_none_as_of_one_seed() -> None:
    assert set(verdicts(paper_grid() + paper_sweep()).values()) == {"suggestive"}


def test_over_seeds_that_move_all_runs_alike_the_papers_figures_show_all_its_claims() -> None:
    """The seeds' spread is 3.5 points, the smallest difference 0.02: seed by seed there is no doubt."""
    runs = [run for seed, by in SHIFTS.items() for run in paper_grid(by, seed=seed) + paper_sweep(by, seed=seed)]
    assert set(verdicts(runs).values()) == {"seen"}


def test_the_same_figures_of_other_seeds_for_others_are_within_the_spread() -> None:
    def moved(run: Digest) -> Digest:
        seed = run.seed if run.algorithm == "fedcm" else run.seed + 10
        return run.model_copy(update={"experiment": run.experiment | {"seed": seed}})

    runs = [moved(run) for seed, by in SHIFTS.items() for run in paper_grid(by, seed=seed)]
    found = verdicts(runs)
    assert [found[text] for text in TEXTS[:3]] == ["suggestive"] * 3


def test_nothing_is_tested_without_runs_and_the_page_says_what_it_would_take() -> None:
    found = judged([made()])
    assert {claim.verdict for claim in found.values()} == {"not tested"}
    assert all(claim.evidence[0].startswith("needs ") for claim in found.values())


# FedCM against others in a cell


@pytest.mark.parametrize(
    ("own", "other", "verdict"),
    [
        ([0.8], [0.7], "suggestive"),  # one seed
        ([0.8, 0.81], [0.7], "suggestive"),  # one seed in part
        ([0.80, 0.82, 0.84], [0.78, 0.80, 0.82], "seen"),
        ([0.73, 0.75, 0.76], [0.70, 0.70, 0.70], "seen"),  # t = 5.3, and 4.3 is enough
        ([0.80, 0.82, 0.84], [0.83, 0.80, 0.81], "suggestive"),  # on average ahead, by less than the spread
        ([0.8], [0.8], "not seen"),  # a tie
        ([0.80004], [0.8], "not seen"),  # which shows as one
        ([0.80, 0.90], [0.90, 0.80], "not seen"),  # a tie on average
        ([0.7], [0.8], "not seen"),  # one seed contradicts nothing
        ([0.83, 0.80, 0.81], [0.80, 0.82, 0.84], "not seen"),
        ([0.78, 0.80, 0.82], [0.80, 0.82, 0.84], "contradicted"),
    ],
)
def test_a_lead_is_judged_by_its_uncertainty(own: list[float], other: list[float], verdict: str) -> None:
    assert verdicts(over_seeds({"fedcm": own, "fedavg": other}))["most accurate"] == verdict


def test_the_evidence_has_the_difference_and_its_interval() -> None:
    claim = judged(over_seeds({"fedcm": [0.80, 0.82, 0.85], "fedavg": [0.78, 0.80, 0.82]}))["most accurate"]
    # differences of 2, 2 and 3 points: 2.333 ± 4.303 · 0.57735 / √3
    assert claim.evidence == (
        "✓ I · dirichlet: FedCM 82.33 ± 2.52, best other FedAvg 80.00 ± 2.00, "
        "+2.33 points (95 % interval 0.90 to 3.77; paired over 3 seeds)",
    )


def test_a_rival_that_is_not_the_next_can_leave_a_doubt_and_is_told() -> None:
    runs = over_seeds({"fedcm": [0.8, 0.8, 0.8], "fedavg": [0.79, 0.79, 0.79], "scaffold": [0.5, 0.95, 0.7]})
    claim = judged(runs)["most accurate"]
    assert claim.verdict == "suggestive"
    assert "best other FedAvg" in claim.evidence[0]
    assert "SCAFFOLD 71.67 ± 22.55" in claim.evidence[0]


def test_one_cell_where_another_is_better_undoes_the_first_claim() -> None:
    runs = with_accuracy(paper_grid(), 0.99, algorithm="scaffold", labels={"setting": "II", "split": "iid"})
    claim = judged(runs)["most accurate"]
    assert claim.verdict == "not seen"
    assert marks(claim) == ["(✓)", "(✓)", "✗", "(✓)"]
    assert "FedCM 86.85, best other SCAFFOLD 99.00, −12.15 points (one seed)" in claim.evidence[2]


def test_of_many_comparisons_one_that_is_against_it_must_be_more_so() -> None:
    """Differences of −4 to −6 points have t = 8.7: beyond 4.3 for one comparison, within 8.9 for four."""
    own, better = [0.80, 0.80, 0.80], [0.84, 0.85, 0.86]
    worse = {name: [0.5, 0.6, 0.4] for name in ("fedadam", "scaffold", "feddyn")}
    alone, among = {"fedcm": own, "fedavg": better}, {"fedcm": own, "fedavg": better, **worse}
    assert verdicts(over_seeds(alone))["most accurate"] == "contradicted"
    assert verdicts(over_seeds(among))["most accurate"] == "not seen"


def test_runs_that_go_on_do_not_count_and_what_diverged_loses() -> None:
    assert verdicts([made(accuracy=0.9, state="running"), made("fedavg", 0.5)])["most accurate"] == "not tested"
    claim = judged([made(accuracy=0.9, state="diverged"), made("fedavg", 0.5)])["most accurate"]
    assert claim.verdict == "not seen"
    assert claim.evidence == ("✗ I · dirichlet: FedCM diverged (round 40), best other FedAvg 50.00",)


def test_to_lead_those_that_diverged_is_no_number_of_points() -> None:
    claim = judged([made(accuracy=0.5), made("fedavg", 0.9, state="diverged")])["most accurate"]
    assert claim.evidence == ("(✓) I · dirichlet: FedCM 50.00, best other FedAvg diverged (round 40)",)
    neither = [made(accuracy=0.9, state="diverged"), made("fedavg", 0.9, state="diverged")]
    assert verdicts(neither)["most accurate"] == "not seen"


def test_two_seeds_that_all_diverge_are_no_chance() -> None:
    runs = [made(accuracy=0.5, seed=k) for k in (1, 2)]
    lost = [made("fedavg", 0.9, seed=k, state="diverged") for k in (1, 2)]
    assert verdicts(runs + lost)["most accurate"] == "seen"
    assert verdicts([*runs, lost[0], made("fedavg", 0.9, seed=2)])["most accurate"] == "suggestive"


def test_cells_without_a_published_figure_do_not_count_where_others_have_one() -> None:
    tuned = [made(accuracy=0.5, labels={"change": "lr"}), made("fedavg", 0.6, labels={"change": "lr"})]
    claim = judged([*paper_grid(published=1.0), *tuned])["most accurate"]
    assert claim.verdict == "suggestive"
    assert claim.evidence[-1] == "– 1 cell without a published figure of FedCM aside"
    assert judged([*paper_grid(), *tuned])["most accurate"].verdict == "not seen"


# Which of several rows speaks


def by_alpha(accuracies: Mapping[float, float], **changes: Any) -> list[Digest]:
    return [made(accuracy=value, options={"alpha": alpha}, **changes) for alpha, value in accuracies.items()]


def with_lr(lr: float, *runs: Digest) -> list[Digest]:
    client = {"client": {"epochs": 5, "lr": lr}}
    return [run.model_copy(update={"experiment": run.experiment | client}) for run in runs]


def test_the_default_of_alpha_is_fedcms_own() -> None:
    assert FedCM().alpha == DEFAULT_ALPHA


@pytest.mark.parametrize(("tried", "default"), [(0.95, 0.7), (0.5, 0.9)])
def test_of_several_alphas_the_default_speaks_and_not_the_best_on_the_test_data(tried: float, default: float) -> None:
    runs = [*by_alpha({0.05: tried, 0.1: default, 0.3: tried}), made("fedavg", 0.8)]
    claim = judged(runs)["most accurate"]
    assert claim.verdict == ("suggestive" if default > 0.8 else "not seen")
    assert len(claim.evidence) == 1
    assert "FedCM (alpha = 0.1)" in claim.evidence[0]


def test_of_alphas_without_the_default_every_one_speaks() -> None:
    runs = by_alpha({0.05: 0.9, 0.2: 0.7})
    claim = judged([*runs, made("fedavg", 0.8)])["most accurate"]
    assert (claim.verdict, marks(claim)) == ("not seen", ["(✓)", "✗"])
    assert verdicts([*runs, made("fedavg", 0.6)])["most accurate"] == "suggestive"


def test_rows_are_compared_with_those_of_the_same_settings() -> None:
    fast = with_lr(0.3, made(accuracy=0.6), made("fedavg", 0.5))
    slow = with_lr(0.1, made(accuracy=0.8), made("fedavg", 0.7))
    claim = judged([*fast, *slow])["most accurate"]
    assert (claim.verdict, marks(claim)) == ("suggestive", ["(✓)", "(✓)"])
    worse = with_lr(0.3, made(accuracy=0.4), made("fedavg", 0.5))
    assert verdicts([*worse, *slow])["most accurate"] == "not seen"


def test_every_row_of_a_rival_must_be_beaten_where_none_is_alike() -> None:
    other = with_lr(0.2, made("fedavg", 0.7)) + with_lr(0.5, made("fedavg", 0.9))
    assert verdicts([made(accuracy=0.8), *other])["most accurate"] == "not seen"
    assert verdicts([made(accuracy=0.95), *other])["most accurate"] == "suggestive"


def test_every_own_setting_of_a_rival_must_be_beaten() -> None:
    dyn = [made("feddyn", value, options={"alpha": alpha}) for alpha, value in ((0.01, 0.7), (0.1, 0.85))]
    assert verdicts([made(accuracy=0.8), *dyn])["most accurate"] == "not seen"
    weak, strong = (made("feddyn", value, options={"alpha": alpha}) for alpha, value in ((0.1, 0.7), (0.01, 0.9)))
    assert verdicts([made(accuracy=0.8), *with_lr(0.2, weak, strong)])["most accurate"] == "not seen"


def test_the_row_in_the_most_cells_speaks_for_an_algorithm() -> None:
    tuned = made(accuracy=0.99, options={"alpha": 0.3}, setting="II", split="iid")
    weaker = with_accuracy(paper_grid(), 0.5, algorithm="fedcm", labels={"setting": "II", "split": "iid"})
    assert verdicts([*weaker, tuned])["most accurate"] == "not seen"


def test_the_row_with_a_published_figure_speaks_before_that_in_the_most_cells() -> None:
    published = made(accuracy=0.7, options={"alpha": 0.3}, published=80.0)
    wide = [
        made(accuracy=0.9),
        made(accuracy=0.9, setting="II"),
        made("fedavg", 0.8),
        made("fedavg", 0.8, setting="II"),
    ]
    claim = judged([published, *wide])["most accurate"]
    assert "FedCM (alpha = 0.3) 70.00, best other FedAvg 80.00" in claim.evidence[0]
    assert claim.verdict == "not seen"


# What is lost from one cell to another


def test_another_that_loses_less_undoes_the_claims_about_losses() -> None:
    there = {"setting": "II", "split": "dirichlet"}
    found = verdicts(with_accuracy(paper_grid(), 0.87, algorithm="fedadam", labels=there))
    assert (found["setting I "], found["from IID"]) == ("not seen", "not seen")


def test_losses_are_told_with_their_numbers() -> None:
    claim = judged(paper_grid())["setting I "]
    assert (
        "I · iid to II · iid: FedCM −1.07, FedDyn −2.12, FedAdam −2.29, SCAFFOLD −6.22, FedAvg −8.08"
        in (claim.evidence[0])
    )
    assert claim.evidence[0].endswith("FedCM against FedDyn: +1.05 points (one seed)")


def test_from_iid_to_dirichlet_fedcm_is_held_against_methods_that_correct_no_client() -> None:
    """As the paper does. In its own table SCAFFOLD, which corrects, loses 0.01 less than FedCM in setting II."""
    claim = judged(paper_grid())["from IID"]
    assert "II · iid to II · dirichlet: SCAFFOLD −0.60, FedCM −0.61" in claim.evidence[1]
    assert claim.verdict == "suggestive"
    steady = with_accuracy(paper_grid(), 0.8541, algorithm="scaffold", labels={"setting": "I", "split": "dirichlet"})
    assert verdicts(steady)["from IID"] == "suggestive"
    alone = [run for run in paper_grid() if run.algorithm in ("fedcm", "scaffold", "feddyn")]
    assert verdicts(alone)["from IID"] == "not tested"


@pytest.mark.parametrize("rival", ["fedavg", "fedadam"])
def test_from_iid_to_dirichlet_one_pair_of_cells_with_a_smaller_loss_is_enough_against_it(rival: str) -> None:
    """However much more the rival loses elsewhere: an average over settings would hide it."""
    before = {"setting": "I", "split": "iid"}
    level = with_accuracy(paper_grid(), 0.5, algorithm=rival, labels=before)
    runs = with_accuracy(level, 0.5, algorithm=rival, labels=before | {"split": "dirichlet"})
    runs = with_accuracy(runs, 0.1, algorithm=rival, labels={"setting": "II", "split": "dirichlet"})
    claim = judged(runs)["from IID"]
    assert (claim.verdict, marks(claim)) == ("not seen", ["✗", "(✓)"])


@pytest.mark.parametrize(("text", "first"), [("setting I ", {"setting": "I"}), ("from IID", {"split": "iid"})])
def test_equal_losses_are_no_win_however_they_round(text: str, first: dict[str, str]) -> None:
    """55 − 54 is more than 50 − 49 in a computer's arithmetic, of percents."""
    second = {"setting": "II"} if "setting" in first else {"split": "dirichlet"}
    place = {"setting": "I", "split": "dirichlet"}
    before: dict[str, Any] = {**place, **first}
    after: dict[str, Any] = {**place, **second}
    runs = [made(accuracy=0.5, **before), made(accuracy=0.49, **after)]
    runs += [made("fedavg", 0.55, **before), made("fedavg", 0.54, **after)]
    assert verdicts(runs)[text] == "not seen"


@pytest.mark.parametrize(
    ("lost", "verdict"),
    [
        ([0.05, 0.06, 0.07], "seen"),  # FedCM loses 0.01 to 0.03
        ([0.02, 0.01, 0.06], "suggestive"),
        ([0.02, 0.00, 0.03], "not seen"),
        ([-0.02, -0.01, -0.01], "contradicted"),
    ],
)
def test_losses_have_an_uncertainty_too(lost: list[float], verdict: str) -> None:
    own = [0.01, 0.02, 0.03]
    runs = over_seeds({"fedcm": [0.8, 0.82, 0.84], "fedavg": [0.7, 0.74, 0.71]}, setting="I")
    after = [0.8 - own[0], 0.82 - own[1], 0.84 - own[2]]
    others = [value - by for value, by in zip([0.7, 0.74, 0.71], lost, strict=True)]
    runs += over_seeds({"fedcm": after, "fedavg": others}, setting="II")
    assert verdicts(runs)["setting I "] == verdict


def test_settings_are_known_by_their_clients_where_there_are_no_labels() -> None:
    found = verdicts(paper_grid(labels={}))
    assert (found["setting I "], found["from IID"]) == ("suggestive", "suggestive")


def test_what_diverged_on_the_way_has_lost_more_than_any_number() -> None:
    def lost(run: Digest) -> Digest:
        gone = run.algorithm == "scaffold" and run.labels["setting"] == "II"
        return run.model_copy(update={"state": "diverged"}) if gone else run

    claim = judged([lost(run) for run in paper_grid()])["setting I "]
    assert claim.verdict == "suggestive"
    assert "FedAvg −8.08, SCAFFOLD diverged" in claim.evidence[0]


def test_where_fedcm_diverges_nobody_loses_least() -> None:
    lost = {("scaffold", "iid"), ("fedcm", "dirichlet")}
    runs = [
        run.model_copy(update={"state": "diverged"})
        if run.labels["setting"] == "II" and (run.algorithm, run.labels["split"]) in lost
        else run
        for run in paper_grid()
    ]
    assert judged(runs)["setting I "].verdict == "not seen"


def test_an_alpha_that_changes_with_the_cell_is_one_row_as_in_the_paper() -> None:
    runs = [run for run in paper_grid() if run.algorithm != "fedcm" and run.labels["split"] == "iid"]
    runs += [made(accuracy=0.88, split="iid"), made(accuracy=0.87, options={"alpha": 0.05}, setting="II", split="iid")]
    assert "I · iid to II · iid: FedCM −1.00" in judged(runs)["setting I "].evidence[0]


# A loss in place of an accuracy


def test_of_a_loss_lower_is_better_and_claims_in_points_are_left_out() -> None:
    runs = [made_with_loss(loss=0.2), made_with_loss("fedavg", 0.3), made_with_loss("fedavg", 0.3, setting="II")]
    runs += [made_with_loss(loss=0.25, setting="II")]
    found = claims(grouped(runs), runs)
    assert [claim.text for claim in found] == [
        "FedCM has the lowest test loss in every cell",
        "α has an inner optimum near 0.1",
        "Every α < 1 beats α = 1",
    ]
    assert found[0].verdict == "suggestive"
    assert found[0].evidence[0] == "(✓) I · dirichlet: FedCM 0.2000, best other FedAvg 0.3000, lower by 0.1 (one seed)"
    worse = [run for k in (1, 2, 3) for run in (made_with_loss(loss=0.3, seed=k), made_with_loss("fedavg", 0.2, k))]
    (lowest, *_) = claims(grouped(worse), worse)
    assert lowest.verdict == "contradicted"
    assert lowest.evidence[0].endswith("higher by 0.1 (95 % interval 0.1 to 0.1; paired over 3 seeds)")


@pytest.mark.parametrize(
    ("own", "other", "verdict"),
    [(0.00100, 0.00120, "suggestive"), (20.0, 20.0005, "not seen"), (20.0, 20.02, "suggestive")],
)
def test_of_a_loss_a_tie_is_a_share_of_it(own: float, other: float, verdict: str) -> None:
    """And no fixed number, as of an accuracy: losses come in any size."""
    runs = [made_with_loss(loss=own), made_with_loss("fedavg", other)]
    assert claims(grouped(runs), runs)[0].verdict == verdict


def test_of_a_loss_alphas_are_judged_by_the_lowest() -> None:
    losses = {0.01: 0.4, 0.1: 0.2, 1.0: 0.5}
    runs = [made_with_loss(loss=loss, options={"alpha": alpha}) for alpha, loss in losses.items()]
    assert [claim.verdict for claim in claims(grouped(runs), runs)] == ["not tested", "suggestive", "suggestive"]
    tiny = [made_with_loss(loss=1e-6 * loss, options={"alpha": alpha}) for alpha, loss in losses.items()]
    assert [claim.verdict for claim in claims(grouped(tiny), tiny)][1:] == ["suggestive", "suggestive"]
    upside_down = [made_with_loss(loss=1 - loss, options={"alpha": alpha}) for alpha, loss in losses.items()]
    assert [claim.verdict for claim in claims(grouped(upside_down), upside_down)][1:] == ["not seen", "not seen"]


def test_accuracies_and_losses_on_other_data_are_judged_each_by_its_own() -> None:
    runs = [made(), made("fedavg", 0.7), made_with_loss(source="toy"), made_with_loss("fedavg", 0.6, source="toy")]
    found = judged(runs)
    assert found["most accurate"].verdict == "suggestive"
    assert len(found["most accurate"].evidence) == 2
    assert "lower by 0.1" in found["most accurate"].evidence[1]
