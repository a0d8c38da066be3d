"""Each of the paper's claims is seen where it holds, not seen where it does not, and not tested without its runs."""

from typing import Any

import pytest
from made_digests import made, paper_grid, paper_sweep, wavering

from fedcm.report.claims import Claim, claims
from fedcm.report.digest import Digest
from fedcm.report.groups import Entry, grouped
from fedcm.report.oscillation import oscillation

TEXTS = ["most accurate", "setting I ", "from IID", "oscillates", "inner optimum", "beats α = 1"]


def judged(runs: list[Digest]) -> dict[str, Claim]:
    found = claims(grouped(runs), runs)
    assert len(found) == len(TEXTS)
    return {text: next(claim for claim in found if text in claim.text) for text in TEXTS}


def verdicts(runs: list[Digest]) -> dict[str, str]:
    return {text: claim.verdict for text, claim in judged(runs).items()}


def with_accuracy(runs: list[Digest], value: float, **where: Any) -> list[Digest]:
    def chosen(run: Digest) -> bool:
        return run.algorithm == where["algorithm"] and run.labels == where["labels"]

    def other(run: Digest) -> Digest:
        return run.model_copy(update={"summary": run.summary | {"accuracy": dict.fromkeys(run.accuracy or {}, value)}})

    return [other(run) if chosen(run) else run for run in runs]


def test_the_papers_own_figures_show_all_its_claims() -> None:
    assert set(verdicts(paper_grid() + paper_sweep()).values()) == {"seen"}


def test_nothing_is_tested_without_runs_and_the_page_says_what_it_would_take() -> None:
    found = judged([made()])
    assert {claim.verdict for claim in found.values()} == {"not tested"}
    assert all(claim.evidence[0].startswith("needs ") for claim in found.values())


def test_one_cell_where_another_is_better_undoes_the_first_claim() -> None:
    runs = with_accuracy(paper_grid(), 0.99, algorithm="scaffold", labels={"setting": "II", "split": "iid"})
    claim = judged(runs)["most accurate"]
    assert claim.verdict == "not seen"
    assert [line[0] for line in claim.evidence] == ["✓", "✓", "✗", "✓"]
    assert "FedCM 86.85, next SCAFFOLD 99.00, −12.15 points" in claim.evidence[2]


def test_a_tie_is_no_win() -> None:
    assert verdicts([made(accuracy=0.8), made("fedavg", 0.8)])["most accurate"] == "not seen"


def test_the_row_in_the_most_cells_speaks_for_an_algorithm() -> None:
    tuned = made(accuracy=0.99, options={"alpha": 0.3}, setting="II", split="iid")
    weaker = with_accuracy(paper_grid(), 0.5, algorithm="fedcm", labels={"setting": "II", "split": "iid"})
    assert verdicts([*weaker, tuned])["most accurate"] == "not seen"


def test_another_that_loses_less_undoes_the_claims_about_losses() -> None:
    there = {"setting": "II", "split": "dirichlet"}
    found = verdicts(with_accuracy(paper_grid(), 0.87, algorithm="fedadam", labels=there))
    assert (found["setting I "], found["from IID"]) == ("not seen", "not seen")


def test_losses_are_told_with_their_numbers() -> None:
    claim = judged(paper_grid())["setting I "]
    assert "I · iid to II · iid: FedCM −1.07" in claim.evidence[0]
    assert "FedAvg −8.08" in claim.evidence[0]


def test_losses_are_compared_on_average_over_the_cells() -> None:
    """In the paper's own table SCAFFOLD loses 0.01 less than FedCM in setting II, and more in all."""
    claim = judged(paper_grid())["from IID"]
    assert "II · iid to II · dirichlet: SCAFFOLD −0.60, FedCM −0.61" in claim.evidence[0]
    assert claim.verdict == "seen"


def test_settings_are_known_by_their_clients_where_there_are_no_labels() -> None:
    found = verdicts(paper_grid(labels={}))
    assert (found["setting I "], found["from IID"]) == ("seen", "seen")


@pytest.mark.parametrize(("width", "verdict"), [(0.02, "seen"), (0.0, "not seen")])
def test_oscillation_is_held_against_fedcm(width: float, verdict: str) -> None:
    runs = [made(curve=wavering(0.8, 0.005)), made("fedadam", curve=wavering(0.8, width))]
    assert verdicts(runs)["oscillates"] == verdict


def test_a_straight_line_does_not_oscillate_and_alternation_does() -> None:
    straight = oscillation(Entry((made(curve=[k / 100 for k in range(40)]),)))
    assert straight == pytest.approx(0, abs=1e-9)
    assert (oscillation(Entry((made(curve=[0.5, 0.6] * 20),))) or 0) > 5
    assert oscillation(Entry((made(curve=[0.5, 0.6] * 20, state="diverged"),))) is None
    assert oscillation(Entry((made(curve=[0.1, 0.2]),))) is None


