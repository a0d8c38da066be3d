"""Tables contain the runs' numbers, and runs are averaged only if they differ only in their seed."""

import statistics

import pytest
from made_digests import PAPER, make_crowd, make_paper_grid, make_test_digest

from fedcm.algorithms import ALGORITHMS, GROUPS
from fedcm.reports.claims.paper import describe_scale_difference
from fedcm.reports.digest import Digest
from fedcm.reports.entry import Entry, average_curves
from fedcm.reports.figures.method_groups import METHOD_GROUPS
from fedcm.reports.figures.style import RAMP, choose_row_styles
from fedcm.reports.groups import group_runs
from fedcm.reports.html.result_table import make_numbers_sheet, make_result_sheet, render_result_table


def test_entry_has_mean_and_deviation_over_seeds() -> None:
    accuracies = [0.81, 0.84, 0.87]
    (group,) = group_runs([make_test_digest(accuracy=a, seed=k) for k, a in enumerate(accuracies)])
    (row,) = group.rows
    entry = row.entries["I · dirichlet"]
    assert entry.mean() == pytest.approx(84)
    assert entry.deviation() == pytest.approx(100 * statistics.stdev(accuracies))
    assert entry.mean("last") == pytest.approx(85)
    assert entry.mean("best") == pytest.approx(86)
    assert Entry(entry.runs[:1]).deviation() is None


def test_paper_table_is_reproduced() -> None:
    (group,) = group_runs(make_paper_grid())
    assert [cell.name for cell in group.cells] == ["I · iid", "I · dirichlet", "II · iid", "II · dirichlet"]
    assert [row.label for row in group.rows] == ["FedCM", "FedAvg", "FedAdam", "SCAFFOLD", "FedDyn"]
    for (setting, split), figures in PAPER.items():
        means = [row.entries[f"{setting} · {split}"].mean() for row in group.rows]
        assert means == pytest.approx(figures)
        assert group.list_leaders(f"{setting} · {split}") == {"FedCM"}


def test_runs_that_differ_in_a_setting_have_separate_rows() -> None:
    sweep = [make_test_digest(options={"alpha": alpha}, accuracy=0.5 + alpha / 10) for alpha in (0.3, 0.1)]
    elsewhere = make_test_digest(options={"alpha": 0.1}, setting="II")
    (group,) = group_runs([*sweep, elsewhere, make_test_digest("fedavg")])
    assert [row.label for row in group.rows] == ["FedCM (alpha = 0.1)", "FedCM (alpha = 0.3)", "FedAvg"]
    assert set(group.rows[0].entries) == {"I · dirichlet", "II · dirichlet"}


def test_single_algorithm_has_one_row_per_cell() -> None:
    (group,) = group_runs([make_test_digest(options={"alpha": a}, labels={"alpha": str(a)}) for a in (0.3, 0.05, 0.1)])
    assert [row.label for row in group.rows] == ["FedCM (alpha 0.05)", "FedCM (alpha 0.1)", "FedCM (alpha 0.3)"]
    assert [cell.name for cell in group.cells] == ["100 clients · p = 0.1 · dirichlet 0.6"]


def test_setting_that_depends_only_on_the_cell_makes_no_rows() -> None:
    first, second = make_test_digest(options={"alpha": 0.1}), make_test_digest(options={"alpha": 0.05}, setting="II")
    (group,) = group_runs([first, second, make_test_digest("fedavg")])
    assert [row.label for row in group.rows] == ["FedCM", "FedAvg"]


def test_different_data_models_and_lengths_are_never_averaged() -> None:
    groups = group_runs([make_test_digest(), make_test_digest(source="cifar10", seed=2)])
    assert [group.title for group in groups] == ["digits, mlp", "cifar10, mlp"]
    (group,) = group_runs([make_test_digest(), make_test_digest(rounds=80, seed=2), make_test_digest("fedavg")])
    assert [cell.name for cell in group.cells] == ["I · dirichlet · 40 rounds", "I · dirichlet · 80 rounds"]


def test_repeated_seed_counts_once() -> None:
    again = make_test_digest(accuracy=0.9, started="2026-02-01T00:00:00+00:00", name="again")
    stopped = make_test_digest(accuracy=0.1, started="2026-03-01T00:00:00+00:00", state="stopped", name="stopped")
    (group,) = group_runs([make_test_digest(accuracy=0.8), again, stopped])
    assert [run.name for run in group.rows[0].entries["I · dirichlet"].runs] == ["again"]


def test_runs_without_labels_are_labelled_by_split_and_participation() -> None:
    (group,) = group_runs(
        [make_test_digest(labels={}), make_test_digest("fedavg", labels={}, setting="II", split="iid")]
    )
    assert [cell.name for cell in group.cells] == [
        "100 clients · p = 0.1 · dirichlet 0.6",
        "500 clients · p = 0.02 · iid",
    ]


