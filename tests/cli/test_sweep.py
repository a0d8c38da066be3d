"""Sweeps put the swept settings into the names of runs, reuse existing runs, and overwrite nothing."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from hypothesis import given
from hypothesis import strategies as st
from scenes import finish_session, load_summary, read_lines, run_and_stop_after, run_to_end, small_experiment

from fedcm.config.toml_values import write_value
from fedcm.errors import UserError
from fedcm.runs.folder import RunFolder
from fedcm.runs.identity import reject_unusable_name
from fedcm.runs.session import Session
from fedcm.sweeps.grid import GridRun, expand_grid
from fedcm.sweeps.run_names import make_run_name, make_setting_part, make_variant_part
from fedcm.sweeps.run_parallel import run_parallel
from fedcm.sweeps.tasks import SweepTask, make_tasks, shorten_names

Write = Callable[..., Path]
Fedcm = Callable[..., Any]


def finish(task: SweepTask) -> SweepTask:
    """Run a task in this process, as `fedcm run` would."""
    finish_session(Session.start(task.run.experiment, task.folder.path.parent, task.run.name))
    return task


def swept(
    path: Path, runs: Path, *over: str, settings: Sequence[str] = (), seeds: int | None = None
) -> list[SweepTask]:
    """Run the missing runs of a sweep, and return the tasks of all."""
    tasks = make_tasks(expand_grid(path, settings, over=over, seeds=seeds), runs)
    return [finish(task) if task.outcome == "missing" else task for task in tasks]


def folders(tasks: Sequence[SweepTask]) -> list[str]:
    return [task.folder.name for task in tasks]


def states(tasks: Sequence[SweepTask]) -> list[str]:
    return [task.outcome for task in tasks]


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != ".lock"}


@pytest.mark.slow
def test_a_sweep_over_another_setting_does_not_change_the_first_sweep(
    experiment: Write, fedcm: Fedcm, tmp_path: Path
) -> None:
    runs = tmp_path / "runs"
    words = ("sweep", experiment(rounds=1), "--runs-dir", runs)
    first = fedcm(*words, "--over", "algorithm.alpha=0.03,0.1")
    assert first.code == 0, first.err
    before = contents(runs)
    second = fedcm(*words, "--over", "client.lr=0.03,0.2")
    assert second.code == 0, second.err
    assert {path: path.read_bytes() for path in before} == before, "the report and the picture neither"
    assert {path.name for path in runs.iterdir() if (path / "summary.json").exists()} == {
        *("small-algorithm.alpha=0.03-fedcm-seed3", "small-algorithm.alpha=0.1-fedcm-seed3"),
        *("small-client.lr=0.03-fedcm-seed3", "small-client.lr=0.2-fedcm-seed3"),
    }
    for answer, setting, values in (
        (first, "algorithm.alpha", ("0.03", "0.1")),
        (second, "client.lr", ("0.03", "0.2")),
    ):
        _, heading, _, *rows = answer.out.splitlines()
        assert heading.split()[0] == setting
        assert tuple(row.split()[0] for row in rows[:2]) == values
        assert all(f"small-{setting}={value}-fedcm-seed3 finished" in answer.err for value in values)
        assert f"small-sweep-{setting}.png" in answer.out
        page = (runs / f"small-sweep-{setting}-report" / "index.html").read_text()
        assert all(f"FedCM ({setting} = {value})" in page for value in values)


def test_runs_with_the_same_values_are_reused(experiment: Write, tmp_path: Path) -> None:
    path, runs = experiment(rounds=1), tmp_path / "runs"
    swept(path, runs, "algorithm.alpha=0.03,0.1")
    again = make_tasks(expand_grid(path, over=["algorithm.alpha=0.1,3e-2,0.3"]), runs)
    assert states(again) == ["finished", "finished", "missing"]


def test_a_run_of_the_same_experiment_is_reused_under_any_name(experiment: Write, tmp_path: Path) -> None:
    path, runs = experiment(rounds=1), tmp_path / "runs"  # its own α and η_l are 0.1
    swept(path, runs, "algorithm.alpha=0.03,0.1")
    own = "small-algorithm.alpha=0.1-fedcm-seed3"
    by_rate = make_tasks(expand_grid(path, over=["client.lr=0.1,0.2"]), runs)
    assert folders(by_rate) == [own, "small-client.lr=0.2-fedcm-seed3"]
    assert states(by_rate) == ["finished", "missing"]
    assert own in by_rate[0].remark
    compared = make_tasks(expand_grid(path, algorithms=["fedavg", "fedcm"]), runs)
    assert folders(compared) == ["small-fedavg-seed3", own]
    assert states(compared) == ["missing", "finished"]


def test_a_sweep_reuses_the_runs_of_a_comparison_each_once(experiment: Write, tmp_path: Path) -> None:
    path, runs = experiment(rounds=1), tmp_path / "runs"
    for task in make_tasks(expand_grid(path, algorithms=["fedavg", "fedcm"]), runs):
        finish(task)
    tasks = make_tasks(expand_grid(path, over=["algorithm.alpha=0.1,0.2"]), runs)
    assert folders(tasks) == ["small-fedcm-seed3", "small-algorithm.alpha=0.2-fedcm-seed3"]
    run_to_end(path, runs, "named")  # a second one of the same experiment, and newer
    tasks = make_tasks(expand_grid(path, over=["algorithm.alpha=0.1,0.2"]), runs)
    assert folders(tasks) == ["named", "small-algorithm.alpha=0.2-fedcm-seed3"]


@pytest.mark.parametrize("change", ["--set", "edited", "longer"])
def test_a_run_with_other_settings_is_never_overwritten(experiment: Write, tmp_path: Path, change: str) -> None:
    runs, over = tmp_path / "runs", ["algorithm.alpha=0.03,0.1"]
    names = folders(swept(experiment(rounds=1), runs, *over))
    before = contents(runs)
    path, settings = {
        "--set": lambda: (experiment(rounds=1), ["client.lr=0.2"]),
        "edited": lambda: (experiment(rounds=1, split={"kind": "iid", "clients": 6}), []),
        "longer": lambda: (experiment(rounds=2), []),
    }[change]()
    others = swept(path, runs, *over, settings=settings)
    assert folders(others) == [f"{name}-2" for name in names]
    setting = {"--set": "client.lr", "edited": "split.kind", "longer": "rounds"}[change]
    assert all(setting in task.remark and task.folder.name in task.remark for task in others)
    assert {path: path.read_bytes() for path in before} == before
    again = make_tasks(expand_grid(path, settings, over=over), runs)
    assert (folders(again), states(again)) == (folders(others), ["finished"] * 2)
    third = make_tasks(expand_grid(path, ["client.lr=0.7"], over=over), runs)
    assert folders(third) == [f"{name}-3" for name in names]


def test_runs_with_other_seeds_are_not_reused(experiment: Write, tmp_path: Path) -> None:
    path, runs = experiment(rounds=1), tmp_path / "runs"
    swept(path, runs, "client.lr=0.05")
    tasks = make_tasks(expand_grid(path, over=["client.lr=0.05"], seeds=2), runs)
    assert list(zip(folders(tasks), states(tasks), strict=True)) == [
        ("small-client.lr=0.05-fedcm-seed3", "finished"),
        ("small-client.lr=0.05-fedcm-seed4", "missing"),
    ]


def test_folders_that_are_damaged_or_no_runs_are_kept(experiment: Write, tmp_path: Path) -> None:
    path, runs = experiment(rounds=1), tmp_path / "runs"
    notes, damaged = (runs / f"small-client.lr={rate}-fedcm-seed3" for rate in ("0.1", "0.2"))
    notes.mkdir(parents=True)
    (notes / "notes.txt").write_text("mine")
    damaged.mkdir()
    (damaged / "experiment.toml").write_text("name = ")
    before = contents(runs)
    tasks = swept(path, runs, "client.lr=0.1,0.2")
    assert folders(tasks) == [f"{notes.name}-2", f"{damaged.name}-2"]
    assert [word in task.remark for word, task in zip(("not a run", "be read"), tasks, strict=True)] == [True] * 2
    assert {path: path.read_bytes() for path in before} == before


def test_a_finished_run_is_preferred_to_a_damaged_one(experiment: Write, fedcm: Fedcm, tmp_path: Path) -> None:
    path, runs = experiment(rounds=4), tmp_path / "runs"
    words = ("sweep", path, "--over", "client.lr=0.1", "--runs-dir", runs)
    damaged = run_and_stop_after(2, path, runs, "small-client.lr=0.1-fedcm-seed3")
    (damaged / "metrics.jsonl").write_text("what\n" * 2)
    answer = fedcm(*words)
    assert answer.code == 2
    advice = f"start a new run with `fedcm run {damaged / 'experiment.toml'}`"
    assert advice in answer.err
    before = contents(damaged)
    assert fedcm("run", damaged / "experiment.toml", "--runs-dir", runs).code == 0  # as the error advised
    answer = fedcm(*words)
    assert answer.code == 0, answer.err
    assert "1 of 1 run is finished already" in answer.err
    assert contents(damaged) == before


def test_a_stopped_run_is_preferred_to_an_older_finished_one(experiment: Write, tmp_path: Path) -> None:
    path, runs = experiment(rounds=4), tmp_path / "runs"
    run_to_end(path, runs, "before")
    stopped = run_and_stop_after(2, path, runs, "small-client.lr=0.1-fedcm-seed3")  # as by --fresh and Ctrl-C
    (task,) = make_tasks(expand_grid(path, over=["client.lr=0.1"]), runs)
    assert (task.folder.path, task.outcome) == (stopped, "stopped")
    later = run_to_end(path, runs, "later")
    (task,) = make_tasks(expand_grid(path, over=["client.lr=0.1"]), runs)
    assert (task.folder.path, task.outcome) == (later, "finished")


def test_a_run_gets_another_name_if_another_process_takes_its_own(experiment: Write, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    (task,) = make_tasks(expand_grid(experiment(rounds=1), over=["client.lr=0.1"]), runs)
    other = run_to_end(experiment(rounds=1, client={"lr": 0.3}), runs, task.run.name)
    before = contents(other)
    messages: list[str] = []
    done = [one for one in run_parallel([task], None, jobs=1, workers=1, notify=messages.append) if one is not None]
    assert states(done) == ["finished"]
    assert task.folder.name == f"{other.name}-2"
    assert contents(other) == before
    assert "client.lr" in messages[0]
    assert read_lines(task.folder.path) != read_lines(other)


def test_model_options_that_differ_only_in_type_are_different_experiments(npz: Path, tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text(tomli_w.dumps(small_experiment(npz, model={"name": "linear", "width": 1})))
    one, other = expand_grid(tmp_path / "small.toml", over=["model.width=1,1.0"])
    assert one.name != other.name
    folder = RunFolder.create(tmp_path / "runs" / one.name, to_text(one), {})
    folder.unlock()
    assert states(make_tasks([one, other], tmp_path / "runs")) == ["stopped", "missing"]


def to_text(run: GridRun) -> str:
    from fedcm.config.experiment import to_toml

    return to_toml(run.experiment)


# names


numbers = st.integers(-99, 99) | st.floats(allow_nan=False, allow_infinity=False)
words = st.text("aB1-+=./ ,é\n", max_size=6)
values = numbers | st.booleans() | words | st.lists(numbers | words, max_size=3)
paths = st.sampled_from(["client.lr", "client.l_r", "model.a", "model.A", "model.a-b", "rounds", "model.a.b"])
settings = st.lists(st.tuples(paths, values), max_size=3, unique_by=lambda pair: pair[0])


def named(pairs: Sequence[tuple[str, Any]], experiment: str = "demo", algorithm: str = "fedcm") -> str:
    return make_run_name(experiment, [make_setting_part(path, value) for path, value in pairs], algorithm, 1)


@given(settings, settings)
def test_names_are_equal_exactly_if_settings_and_values_are(one: list[Any], other: list[Any]) -> None:
    def to_texts(pairs: list[Any]) -> list[tuple[str, str]]:
        return [(path, write_value(value)) for path, value in pairs]

    assert (named(one) == named(other)) == (to_texts(one) == to_texts(other))


@given(settings, st.text(st.characters(categories=["L"]), min_size=1, max_size=100))
def test_every_name_is_valid_for_a_folder_even_with_a_number(pairs: list[Any], experiment: str) -> None:
    reject_unusable_name(f"{named(pairs, experiment, 'a.very.long.module_name:WithAnEvenLongerClass' * 3)}-999")


@pytest.mark.parametrize(
    ("path", "value", "part"),
    [
        ("algorithm.alpha", 0.03, "algorithm.alpha=0.03"),
        ("client.lr", 1e-5, "client.lr=1e-05"),
        ("model.shift", -1, "model.shift=-1"),
        ("split.kind", "dirichlet-by-label", "split.kind=dirichlet-by-label"),
        ("algorithm.option", "II", "algorithm.option=II"),
        ("model.hidden", [64, 32], "model.hidden=64+32"),
        ("model.hidden", [128], "model.hidden=128+"),
        ("model.bias", True, "model.bias=true"),
    ],
)
def test_the_name_contains_the_setting_and_its_value(path: str, value: Any, part: str) -> None:
    assert make_setting_part(path, value) == part
    assert named([(path, value)]) == f"demo-{part}-fedcm-seed1"


def test_names_of_variants_do_not_change() -> None:
    assert make_run_name("Mini cifar", [make_variant_part("II"), make_variant_part("p=0.1 (low)")], "my:Own", 0) == (
        "mini-cifar-ii-p=0.1-low--my-own-seed0"
    )


# the settings and labels of a run


def test_a_list_is_one_value_of_a_setting(experiment: Write, tmp_path: Path) -> None:
    tasks = swept(
        experiment(rounds=1), tmp_path / "runs", "evaluation.targets=[0.5,0.6],[0.7]", "model.hidden=[6,5],[4]"
    )
    assert [task.run.experiment.model.options["hidden"] for task in tasks] == [[6, 5], [4]] * 2
    reached = [set(load_summary(task.folder.path)["rounds_to_accuracy"]) for task in tasks]
    assert reached == [{"0.5", "0.6"}, {"0.5", "0.6"}, {"0.7"}, {"0.7"}]
    parameters = [load_summary(task.folder.path)["parameters"] for task in tasks[:2]]
    assert parameters == [6 * 6 + 6 + 6 * 5 + 5 + 5 * 4 + 4, 6 * 4 + 4 + 4 * 4 + 4]
    assert tasks[0].run.experiment.cell.labels == {"evaluation.targets": "[0.5, 0.6]", "model.hidden": "[6, 5]"}


def test_labels_are_the_values_of_the_run_not_the_text_of_the_option(experiment: Write) -> None:
    runs = expand_grid(experiment(), over=["algorithm.alpha=1,5e-2", "seed=7"])
    assert [run.experiment.cell.labels for run in runs] == [
        {"algorithm.alpha": "1.0", "seed": "7"},
        {"algorithm.alpha": "0.05", "seed": "7"},
    ]
    assert runs[0].name == "small-algorithm.alpha=1.0-fedcm-seed7"


def test_short_names_contain_the_settings_that_differ(experiment: Write, tmp_path: Path) -> None:
    tasks = make_tasks(expand_grid(experiment(), over=["algorithm.alpha=0.05", "client.lr=0.1,0.2"], seeds=2), tmp_path)
    assert list(shorten_names(tasks).values())[:2] == [
        "algorithm.alpha=0.05 client.lr=0.1 fedcm seed 3",
        "algorithm.alpha=0.05 client.lr=0.2 fedcm seed 3",
    ]


AXES = {"wards": {"few": {"split": {"clients": 6}}, "many": {"split": {"clients": 12}}}}


def test_a_grid_with_published_figures_can_be_swept(npz: Path, tmp_path: Path) -> None:
    grid = {"axes": AXES, "published": {"few": {"fedcm": 81.0}, "many": {"fedcm": 87.0}}}
    (tmp_path / "g.toml").write_text(tomli_w.dumps(small_experiment(npz) | {"grid": grid}))
    runs = expand_grid(tmp_path / "g.toml", over=["client.lr=0.1,0.2"])
    assert runs[0].name == "small-few-client.lr=0.1-fedcm-seed3"
    assert runs[0].experiment.cell.labels == {"wards": "few", "client.lr": "0.1"}
    assert {run.experiment.cell.published for run in runs} == {None}, "they are of the file's own settings"


@pytest.mark.parametrize(
    ("over", "settings", "message"),
    [
        (["client.lr=0.1", "client.lr=0.2"], [], "'client.lr' is given twice"),
        (["client.lr=0.1,0.2"], ["client.lr=0.3"], "an override or an exception fixes the setting"),
        (["algorithm.alpha=1,1.0"], [], "two values are equal"),
        (["algorithm.name=fedavg,fedcm"], [], "list the algorithms to compare in `algorithms`"),
        (["model={hidden=[3]},{hidden=[4]}"], [], "such as client.lr"),
        (["for.fedcm.client.lr=0.1,0.2"], [], "no 'for.fedcm.client.lr'"),
        (["client.epochs=1,2"], ["client.steps=3"], "no 'client.epochs'"),
        (["split.clients=4,5"], [], "are the same experiment"),
        (["client.lr=fast,0.1"], [], "client.lr must be a valid number, got 'fast'"),
        (["client.lrr=1,2"], [], "'lr'"),
    ],
)
def test_bad_sweeps_raise_one_sentence(
    npz: Path, tmp_path: Path, over: list[str], settings: list[str], message: str
) -> None:
    (tmp_path / "g.toml").write_text(tomli_w.dumps(small_experiment(npz) | {"grid": {"axes": AXES}}))
    with pytest.raises(UserError) as error:
        expand_grid(tmp_path / "g.toml", settings, over=over)
    assert message in str(error.value)
    assert "\n" not in str(error.value)
