"""The sentence above a table calls a row the most accurate only beyond the uncertainty over seeds."""

from collections.abc import Sequence

import pytest
from made_digests import made, made_with_loss

from fedcm.reports.claims.answer import answer
from fedcm.reports.digest import Digest
from fedcm.reports.groups import grouped


def said(*runs: Digest) -> str:
    (group,) = grouped(runs)
    return answer(group)


def seeds(algorithm: str, accuracies: Sequence[float], **changes: str) -> list[Digest]:
    return [made(algorithm, value / 100, seed, **changes) for seed, value in enumerate(accuracies, 1)]


def test_beyond_the_uncertainty_a_row_is_the_most_accurate_with_its_interval_beside() -> None:
    runs = seeds("fedcm", [80, 82, 85]) + seeds("fedavg", [78, 80, 82])
    assert said(*runs) == (
        "FedCM is the most accurate: 82.33 ± 2.52 %, next FedAvg 80.00 ± 2.00 %, "
        "+2.33 points (95 % interval 0.90 to 3.77; paired over 3 seeds)."
    )


def test_of_one_seed_it_has_the_highest_accuracy_in_the_table() -> None:
    assert said(made(accuracy=0.8), made("fedavg", 0.7)) == (
        "FedCM has the highest test accuracy in this table (one seed): 80.00 %, next FedAvg 70.00 %, +10.00 points."
    )
    runs = [*seeds("fedcm", [80, 81]), made("fedavg", 0.7)]
    assert said(*runs).startswith(
        "FedCM has the highest test accuracy in this table (one seed in part): 80.50 ± 0.71 %"
    )


def test_within_the_uncertainty_it_is_said_to_be_so() -> None:
    runs = seeds("fedcm", [80, 82, 84]) + seeds("fedavg", [83, 80, 81])
    assert said(*runs) == (
        "FedCM has the highest test accuracy in this table (within the uncertainty): 82.00 ± 2.00 %, "
        "next FedAvg 81.33 ± 1.53 %, +0.67 points (95 % interval −7.32 to 8.65; paired over 3 seeds)."
    )


def test_two_seeds_are_too_few_whatever_their_interval() -> None:
    runs = seeds("fedcm", [81, 83]) + seeds("fedavg", [80, 82])
    assert said(*runs) == (
        "FedCM has the highest test accuracy in this table (two seeds): 82.00 ± 1.41 %, next FedAvg 81.00 ± 1.41 %, "
        "+1.00 points (95 % interval 1.00 to 1.00; paired over 2 seeds)."
    )


def test_those_that_diverged_are_beaten() -> None:
    lost = [made("fedavg", 0.1, seed, state="diverged") for seed in (1, 2, 3)]
    assert said(*seeds("fedcm", [80, 82, 81]), *lost).startswith(
        "FedCM is the most accurate: 81.00 ± 1.00 %, next FedAvg diverged"
    )
    assert said(*seeds("fedcm", [80]), *lost).startswith("FedCM has the highest test accuracy in this table (one seed")
    assert said(*lost) == "Nothing has been evaluated yet."


def test_the_next_is_the_closest_wherever_it_stands_in_the_table() -> None:
    for accuracies in ((60, 75), (75, 60)):
        others = [made(name, value / 100) for name, value in zip(("fedavg", "scaffold"), accuracies, strict=True)]
        closest = "FedAvg" if accuracies[0] == 75 else "SCAFFOLD"
        assert f"next {closest} 75.00 %, +5.00 points" in said(made(accuracy=0.8), *others)


def test_a_tie_has_no_winner() -> None:
    assert said(made(accuracy=0.8), made("fedavg", 0.8), made("scaffold", 0.7)) == (
        "FedCM and FedAvg share the highest test accuracy in this table: 80.00 %."
    )


def test_it_must_be_surely_ahead_of_all_and_not_of_the_next_alone() -> None:
    runs = seeds("fedcm", [80, 80, 80]) + seeds("fedavg", [79, 79, 79])
    assert said(*runs).startswith("FedCM is the most accurate")
    assert "within the uncertainty" in said(*runs, *seeds("scaffold", [50, 95, 70]))


@pytest.mark.parametrize(("others", "sure"), [(1, True), (2, True), (3, False), (4, False)])
def test_of_many_rows_the_leader_was_chosen_and_must_lead_by_more(others: int, sure: bool) -> None:
    """A lead of 3, 5 and 6 points has t = 5.3: 4.3 is enough for the better of two or three, 6.2 for that of more."""
    names = ("fedavg", "fedadam", "scaffold", "feddyn")
    runs = seeds("fedcm", [73, 75, 76]) + seeds(names[0], [70, 70, 70])
    for name in names[1:others]:
        runs += seeds(name, [10, 10, 10])
    assert said(*runs).startswith("FedCM is the most accurate") == sure


def test_of_several_cells_those_beyond_the_uncertainty_stand_apart() -> None:
    sure = seeds("fedcm", [80, 82, 85]) + seeds("fedavg", [78, 80, 82])
    doubtful = [made(accuracy=0.8, setting="II"), made("fedavg", 0.7, setting="II")]
    assert said(*sure, *doubtful) == (
        "Most accurate: FedCM in 1 of 2 cells, by 0.90 points or more (95 % intervals over seeds). "
        "Highest test accuracy in this table (one seed): FedCM in 1 of 2 cells."
    )
    both = sure + seeds("fedcm", [80, 82, 85], setting="II") + seeds("fedavg", [75, 77, 79], setting="II")
    assert said(*both) == ("Most accurate: FedCM in all 2 cells, by 0.90 points or more (95 % intervals over seeds).")


def test_of_a_loss_the_lowest_leads() -> None:
    assert said(made_with_loss(loss=0.3), made_with_loss("fedavg", 0.2)) == (
        "FedAvg has the lowest test loss in this table (one seed): 0.2000, next FedCM 0.3000, lower by 0.1."
    )
    runs = [made_with_loss(loss=0.20 + k / 100, seed=k) for k in range(3)]
    runs += [made_with_loss("fedavg", 0.30 + k / 90, seed=k) for k in range(3)]
    assert said(*runs).startswith(
        "FedCM has the lowest test loss: 0.2100 ± 0.010, next FedAvg 0.3111 ± 0.011, lower by"
    )
    elsewhere = [made_with_loss(loss=0.2, setting="II"), made_with_loss("fedavg", 0.3, setting="II")]
    assert said(*runs, *elsewhere) == (
        "Lowest test loss: FedCM in 1 of 2 cells, by 0.0984 or more (95 % intervals over seeds). "
        "Lowest test loss in this table (one seed): FedCM in 1 of 2 cells."
    )


def test_what_diverged_beside_it_is_told_without_a_number() -> None:
    lost = [made("scaffold", 0.9, seed=k, state="diverged") for k in (1, 2, 3)]
    runs = seeds("fedcm", [80, 82, 85]) + seeds("fedavg", [78, 80, 82])
    assert said(*runs, *lost).startswith("FedCM is the most accurate: 82.33 ± 2.52 %, next FedAvg")


def test_one_row_alone_is_compared_with_nothing() -> None:
    assert said(made(accuracy=0.8)) == "Nothing to compare yet: FedCM 80.00 % in I · dirichlet."
    assert said(made_with_loss(loss=0.5)) == "Nothing to compare yet: FedCM 0.5000 in I · dirichlet."
    assert said(made(accuracy=None)) == "Nothing has been evaluated yet."