def test_running_seed_does_not_count() -> None:
    late = make_test_digest(accuracy=0.1, seed=2, state="running")
    (group,) = group_runs(
        [
            make_test_digest(accuracy=0.8),
            late,
            make_test_digest("fedavg", 0.9, state="running"),
            make_test_digest("scaffold", 0.2),
        ]
    )
    entries = {row.label: row.entries["I · dirichlet"] for row in group.rows}
    assert entries["FedCM"].mean() == pytest.approx(80)
    assert entries["FedAvg"].mean() == pytest.approx(90)
    assert group.list_leaders("I · dirichlet") == {"FedCM"}


def test_diverged_run_never_leads() -> None:
    (group,) = group_runs(
        [
            make_test_digest(accuracy=0.9, state="diverged"),
            make_test_digest("fedavg", 0.5),
            make_test_digest("scaffold", 0.4),
        ]
    )
    assert group.list_leaders("I · dirichlet") == {"FedAvg"}


def test_divergence_replaces_every_number() -> None:
    runs = [
        make_test_digest(accuracy=0.9, state="diverged"),
        make_test_digest(accuracy=0.8, seed=2),
        make_test_digest("fedavg", 0.5, published=60.0),
    ]
    runs += [make_test_digest("scaffold", 0.9, state="diverged", rounds=40, published=70.0)]
    (group,) = group_runs(runs)
    entry = group.rows[0].entries["I · dirichlet"]
    assert (entry.mean(), entry.mean("best"), entry.deviation()) == (None, None, None)
    assert [row[1] for row in make_result_sheet(group, "x").body] == [
        "diverged (round 40; 1 of 2 seeds)",
        "50.00 (60.00)",
        "diverged (round 40) (70.00)",
    ]
    numbers = [
        dict(zip(sheet.head, row, strict=True)) for sheet in [make_numbers_sheet((group,))] for row in sheet.body
    ]
    assert [row["diverged"] for row in numbers] == ["40", "", "40"]
    assert [row["finished"] for row in numbers] == ["false", "true", "false"]
    assert [row["mean_last_mean"] for row in numbers] == ["", "50.0", ""]
    assert ">diverged (round 40)<" in str(render_result_table(group))


def test_federation_settings_make_rows_only_if_they_round() -> None:
    def federated(run: Digest, **settings: object) -> Digest:
        return run.model_copy(update={"experiment": run.experiment | {"federation": settings}})

    plain, waits = make_test_digest(), federated(make_test_digest(seed=2), wait=60, uplink="exact")
    rounded = federated(make_test_digest(seed=3), wait=60, uplink="half")
    (group,) = group_runs([plain, waits, rounded])
    assert [(row.label, len(row.entries["I · dirichlet"].runs)) for row in group.rows] == [
        ("FedCM (federation.uplink = half)", 1),
        ("FedCM (federation.uplink unset)", 2),
    ]


def test_published_figures_of_another_scale_are_noted() -> None:
    small = [
        make_test_digest(published=87.61, source="cifar10"),
        make_test_digest("fedavg", published=82.14, source="cifar10", rounds=200),
    ]
    (group,) = group_runs(small)
    words = " have another scale: model resnet18 (here mlp), rounds 4000 (here 200 and 40)"
    assert make_result_sheet(group, "x").caption.endswith(words)
    assert words in str(render_result_table(group))
    assert describe_scale_difference([make_test_digest(published=87.61, source="cifar10", setting="II")]).endswith(
        "clients 100 (here 500)"
    )


def test_same_scale_and_other_published_figures_have_no_note() -> None:
    def at_full_scale(run: Digest) -> Digest:
        return run.model_copy(update={"experiment": run.experiment | {"model": {"name": "resnet18"}}})

    assert (
        describe_scale_difference([at_full_scale(make_test_digest(published=87.61, source="cifar10", rounds=4000))])
        == ""
    )
    assert (
        describe_scale_difference(
            [
                make_test_digest(published=87.61, source="digits"),
                make_test_digest(published=50.0, source="cifar10"),
                make_test_digest(),
            ]
        )
        == ""
    )


def test_single_row_does_not_lead() -> None:
    (group,) = group_runs([make_test_digest()])
    assert group.list_leaders("I · dirichlet") == set()


def test_cost_of_an_accuracy_comes_from_the_curves() -> None:
    runs = [
        make_test_digest(curve=[0.1, 0.6, 0.8]),
        make_test_digest(seed=2, curve=[0.1, 0.2, 0.3, 0.55]),
        make_test_digest(seed=3, curve=[0.1]),
    ]
    (group,) = group_runs(runs)
    assert group.list_reached_targets() == [0.5, 0.7]
    entry = group.rows[0].entries["I · dirichlet"]
    assert entry.find_cost(0.5) == (3.0, 9000.0, 2, 3)
    assert entry.find_cost(0.7) == (3.0, 9000.0, 1, 3)
    assert entry.find_cost(0.9) is None


