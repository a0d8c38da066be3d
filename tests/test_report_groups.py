"""The table's numbers are the runs' numbers, and runs are averaged only where they differ in nothing but the seed."""

import statistics

import pytest
from made_digests import PAPER, made, paper_grid

from fedcm.report.averages import averaged
from fedcm.report.costs import cost, targets_of
from fedcm.report.groups import Entry, grouped
from fedcm.report.looks import RAMP, looks
from fedcm.report.result_table import result_sheet


def test_a_cell_holds_mean_and_deviation_over_seeds() -> None:
    accuracies = [0.81, 0.84, 0.87]
    (group,) = grouped([made(accuracy=a, seed=k) for k, a in enumerate(accuracies)])
    (row,) = group.rows
    entry = row.entries["I · dirichlet"]
    assert entry.mean() == pytest.approx(84)
    assert entry.deviation() == pytest.approx(100 * statistics.stdev(accuracies))
    assert entry.mean("last") == pytest.approx(85)
    assert entry.mean("best") == pytest.approx(86)
    assert Entry(entry.runs[:1]).deviation() is None


def test_the_papers_table_comes_out_as_it_went_in() -> None:
    (group,) = grouped(paper_grid())
    assert [cell.name for cell in group.cells] == ["I · iid", "I · dirichlet", "II · iid", "II · dirichlet"]
    assert [row.label for row in group.rows] == ["FedCM", "FedAvg", "FedAdam", "SCAFFOLD", "FedDyn"]
    for (setting, split), figures in PAPER.items():
        means = [row.entries[f"{setting} · {split}"].mean() for row in group.rows]
        assert means == pytest.approx(figures)
        assert group.leaders(f"{setting} · {split}") == {"FedCM"}


def test_runs_that_differ_in_a_setting_have_rows_of_their_own() -> None:
    sweep = [made(options={"alpha": alpha}, accuracy=0.5 + alpha / 10) for alpha in (0.3, 0.1)]
    elsewhere = made(options={"alpha": 0.1}, setting="II")
    (group,) = grouped([*sweep, elsewhere, made("fedavg")])
    assert [row.label for row in group.rows] == ["FedCM (alpha = 0.1)", "FedCM (alpha = 0.3)", "FedAvg"]
    assert set(group.rows[0].entries) == {"I · dirichlet", "II · dirichlet"}


def test_one_algorithm_alone_has_a_row_for_each_cell() -> None:
    (group,) = grouped([made(options={"alpha": a}, labels={"alpha": str(a)}) for a in (0.3, 0.05, 0.1)])
    assert [row.label for row in group.rows] == ["FedCM (alpha 0.05)", "FedCM (alpha 0.1)", "FedCM (alpha 0.3)"]
    assert [cell.name for cell in group.cells] == ["100 clients · p = 0.1 · dirichlet 0.6"]


def test_a_setting_that_changes_with_the_cell_alone_makes_no_rows() -> None:
    here, there = made(options={"alpha": 0.1}), made(options={"alpha": 0.05}, setting="II")
    (group,) = grouped([here, there, made("fedavg")])
    assert [row.label for row in group.rows] == ["FedCM", "FedAvg"]


def test_other_data_other_models_and_other_lengths_are_never_averaged() -> None:
    groups = grouped([made(), made(source="cifar10", seed=2)])
    assert [group.title for group in groups] == ["digits, mlp", "cifar10, mlp"]
    (group,) = grouped([made(), made(rounds=80, seed=2), made("fedavg")])
    assert [cell.name for cell in group.cells] == ["I · dirichlet · 40 rounds", "I · dirichlet · 80 rounds"]


def test_a_seed_that_was_run_twice_counts_once() -> None:
    again = made(accuracy=0.9, started="2026-02-01T00:00:00+00:00", name="again")
    stopped = made(accuracy=0.1, started="2026-03-01T00:00:00+00:00", state="stopped", name="stopped")
    (group,) = grouped([made(accuracy=0.8), again, stopped])
    assert [run.name for run in group.rows[0].entries["I · dirichlet"].runs] == ["again"]


def test_runs_without_labels_stand_under_their_split_and_participation() -> None:
    (group,) = grouped([made(labels={}), made("fedavg", labels={}, setting="II", split="iid")])
    assert [cell.name for cell in group.cells] == [
        "100 clients · p = 0.1 · dirichlet 0.6",
        "500 clients · p = 0.02 · iid",
    ]


