"""The table's numbers are the runs' numbers, and runs are averaged only where they differ in nothing but the seed."""

import statistics

import pytest
from made_digests import PAPER, made, paper_grid

from fedcm.reports.averages import averaged
from fedcm.reports.claims.paper import other_scale
from fedcm.reports.costs import cost, targets_of
from fedcm.reports.digest import Digest
from fedcm.reports.entry import Entry
from fedcm.reports.figures.looks import RAMP, looks
from fedcm.reports.groups import grouped
from fedcm.reports.html.result_table import numbers_sheet, result_sheet, result_table


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


def test_what_diverged_has_its_round_in_place_of_every_number() -> None:
    runs = [made(accuracy=0.9, state="diverged"), made(accuracy=0.8, seed=2), made("fedavg", 0.5, published=60.0)]
    runs += [made("scaffold", 0.9, state="diverged", rounds=40, published=70.0)]
    (group,) = grouped(runs)
    entry = group.rows[0].entries["I · dirichlet"]
    assert (entry.mean(), entry.mean("best"), entry.deviation()) == (None, None, None)
    assert [row[1] for row in result_sheet(group, "x").body] == [
        "diverged (round 40; 1 of 2 seeds)",
        "50.00 (60.00)",
        "diverged (round 40) (70.00)",
    ]
    numbers = [dict(zip(sheet.head, row, strict=True)) for sheet in [numbers_sheet((group,))] for row in sheet.body]
    assert [row["diverged"] for row in numbers] == ["40", "", "40"]
    assert [row["finished"] for row in numbers] == ["false", "true", "false"]
    assert [row["mean_last_mean"] for row in numbers] == ["", "50.0", ""]
    assert ">diverged (round 40)<" in str(result_table(group))


def test_settings_of_a_federation_make_rows_only_where_they_round() -> None:
    def federated(run: Digest, **settings: object) -> Digest:
        return run.model_copy(update={"experiment": run.experiment | {"federation": settings}})

    plain, waits = made(), federated(made(seed=2), wait=60, uplink="exact")
    rounded = federated(made(seed=3), wait=60, uplink="half")
    (group,) = grouped([plain, waits, rounded])
    assert [(row.label, len(row.entries["I · dirichlet"].runs)) for row in group.rows] == [
        ("FedCM (federation.uplink = half)", 1),
        ("FedCM (federation.uplink unset)", 2),
    ]


def test_published_figures_of_another_scale_are_told_as_such() -> None:
    small = [made(published=87.61, source="cifar10"), made("fedavg", published=82.14, source="cifar10", rounds=200)]
    (group,) = grouped(small)
    words = "of another scale: model resnet18 (here mlp), rounds 4000 (here 200 and 40)"
    assert result_sheet(group, "x").caption.endswith(words)
    assert words in str(result_table(group))
    assert other_scale([made(published=87.61, source="cifar10", setting="II")]).endswith("clients 100 (here 500)")


def test_the_papers_own_scale_and_other_peoples_figures_need_no_word() -> None:
    def at_full_scale(run: Digest) -> Digest:
        return run.model_copy(update={"experiment": run.experiment | {"model": {"name": "resnet18"}}})

    assert other_scale([at_full_scale(made(published=87.61, source="cifar10", rounds=4000))]) == ""
    assert other_scale([made(published=87.61, source="digits"), made(published=50.0, source="cifar10"), made()]) == ""


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