@pytest.mark.parametrize(
    ("accuracies", "inner", "beats"),
    [
        ({0.05: 0.7, 0.1: 0.8, 1.0: 0.6}, "seen", "seen"),
        ({0.05: 0.7, 0.1: 0.6, 1.0: 0.5}, "not seen", "seen"),  # the best lies at the end of what was tried
        ({0.1: 0.6, 0.3: 0.8, 1.0: 0.7}, "not seen", "not seen"),  # inner, but not near 0.1
        ({0.1: 0.8, 1.0: 0.7}, "not tested", "seen"),
        ({0.03: 0.7, 0.1: 0.8, 0.3: 0.7}, "seen", "not tested"),
    ],
)
def test_alpha(accuracies: dict[float, float], inner: str, beats: str) -> None:
    found = verdicts([made(accuracy=value, options={"alpha": alpha}) for alpha, value in accuracies.items()])
    assert (found["inner optimum"], found["beats α = 1"]) == (inner, beats)


def test_alphas_of_runs_that_differ_otherwise_are_no_sweep() -> None:
    runs = [made(options={"alpha": a}, setting=s) for a, s in ((0.1, "I"), (1.0, "II"), (0.3, "II"))]
    assert verdicts([*runs, made(options={"alpha": 0.03}, split="iid")])["inner optimum"] == "not tested"


def test_runs_that_go_on_do_not_count_and_what_diverged_loses() -> None:
    assert verdicts([made(accuracy=0.9, state="running"), made("fedavg", 0.5)])["most accurate"] == "not tested"
    claim = judged([made(accuracy=0.9, state="diverged"), made("fedavg", 0.5)])["most accurate"]
    assert claim.verdict == "not seen"
    assert claim.evidence == ("✗ I · dirichlet: FedCM diverged (round 40), next FedAvg 50.00",)


def test_to_lead_those_that_diverged_is_no_number_of_points() -> None:
    claim = judged([made(accuracy=0.5), made("fedavg", 0.9, state="diverged")])["most accurate"]
    assert claim.evidence == ("✓ I · dirichlet: FedCM 50.00, next FedAvg diverged (round 40)",)
    neither = [made(accuracy=0.9, state="diverged"), made("fedavg", 0.9, state="diverged")]
    assert verdicts(neither)["most accurate"] == "not seen"


def test_what_diverged_on_the_way_has_lost_more_than_any_number() -> None:
    def lost(run: Digest) -> Digest:
        gone = run.algorithm == "scaffold" and run.labels["setting"] == "II"
        return run.model_copy(update={"state": "diverged"}) if gone else run

    claim = judged([lost(run) for run in paper_grid()])["setting I "]
    assert claim.verdict == "seen"
    assert "FedAvg −8.08, SCAFFOLD diverged" in claim.evidence[0]


def test_where_fedcm_diverges_too_nobody_loses_least() -> None:
    lost = {("scaffold", "iid"), ("fedcm", "dirichlet")}
    runs = [
        run.model_copy(update={"state": "diverged"})
        if run.labels["setting"] == "II" and (run.algorithm, run.labels["split"]) in lost
        else run
        for run in paper_grid()
    ]
    assert judged(runs)["setting I "].verdict == "not seen"


def test_what_diverged_is_in_a_sweep_as_such() -> None:
    runs = [made(accuracy=a, options={"alpha": alpha}) for alpha, a in ((0.05, 0.7), (0.1, 0.8))]
    claim = judged([*runs, made(accuracy=0.9, options={"alpha": 1.0}, state="diverged")])
    assert claim["inner optimum"].verdict == claim["beats α = 1"].verdict == "seen"
    assert "1: diverged (round 40)" in claim["inner optimum"].evidence[0]


def test_cells_without_a_published_figure_do_not_count_where_others_have_one() -> None:
    tuned = [made(accuracy=0.5, labels={"change": "lr"}), made("fedavg", 0.6, labels={"change": "lr"})]
    claim = judged([*paper_grid(published=1.0), *tuned])["most accurate"]
    assert claim.verdict == "seen"
    assert claim.evidence[-1] == "– 1 cell without a published figure of FedCM aside"
    assert judged([*paper_grid(), *tuned])["most accurate"].verdict == "not seen"


def test_a_lead_within_the_seeds_spread_is_told_as_such() -> None:
    runs = [
        made(a, v, s) for a, v, s in [("fedcm", 0.8, 1), ("fedcm", 0.9, 2), ("fedavg", 0.79, 1), ("fedavg", 0.89, 2)]
    ]
    assert "within the seeds' spread" in judged(runs)["most accurate"].evidence[0]
    assert "one seed" in judged([made(), made("fedavg", 0.1)])["most accurate"].evidence[0]
