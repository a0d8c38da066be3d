"""Single parts of the results page, from digests with made accuracies."""

import statistics
from pathlib import Path

import pytest
import results_tables
from results_page.cells import CPU_MARK, PAIR_MARK, PAIR_NOTE, explain_marks
from results_page.equal_rounds import write_window
from results_page.figure_data import list_figures
from results_page.local_work import write_equal_examples, write_local_work
from results_page.losses import write_losses
from results_page.round_tables import list_best_alphas
from results_page.search_table import describe_variant
from results_page.setting_tables import write_decay_table
from results_page.studies import ROOT, STUDIES
from results_page.study_runs import read_results
from results_page.target_costs import write_target_costs
from results_page.tuned import write_tuned_part
from study_digests import make_diverged, make_planned_digest, write_study

from fedcm.algorithms.registry import get_algorithm_name
from fedcm.reports.digest import Digest, write_digest
from fedcm.sweeps.grid import GridRun, expand_grid
from fedcm.tuning.objective import ValidationMetric
from fedcm.tuning.trials import TrialLog, TuningTrial

# 97.5 % quantile of Student's t with two degrees of freedom, from a printed table
STUDENT_2 = 4.303


def get_setting(run: GridRun) -> str:
    return run.experiment.cell.labels["setting"]


def is_fedcm(run: GridRun) -> bool:
    return get_algorithm_name(run.experiment.algorithm) == "fedcm"


def test_a_row_of_fashion_mnist_has_its_difference_from_fedavg(tmp_path: Path) -> None:
    write_study(tmp_path, "fashion", lambda run: make_planned_digest(run, 0.8 if "lr-0.1-fedavg" in run.name else 0.75))
    rows = results_tables.PAGES["results.md"]["fashion"](read_results(tmp_path)).splitlines()
    assert "| FedAvg | η_l 0.1 | **80.00 ± 0.00**, n = 3 | – | – |" in rows
    assert "| FedCM | α 0.1, η_l 0.1 | 75.00 ± 0.00, n = 3 | −5.00 | −5.00 to −5.00 |" in rows
    assert "| FedCM | α 0.065, η_l 0.3: the advice | 75.00 ± 0.00, n = 3 | −5.00 | −5.00 to −5.00 |" in rows
    assert "All runs used an AMD EPYC." in rows


def test_a_pair_on_two_kinds_of_cpu_is_marked_on_fashion_mnist(tmp_path: Path) -> None:
    def make(run: GridRun) -> Digest:
        return make_planned_digest(run, 0.75).model_copy(update={"cpu": {}} if "alpha-0.3" in run.name else {})

    write_study(tmp_path, "fashion", make)
    rows = results_tables.PAGES["results.md"]["fashion"](read_results(tmp_path)).splitlines()
    assert f"| FedCM | α 0.3, η_l 0.1 | **75.00 ± 0.00**, n = 3 | +0.00 | 0.00 to 0.00 {PAIR_MARK} |" in rows
    assert "| FedCM | α 0.1, η_l 0.1 | **75.00 ± 0.00**, n = 3 † | +0.00 | 0.00 to 0.00 |" in rows


def test_a_pair_on_two_kinds_of_cpu_is_marked_in_the_study_of_precision(tmp_path: Path) -> None:
    def make(run: GridRun) -> Digest:
        precision = run.experiment.cell.labels["precision"]
        return make_planned_digest(run, 0.5).model_copy(update={"cpu": {}} if precision == "float32" else {})

    write_study(tmp_path, "precision", make)
    text = results_tables.PAGES["results.md"]["precision"](read_results(tmp_path))
    assert f"| lenet | FedCM | +0.00 | 0.00 to 0.00 | paired over 3 seeds {PAIR_MARK} |" in text
    assert PAIR_NOTE in text


