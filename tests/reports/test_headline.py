"""The sentence above a table calls a row the most accurate only beyond the uncertainty over seeds."""

from collections.abc import Sequence

import pytest
from made_digests import make_loss_digest, make_test_digest

from fedcm.reports.claims.headline import write_headline
from fedcm.reports.digest import Digest
from fedcm.reports.groups import group_runs


def write(*runs: Digest) -> str:
    (group,) = group_runs(runs)
    return write_headline(group)


def make_runs(algorithm: str, accuracies: Sequence[float], **changes: str) -> list[Digest]:
    return [make_test_digest(algorithm, value / 100, seed, **changes) for seed, value in enumerate(accuracies, 1)]


def test_sure_lead_is_called_most_accurate_with_its_interval() -> None:
    runs = make_runs("fedcm", [80, 82, 85]) + make_runs("fedavg", [78, 80, 82])
    assert write(*runs) == (
        "FedCM is the most accurate: 82.33 ± 2.52 %, next FedAvg 80.00 ± 2.00 %, "
        "+2.33 points (95 % interval 0.90 to 3.77; paired over 3 seeds)."
    )


def test_one_seed_is_called_highest_in_this_table() -> None:
    assert write(make_test_digest(accuracy=0.8), make_test_digest("fedavg", 0.7)) == (
        "FedCM has the highest test accuracy in this table (one seed): 80.00 %, next FedAvg 70.00 %, +10.00 points."
    )
    runs = [*make_runs("fedcm", [80, 81]), make_test_digest("fedavg", 0.7)]
    assert write(*runs).startswith(
        "FedCM has the highest test accuracy in this table (one side has one seed): 80.50 ± 0.71 %"
    )


def test_lead_within_the_uncertainty_is_noted() -> None:
    runs = make_runs("fedcm", [80, 82, 84]) + make_runs("fedavg", [83, 80, 81])
    assert write(*runs) == (
        "FedCM has the highest test accuracy in this table (within the uncertainty): 82.00 ± 2.00 %, "
        "next FedAvg 81.33 ± 1.53 %, +0.67 points (95 % interval −7.32 to 8.65; paired over 3 seeds)."
    )


def test_two_seeds_are_noted_whatever_the_interval() -> None:
    runs = make_runs("fedcm", [81, 83]) + make_runs("fedavg", [80, 82])
    assert write(*runs) == (
        "FedCM has the highest test accuracy in this table (two seeds): 82.00 ± 1.41 %, next FedAvg 81.00 ± 1.41 %, "
        "+1.00 points (95 % interval 1.00 to 1.00; paired over 2 seeds)."
    )


def test_diverged_rows_are_beaten() -> None:
    diverged = [make_test_digest("fedavg", 0.1, seed, state="diverged") for seed in (1, 2, 3)]
    assert write(*make_runs("fedcm", [80, 82, 81]), *diverged).startswith(
        "FedCM is the most accurate: 81.00 ± 1.00 %, next FedAvg diverged"
    )
    assert write(*make_runs("fedcm", [80]), *diverged).startswith(
        "FedCM has the highest test accuracy in this table (one side has one seed"
    )
    assert write(*diverged) == "Nothing has been evaluated yet."


def test_next_row_is_the_closest_one() -> None:
    for accuracies in ((60, 75), (75, 60)):
        others = [
            make_test_digest(name, value / 100) for name, value in zip(("fedavg", "scaffold"), accuracies, strict=True)
        ]
        closest = "FedAvg" if accuracies[0] == 75 else "SCAFFOLD"
        assert f"next {closest} 75.00 %, +5.00 points" in write(make_test_digest(accuracy=0.8), *others)


def test_tied_rows_share_the_lead() -> None:
    assert write(
        make_test_digest(accuracy=0.8), make_test_digest("fedavg", 0.8), make_test_digest("scaffold", 0.7)
    ) == ("FedCM and FedAvg share the highest test accuracy in this table: 80.00 %.")


def test_leader_must_surely_beat_all_rows_and_not_only_the_next() -> None:
    runs = make_runs("fedcm", [80, 80, 80]) + make_runs("fedavg", [79, 79, 79])
    assert write(*runs).startswith("FedCM is the most accurate")
    assert "within the uncertainty" in write(*runs, *make_runs("scaffold", [50, 95, 70]))


@pytest.mark.parametrize(("others", "sure"), [(1, True), (2, True), (3, False), (4, False)])
def test_leader_of_many_rows_needs_a_larger_lead(others: int, sure: bool) -> None:
    """A lead of 3, 5 and 6 points has t = 5.3: more than 4.3 for two or three rows, less than 6.2 for more."""
    names = ("fedavg", "fedadam", "scaffold", "feddyn")
    runs = make_runs("fedcm", [73, 75, 76]) + make_runs(names[0], [70, 70, 70])
    for name in names[1:others]:
        runs += make_runs(name, [10, 10, 10])
    assert write(*runs).startswith("FedCM is the most accurate") == sure


def test_sure_and_doubtful_cells_have_separate_sentences() -> None:
    sure = make_runs("fedcm", [80, 82, 85]) + make_runs("fedavg", [78, 80, 82])
    doubtful = [make_test_digest(accuracy=0.8, setting="II"), make_test_digest("fedavg", 0.7, setting="II")]
    assert write(*sure, *doubtful) == (
        "Most accurate: FedCM in 1 of 2 cells, by 0.90 points or more (95 % intervals over seeds). "
        "Highest test accuracy in this table (one seed): FedCM in 1 of 2 cells."
    )
    both = sure + make_runs("fedcm", [80, 82, 85], setting="II") + make_runs("fedavg", [75, 77, 79], setting="II")
    assert write(*both) == ("Most accurate: FedCM in all 2 cells, by 0.90 points or more (95 % intervals over seeds).")


def test_lowest_loss_leads() -> None:
    assert write(make_loss_digest(loss=0.3), make_loss_digest("fedavg", 0.2)) == (
        "FedAvg has the lowest test loss in this table (one seed): 0.2000, next FedCM 0.3000, lower by 0.1."
    )
    runs = [make_loss_digest(loss=0.20 + k / 100, seed=k) for k in range(3)]
    runs += [make_loss_digest("fedavg", 0.30 + k / 90, seed=k) for k in range(3)]
    assert write(*runs).startswith(
        "FedCM has the lowest test loss: 0.2100 ± 0.010, next FedAvg 0.3111 ± 0.011, lower by"
    )
    elsewhere = [make_loss_digest(loss=0.2, setting="II"), make_loss_digest("fedavg", 0.3, setting="II")]
    assert write(*runs, *elsewhere) == (
        "Lowest test loss: FedCM in 1 of 2 cells, by 0.0984 or more (95 % intervals over seeds). "
        "Lowest test loss in this table (one seed): FedCM in 1 of 2 cells."
    )


def test_diverged_row_is_not_the_next() -> None:
    diverged = [make_test_digest("scaffold", 0.9, seed=k, state="diverged") for k in (1, 2, 3)]
    runs = make_runs("fedcm", [80, 82, 85]) + make_runs("fedavg", [78, 80, 82])
    assert write(*runs, *diverged).startswith("FedCM is the most accurate: 82.33 ± 2.52 %, next FedAvg")


def test_single_row_has_nothing_to_compare() -> None:
    assert write(make_test_digest(accuracy=0.8)) == "Nothing to compare yet: FedCM 80.00 % in I · dirichlet."
    assert write(make_loss_digest(loss=0.5)) == "Nothing to compare yet: FedCM 0.5000 in I · dirichlet."
    assert write(make_test_digest(accuracy=None)) == "Nothing has been evaluated yet."