def test_mean_curve_has_all_rounds_and_a_band_for_two_seeds() -> None:
    average = average_curves([make_test_digest(curve=[0.2, 0.4]).curve, make_test_digest(curve=[0.4, 0.6, 0.9]).curve])
    assert average.round == [1, 2, 3]
    assert average.mean["test_accuracy"] == pytest.approx([0.3, 0.5, 0.9])
    assert average.deviation["test_accuracy"][2] is None
    assert average.deviation["test_accuracy"][0] == pytest.approx(statistics.stdev([0.2, 0.4]))


def test_algorithm_has_the_same_style_in_every_table() -> None:
    alone = choose_row_styles([("FedCM", "fedcm", 1)])
    others = [(name, name, 2) for name in ("my:A", "fedavg", "fedadam")]
    crowd = choose_row_styles([*others, ("FedCM", "fedcm", 1), ("x", "my:B", 1)])
    assert crowd["FedCM"] == alone["FedCM"]
    assert len({(look.light, look.dash) for look in crowd.values()}) == len(crowd)


def test_rows_of_a_sweep_go_from_dark_to_bright() -> None:
    alphas = [(f"FedCM (alpha {alpha})", "fedcm", 1) for alpha in (1, 0.01, 0.3, 0.1)]
    alone, beside = choose_row_styles(alphas), choose_row_styles([("FedCM", "fedcm", 3), *alphas])
    ordered = [alone[f"FedCM (alpha {alpha})"].light for alpha in (0.01, 0.1, 0.3, 1)]
    assert [RAMP.index(colour) for colour in ordered] == sorted(RAMP.index(colour) for colour in ordered)
    assert len(set(ordered)) == 4
    assert {label: beside[label] for label in alone} == alone
    assert beside["FedCM"] == choose_row_styles([("FedCM", "fedcm", 1)])["FedCM"]
    assert choose_row_styles([*alphas, ("FedCM", "fedcm", 1)])["FedCM"] == beside["FedCM"]
    assert choose_row_styles([("FedCM (alpha 0.1)", "fedcm", 2), ("FedCM", "fedcm", 1)])["FedCM"] == beside["FedCM"]


def test_rows_of_two_sweeps_have_different_styles() -> None:
    names = ("fedcm", "fedavg")
    rows = choose_row_styles([(f"{name} (lr {lr})", name, 1) for name in names for lr in (0.03, 0.1, 0.3)])
    assert len({(look.light, look.dash) for look in rows.values()}) == 6


def test_sheet_has_latex_markdown_and_csv() -> None:
    runs = [
        make_test_digest(accuracy=0.8, published=81.5),
        make_test_digest(accuracy=0.82, seed=2),
        make_test_digest("my:A_b", 0.5),
        make_test_digest("my:A_b", 0.6, 2),
    ]
    (group,) = group_runs(runs)
    sheet = make_result_sheet(group, "results")
    assert r"\toprule" in sheet.to_latex()
    assert r"FedCM & \textbf{81.00 $\pm$ 1.41 (81.50)} \\" in sheet.to_latex()
    assert r"my:A\_b & 55.00 $\pm$ 7.07 \\" in sheet.to_latex()
    assert "| FedCM | **81.00 ± 1.41 (81.50)** |" in sheet.to_markdown()
    assert "FedCM,81.00 ± 1.41 (81.50)" in sheet.to_csv().splitlines()


def test_method_groups_are_those_of_the_algorithms() -> None:
    assert {group: tuple(names) for group, names in GROUPS.items()} == METHOD_GROUPS


def test_more_algorithms_than_colours_have_the_colours_of_their_groups() -> None:
    names = [*ALGORITHMS, "my:A", "my:B"]
    styles = choose_row_styles([(name, name, 1) for name in names])
    assert len({(look.light, look.dash) for look in styles.values()}) == len(names)
    for group in GROUPS.values():
        assert len({styles[name].light for name in group}) == 1
    assert len({styles[name].light for name in ALGORITHMS}) == len(GROUPS)
    assert styles["fedcm"] == choose_row_styles([("fedcm", "fedcm", 1)])["fedcm"]


def test_main_rows_of_a_crowd_are_fedcm_fedavg_and_the_best() -> None:
    runs = make_crowd(20)
    (group,) = group_runs(runs)
    best = {run.algorithm for run in runs[-8:]}
    assert {row.algorithm for row in group.list_main_rows(group.cells[0].name)} == {"fedcm", "fedavg"} | best
    (small,) = group_runs(runs[:12])
    assert small.list_main_rows(small.cells[0].name) == list(small.rows)