def test_a_run_that_diverged_before_its_first_evaluation_has_no_curve(tmp_path: Path) -> None:
    def make(run: GridRun) -> Digest:
        digest = make_planned_digest(run, 0.75)
        return make_diverged(digest, evaluations=0) if "lr-0.3-fedavg" in run.name else digest

    write_study(tmp_path, "fashion", make)
    list_figures(read_results(tmp_path))["fashion"].draw(tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 0


def test_settings_are_compared_over_rounds_that_both_have(tmp_path: Path) -> None:
    """The made accuracies grow by equal steps, so the mean over rounds 110, …, 200 is that after 155 rounds."""
    runs = write_study(
        tmp_path, "table2", lambda run: make_planned_digest(run, 0.3 if get_setting(run) == "I" else 0.25)
    )
    rows = write_window(runs).splitlines()
    first, second = 30 * 155 / 200, 25 * 155 / 500
    means = f"{first:.2f} | {second:.2f} | −{first - second:.2f}"
    assert f"| iid | FedCM | {means} | 3 and 3 | – | – |" in rows
    assert f"| iid | FedAvg | {means} | 3 and 3 | +0.00 | 0.00 to 0.00 |" in rows


def test_the_interval_of_a_fall_is_that_of_its_differences_by_seed(tmp_path: Path) -> None:
    """FedCM falls by more than FedAvg by 1, 2 and 6 points at the last round of seeds 0, 1 and 2."""
    more = {0: 0.01, 1: 0.02, 2: 0.06}

    def make(run: GridRun) -> Digest:
        lost = more[run.experiment.seed] if is_fedcm(run) and get_setting(run) == "II" else 0.0
        return make_planned_digest(run, 0.3 - lost)

    rows = write_window(write_study(tmp_path, "table2", make)).splitlines()
    extra = [100 * lost * 155 / 500 for lost in more.values()]  # after 155 of 500 rounds
    mean, reach = statistics.fmean(extra), STUDENT_2 * statistics.stdev(extra) / 3**0.5
    row = next(row for row in rows if row.startswith("| dirichlet | FedAvg |"))
    *_, points, interval, _ = [cell.strip() for cell in row.split("|")]
    low, high = (float(end) for end in interval.replace("−", "-").split(" to "))
    assert float(points) == pytest.approx(mean, abs=0.006)
    assert low == pytest.approx(mean - reach, abs=0.006)
    assert high == pytest.approx(mean + reach, abs=0.006)


def test_without_runs_of_fedcm_there_is_nothing_to_compare_a_fall_with(tmp_path: Path) -> None:
    runs = write_study(tmp_path, "table2", lambda run: None if is_fedcm(run) else make_planned_digest(run, 0.3))
    rows = [row for row in write_window(runs).splitlines() if row.startswith("| iid |")]
    assert len(rows) == 4
    assert all(row.endswith("| 3 and 3 | – | – |") for row in rows)


def test_a_diverged_run_has_no_fall(tmp_path: Path) -> None:
    def make(run: GridRun) -> Digest:
        digest = make_planned_digest(run, 0.3)
        return make_diverged(digest, evaluations=7) if "ii-iid-scaffold-seed1" in run.name else digest

    runs = write_study(tmp_path, "table2", make)
    row = next(row for row in write_window(runs).splitlines() if row.startswith("| iid | SCAFFOLD |"))
    assert row.endswith("| diverged | – | 3 and 3 | – | – |")
    work = next(row for row in write_equal_examples(runs).splitlines() if row.startswith("| SCAFFOLD |"))
    assert work.endswith("| diverged | 30.00, n = 3 |")


def test_local_work_is_counted_from_the_settings(tmp_path: Path) -> None:
    """CIFAR-100 in setting II: 100 examples per client; FedCM 5 epochs of 50, FedAvg 2 epochs of 20."""
    runs = write_study(tmp_path, "table2", lambda run: make_planned_digest(run, 0.3))
    rows = write_local_work(runs).splitlines()
    assert "| FedCM | 20 × 50; 10,000 | 10 × 50; 5,000 |" in rows
    assert "| FedAvg | 50 × 20; 10,000 | 10 × 20; 2,000 |" in rows


def test_accuracies_after_equal_work_are_those_of_different_rounds(tmp_path: Path) -> None:
    """500 rounds of 2,000 gradients are 200 rounds of 5,000; made accuracies grow by equal steps in 500 rounds."""
    runs = write_study(tmp_path, "table2", lambda run: make_planned_digest(run, 0.3 if is_fedcm(run) else 0.2))
    rows = write_equal_examples(runs).splitlines()
    assert "| FedCM | 200 | 1,000,000 | 12.00, n = 3 | 12.00, n = 3 |" in rows
    assert "| SCAFFOLD | 500 | 1,000,000 | 20.00, n = 3 | 20.00, n = 3 |" in rows


def test_equal_local_work_needs_no_table(tmp_path: Path) -> None:
    assert write_equal_examples(write_study(tmp_path, "table1", lambda run: make_planned_digest(run, 0.3))) == ""


def test_the_place_of_decay_is_compared_on_one_kind_of_cpu(tmp_path: Path) -> None:
    """Made runs of the step and of Table 3 have the same CPU, those of the loss another one."""

    def make(run: GridRun) -> Digest:
        place = run.experiment.cell.labels.get("decay")
        digest = make_planned_digest(run, {"loss": 0.7, "step": 0.5}.get(place or "", 0.6))
        return digest if place == "loss" else digest.model_copy(update={"cpu": {}})

    write_study(tmp_path, "table3", make)
    write_study(tmp_path, "weight-decay", make)
    rows = write_decay_table(read_results(tmp_path)).splitlines()
    assert rows[2].endswith("| +10.00 points (one seed) |")
    assert PAIR_MARK not in "".join(rows)


def test_the_place_of_decay_is_compared_with_the_runs_of_the_same_study_first(tmp_path: Path) -> None:
    def make(run: GridRun) -> Digest:
        place = run.experiment.cell.labels.get("decay")
        return make_planned_digest(run, {"loss": 0.7, "step": 0.5}.get(place or "", 0.6))

    for study in ("table3", "weight-decay"):
        write_study(tmp_path, study, make)
    assert write_decay_table(read_results(tmp_path)).splitlines()[2].endswith("| +20.00 points (one seed) |")


def test_a_decay_that_can_only_be_compared_across_cpus_is_marked(tmp_path: Path) -> None:
    def make(run: GridRun) -> Digest:
        digest = make_planned_digest(run, 0.5)
        return digest.model_copy(update={"cpu": {}}) if run.experiment.cell.labels["decay"] == "step" else digest

    write_study(tmp_path, "weight-decay", make)
    text = write_decay_table(read_results(tmp_path))
    assert text.splitlines()[2].endswith(f"| +0.00 points (one seed) {PAIR_MARK} |")
    assert text.endswith("so they are not paired exactly.")


@pytest.mark.parametrize("is_table_on_epyc", [True, False])
def test_the_marks_of_clipping_are_those_of_all_shown_runs(is_table_on_epyc: bool, tmp_path: Path) -> None:
    """The two runs in the sentence below the table have another CPU than the runs of the table."""

    def make(run: GridRun) -> Digest:
        is_in_sentence = run.experiment.cell.labels.get("change") == "alpha 0.1, clip 10" or "alpha-0.1" in run.name
        is_on_epyc = is_table_on_epyc != is_in_sentence
        return make_planned_digest(run, 0.5).model_copy(update={} if is_on_epyc else {"cpu": {}})

    for study in ("table1", "table3", "one-setting"):
        write_study(tmp_path, study, make)
    text = results_tables.PAGES["in-practice.md"]["clipping"](read_results(tmp_path))
    assert text.endswith("† On an AMD EPYC; all other runs on an Intel Xeon.")
    value = "50.00, n = 1" if is_table_on_epyc else "50.00, n = 1 †"
    assert f"FedCM with α = 0.1 has {value} without clipping and {value} with it." in text


def test_a_method_that_is_ahead_of_fedcm_is_said_to_be(tmp_path: Path) -> None:
    write_study(tmp_path, "table1", lambda run: make_planned_digest(run, 0.5 if is_fedcm(run) else 0.6))
    write_study(tmp_path, "one-setting", lambda run: make_planned_digest(run, 0.5 if is_fedcm(run) else 0.55))
    text = results_tables.PAGES["results.md"]["one-setting"](read_results(tmp_path))
    assert "FedCM (50.00) is 10.00 points behind FedAvg, 10.00 points behind FedAdam," in text


def test_a_run_that_diverged_has_no_accuracy_in_the_table_of_equal_runs(tmp_path: Path) -> None:
    """The run of one CPU is also recorded for the other one, in the study of weight decay."""

    def make(run: GridRun) -> Digest | None:
        if run.experiment.cell.labels.get("decay") == "step":
            return None
        digest = make_diverged(make_planned_digest(run, 0.5), evaluations=3)
        return digest.model_copy(update={"cpu": {}}) if run.name.startswith("mini-decay") else digest

    for study in ("table3", "weight-decay"):
        write_study(tmp_path, study, make)
    rows = results_tables.PAGES["results.md"]["equal-runs"](read_results(tmp_path)).splitlines()[2:]
    assert len(rows) == 4
    assert all("| diverged | diverged | diverged |" in row for row in rows)


def test_a_seed_that_was_not_planned_does_not_stand_for_a_missing_run(tmp_path: Path) -> None:
    """Of the six runs of Table 3, one is missing; another one has two seeds."""
    missing, twice, *_ = expand_grid(next(study for study in STUDIES if study.name == "table3").path)
    write_study(tmp_path, "table3", lambda run: None if run.name == missing.name else make_planned_digest(run, 0.5))
    more = make_planned_digest(twice, 0.5)
    write_digest(
        more.model_copy(update={"experiment": more.experiment | {"seed": 7}}), tmp_path / "table3" / "seed7.json"
    )
    assert "| 5 of 6 |" in results_tables.PAGES["results.md"]["studies"](read_results(tmp_path))


def test_a_run_that_another_study_has_fills_a_cell(tmp_path: Path) -> None:
    """The digest of a run that a grid found finished in the folder of another one records this grid's cell."""
    planned = expand_grid(next(study for study in STUDIES if study.name == "precision").path)
    reused = next(run for run in planned if "resnet8" in run.name and "float32" in run.name)
    cell = reused.experiment.cell

    def make(run: GridRun) -> Digest | None:
        return make_planned_digest(run, 0.5).model_copy(update={"other_cells": [cell]}) if is_fedcm(run) else None

    write_study(tmp_path, "resnet8", make)
    runs = read_results(tmp_path)["precision"]
    assert runs.has_runs
    assert [run.labels for run in runs.list_runs()] == [cell.labels]


def test_the_start_is_compared_over_common_seeds(tmp_path: Path) -> None:
    """FedCM has three seeds and FedAvg one. FedCM of seed 0 is ahead at every evaluation."""

    def make(run: GridRun) -> Digest | None:
        if is_fedcm(run):
            return make_planned_digest(run, 0.4 if run.experiment.seed else 0.6)
        return make_planned_digest(run, 0.3) if run.name.endswith("fedavg-seed0") else None

    write_study(tmp_path, "table1", make)
    text = results_tables.PAGES["in-practice.md"]["start"](read_results(tmp_path))
    row = next(line for line in text.splitlines() if "II · dirichlet" in line)
    first = 100 * 10 / 500  # of the last accuracy in %, after ten rounds
    assert f"| {0.6 * first:.2f} / {0.3 * first:.2f} |" in row
    assert row.endswith("| 10 | 1 |")


def test_a_variant_with_a_scale_is_described_with_it() -> None:
    algorithm = {"alpha": 0.05, "adapt": False, "scale": 0.1, "power": 0.5, "average": 0.0}
    experiment = {"algorithm": algorithm, "client": {"lr": 0.1, "lr_decay": 0.998}}
    assert describe_variant(experiment) == "max(0.05, 0.1·(t+1)^−0.5)"
    assert describe_variant(experiment | {"algorithm": algorithm | {"scale": 1.0}}) == "max(0.05, (t+1)^−0.5)"


def test_local_work_says_which_setting_was_not_run(tmp_path: Path) -> None:
    runs = write_study(
        tmp_path, "table2", lambda run: make_planned_digest(run, 0.3) if get_setting(run) == "II" else None
    )
    assert "| FedCM | not run | 10 × 50; 5,000 |" in write_local_work(runs).splitlines()


def test_target_costs_count_the_seeds_that_reached_the_accuracy(tmp_path: Path) -> None:
    """Accuracies grow to 0.30 (seed 0) or 0.20 in 200 rounds, 3000 bytes per round; evaluated every 10 rounds."""

    def make(run: GridRun) -> Digest:
        return make_planned_digest(run, 0.3 if run.experiment.seed == 0 else 0.2)

    rows = write_target_costs(write_study(tmp_path, "table2", make), (0.15, 0.25, 0.35)).splitlines()
    row = next(row for row in rows if row.startswith("| I · iid | FedCM |"))
    cells = [cell.strip() for cell in row.split("|")[3:-1]]
    assert cells[0].startswith("133, ")  # rounds 100, 150 and 150
    assert cells[1].startswith("170, ")  # 0.25 of 0.30 is five sixths of 200 rounds
    assert cells[1].endswith("(1 of 3)")
    assert cells[2] == "–"


def test_the_best_alpha_is_shown_with_those_that_may_be_as_good(tmp_path: Path) -> None:
    """Accuracies grow to the given ones in 500 rounds; the mean of the last fifth is that of round 455."""
    final = {"0.01": 0.50, "0.03": 0.58, "0.05": 0.60, "0.1": 0.595, "0.3": 0.55, "1.0": 0.50}
    runs = write_study(
        tmp_path, "table3", lambda run: make_planned_digest(run, final[run.experiment.cell.labels["alpha"]])
    )
    best = next(one for one in list_best_alphas(runs, deviation=1.0) if one.rounds == 500)
    assert (best.alpha, best.close) == ("0.05", ("0.1",))
    assert best.accuracy == pytest.approx(60 * 455 / 500)
    wider = next(one for one in list_best_alphas(runs, deviation=2.0) if one.rounds == 500)
    assert wider.close == ("0.03", "0.1")


def test_the_first_try_is_compared_with_the_same_runs_of_fedcm(tmp_path: Path) -> None:
    def make(run: GridRun) -> Digest | None:
        seed, labels = run.experiment.seed, run.experiment.cell.labels
        final = 0.30 + 0.01 * seed if is_fedcm(run) else 0.32 + 0.01 * seed
        return make_planned_digest(run, final) if labels["data"] == "cifar100" else None

    write_study(tmp_path, "momentum", make)
    write_study(tmp_path, "momentum-first", make)
    text = results_tables.PAGES["results.md"]["momentum"](read_results(tmp_path))
    deviation = statistics.stdev(range(5))
    assert f"`fedcm-anytime` 34.00 ± {deviation:.2f}, n = 5, which is +2.00 points from FedCM" in text
    assert f"Cohen's d {2 / deviation:.2f})" in text


def test_marks_of_the_cpu_are_explained_where_there_are_two_kinds(tmp_path: Path) -> None:
    runs = write_study(tmp_path, "table3", lambda run: make_planned_digest(run, 0.5))
    epyc = list(runs.digests)
    xeon = [run.model_copy(update={"cpu": {}}) for run in epyc]
    text = f"| 1.0 {CPU_MARK} |"
    assert explain_marks(text, epyc) == "| 1.0 |\n\nAll runs used an AMD EPYC."
    assert explain_marks("| 1.0 |", xeon) == "| 1.0 |"
    assert explain_marks(text, [epyc[0], xeon[0]]).startswith(f"{text}\n\n{CPU_MARK} On an AMD EPYC; all other runs")


def test_methods_with_equal_budgets_are_compared_by_their_further_seeds(tmp_path: Path) -> None:
    """Two trials each, the first of FedAvg diverged; FedCM's winner has 62, 63 and 64 %, FedAvg's 50, 51 and 55 %."""
    log = TrialLog(tmp_path / "trials.jsonl")
    metric = ValidationMetric("validation_accuracy", higher_is_better=True, is_share=True)
    for name, number, score in (("fedcm", 0, 0.55), ("fedcm", 1, 0.61), ("fedavg", 0, None), ("fedavg", 1, 0.49)):
        trial = TuningTrial(name, number, {"client.lr": 0.1 + number, "rounds": 200}, f"trial-{number}-{name}")
        log.begin(trial)
        trial.state, trial.score, trial.metric = "diverged" if score is None else "finished", score, metric
        log.end(trial)
    made = next(iter(expand_grid(ROOT / "experiments" / "mini" / "fashion.toml")))
    for name, finals in (("fedcm", (0.62, 0.63, 0.64)), ("fedavg", (0.50, 0.51, 0.55))):
        for seed, final in enumerate(finals, start=1):
            digest = make_planned_digest(made, final)
            client = digest.experiment["client"] | {"lr": 1.1}
            settings = digest.experiment | {"algorithm": {"name": name}, "seed": seed, "client": client}
            write_digest(digest.model_copy(update={"experiment": settings}), tmp_path / f"best-{name}-seed{seed}.json")
    write_digest(make_planned_digest(made, 0.99), tmp_path / "trial-1-fedcm.json")  # a trial is no further seed
    lines = write_tuned_part(tmp_path).splitlines()
    rows = [line for line in lines if line.startswith("| Fed")]
    assert rows[0].startswith(
        "| FedCM | client.lr = 1.1, rounds = 200 | 61.00 | **63.00 ± 1.00**, n = 3 | 2 | – | – | – |"
    )
    assert rows[1].startswith("| FedAvg | client.lr = 1.1, rounds = 200 | 49.00 | 52.00 ± 2.65, n = 3 | 2 | +11.00 |")
    reach = STUDENT_2 * statistics.stdev([12, 12, 9]) / 3**0.5
    assert f"| {11 - reach:.2f} to {11 + reach:.2f} | paired over 3 seeds |" in rows[1]
    assert lines[-1].startswith("Of 4 trials, 0 were stopped early because they were behind, and 1 diverged.")
    write_digest(make_planned_digest(made, 0.99), tmp_path / "best-fedcm-seed9.json")  # with another client.lr
    with pytest.raises(ValueError, match="settings of the best trial"):
        write_tuned_part(tmp_path)


def test_a_tuning_that_was_not_run_has_its_command(tmp_path: Path) -> None:
    assert write_tuned_part(tmp_path).startswith(
        "Not run yet: `fedcm tune experiments/mini/tuned.toml --algorithms fedcm,"
    )


def test_losses_at_the_end_are_means_over_seeds(tmp_path: Path) -> None:
    """Seeds 0 to 2 end with training losses of 0, 1 and 2, and with test losses of 3, 4 and 5."""

    def make(run: GridRun) -> Digest | None:
        digest = make_planned_digest(run, 0.3)
        count = len(digest.curve.round)
        losses = {
            name: [9.0] * (count - 1) + [start + run.experiment.seed]
            for name, start in (("train_loss", 0.0), ("test_loss", 3.0))
        }
        digest = digest.model_copy(update={"curve": digest.curve.model_copy(update=losses)})
        if "scaffold" in run.name:
            return make_diverged(digest, evaluations=7)
        return digest if get_setting(run) == "II" else None

    rows = write_losses(write_study(tmp_path, "table2", make)).splitlines()
    both = "1.00 / 4.00, n = 3"
    assert f"| FedCM | not run | not run | {both} | {both} |" in rows
    assert "| SCAFFOLD | diverged | diverged | diverged | diverged |" in rows