def test_a_seed_that_goes_on_waits_until_it_is_over() -> None:
    late = made(accuracy=0.1, seed=2, state="running")
    (group,) = grouped([made(accuracy=0.8), late, made("fedavg", 0.9, state="running"), made("scaffold", 0.2)])
    entries = {row.label: row.entries["I · dirichlet"] for row in group.rows}
    assert entries["FedCM"].mean() == pytest.approx(80)
    assert entries["FedAvg"].mean() == pytest.approx(90)
    assert group.leaders("I · dirichlet") == {"FedCM"}


def test_what_diverged_is_never_the_best() -> None:
    (group,) = grouped([made(accuracy=0.9, state="diverged"), made("fedavg", 0.5), made("scaffold", 0.4)])
    assert group.leaders("I · dirichlet") == {"FedAvg"}


def test_nobody_leads_alone() -> None:
    (group,) = grouped([made()])
    assert group.leaders("I · dirichlet") == set()


def test_the_cost_of_an_accuracy_is_read_off_the_curves() -> None:
    runs = [made(curve=[0.1, 0.6, 0.8]), made(seed=2, curve=[0.1, 0.2, 0.3, 0.55]), made(seed=3, curve=[0.1])]
    (group,) = grouped(runs)
    assert targets_of(group) == [0.5, 0.7]
    entry = group.rows[0].entries["I · dirichlet"]
    assert cost(entry, 0.5) == (3.0, 9000.0, 2, 3)
    assert cost(entry, 0.7) == (3.0, 9000.0, 1, 3)
    assert cost(entry, 0.9) is None


def test_a_mean_curve_goes_as_far_as_any_seed_and_has_a_band_where_there_are_two() -> None:
    average = averaged([made(curve=[0.2, 0.4]).curve, made(curve=[0.4, 0.6, 0.9]).curve])
    assert average.round == [1, 2, 3]
    assert average.mean["test_accuracy"] == pytest.approx([0.3, 0.5, 0.9])
    assert average.deviation["test_accuracy"][2] is None
    assert average.deviation["test_accuracy"][0] == pytest.approx(statistics.stdev([0.2, 0.4]))


def test_an_algorithm_has_the_same_look_whoever_else_is_there() -> None:
    alone = looks([("FedCM", "fedcm", 1)])
    others = [(name, name, 2) for name in ("my:A", "fedavg", "fedadam")]
    crowd = looks([*others, ("FedCM", "fedcm", 1), ("x", "my:B", 1)])
    assert crowd["FedCM"] == alone["FedCM"]
    assert len({(look.light, look.dash) for look in crowd.values()}) == len(crowd)


def test_the_rows_of_a_sweep_go_from_dark_to_bright_beside_the_algorithms_own() -> None:
    alphas = [(f"FedCM (alpha {alpha})", "fedcm", 1) for alpha in (1, 0.01, 0.3, 0.1)]
    alone, beside = looks(alphas), looks([("FedCM", "fedcm", 3), *alphas])
    ordered = [alone[f"FedCM (alpha {alpha})"].light for alpha in (0.01, 0.1, 0.3, 1)]
    assert [RAMP.index(colour) for colour in ordered] == sorted(RAMP.index(colour) for colour in ordered)
    assert len(set(ordered)) == 4
    assert {label: beside[label] for label in alone} == alone
    assert beside["FedCM"] == looks([("FedCM", "fedcm", 1)])["FedCM"]
    assert looks([*alphas, ("FedCM", "fedcm", 1)])["FedCM"] == beside["FedCM"]
    assert looks([("FedCM (alpha 0.1)", "fedcm", 2), ("FedCM", "fedcm", 1)])["FedCM"] == beside["FedCM"]


def test_the_rows_of_two_sweeps_can_be_told_apart() -> None:
    names = ("fedcm", "fedavg")
    rows = looks([(f"{name} (lr {lr})", name, 1) for name in names for lr in (0.03, 0.1, 0.3)])
    assert len({(look.light, look.dash) for look in rows.values()}) == 6


def test_the_sheet_says_it_in_latex_markdown_and_csv() -> None:
    runs = [
        made(accuracy=0.8, published=81.5),
        made(accuracy=0.82, seed=2),
        made("my:A_b", 0.5),
        made("my:A_b", 0.6, 2),
    ]
    (group,) = grouped(runs)
    sheet = result_sheet(group, "results")
    assert r"\toprule" in sheet.latex()
    assert r"FedCM & \textbf{81.00 $\pm$ 1.41 (81.50)} \\" in sheet.latex()
    assert r"my:A\_b & 55.00 $\pm$ 7.07 \\" in sheet.latex()
    assert "| FedCM | **81.00 ± 1.41 (81.50)** |" in sheet.markdown()
    assert "FedCM,81.00 ± 1.41 (81.50)" in sheet.csv().splitlines()
