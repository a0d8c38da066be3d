"""Runs, sweeps and reports from Python: the same folders and the same bits as from the command line."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from scenes import read_lines, run_to_end
from test_state import SETTINGS, equal, make_clients, make_model

import fedcm
from fedcm.config.sections import CheckpointSection


def make_experiment(rounds: int = 6, **changes: Any) -> fedcm.PythonExperiment:
    return fedcm.make_experiment(
        make_model(), make_clients(), fedcm.Scaffold(), rounds=rounds, name="mine", test=make_clients(1)[0], **SETTINGS
    ).model_copy(update=changes)


def test_a_file_runs_as_on_the_command_line(experiment: Any, tmp_path: Path) -> None:
    path = experiment()
    run = fedcm.run(path, runs_dir=tmp_path / "runs", workers=2)
    assert run.outcome == "finished"
    assert read_lines(run.path) == read_lines(run_to_end(path, tmp_path / "other"))
    assert len(run.metrics) == run.experiment.rounds == 12
    assert run.metrics["round"] == list(range(12))
    assert run.metrics[-1]["test_accuracy"] == run.summary["accuracy"]["last"]
    with pytest.raises(fedcm.UserError, match="did you mean 'test_accuracy'"):
        run.metrics["test_acuracy"]


def test_overrides_are_a_dict_or_a_list(experiment: Any, tmp_path: Path) -> None:
    path = experiment()
    loaded = fedcm.load_experiment(path, {"rounds": 3, "client.lr": 0.05, "model.hidden": [4, 2]})
    assert (loaded.rounds, loaded.client.lr, loaded.model.options["hidden"]) == (3, 0.05, [4, 2])
    assert fedcm.load_experiment(path, ["rounds=3", "client.lr=0.05", "model.hidden=[4, 2]"]) == loaded
    with pytest.raises(fedcm.UserError, match="a dict or a list"):
        fedcm.load_experiment(path, "rounds=3")
    with pytest.raises(fedcm.UserError, match="no setting 'round'"):
        fedcm.load_experiment(path, {"round": 3})
    with pytest.raises(fedcm.UserError, match="overrides apply to a file"):
        fedcm.run(loaded, overrides={"rounds": 2}, runs_dir=tmp_path)


def test_a_bundled_experiment_is_found_by_name() -> None:
    assert fedcm.load_experiment("demo").data.source == "digits"
    with pytest.raises(fedcm.UserError, match="did you mean 'demo'"):
        fedcm.load_experiment("demos")


@pytest.mark.parametrize("workers", [1, 2])
def test_python_objects_run_stop_and_resume(workers: int, tmp_path: Path) -> None:
    experiment = make_experiment()
    whole = fedcm.run(experiment, name="whole", runs_dir=tmp_path)
    seen: list[int] = []

    def stop_after_three(metrics: fedcm.RoundMetrics) -> bool:
        seen.append(metrics.round)
        return metrics.round == 2

    run = fedcm.run(experiment, name="half", runs_dir=tmp_path, workers=workers, callbacks=[stop_after_three])
    assert (run.outcome, len(run.metrics), seen) == ("stopped", 3, [0, 1, 2])
    run = fedcm.resume(run, workers=workers)
    assert run.outcome == "finished"
    assert run.summary["params_sha256"] == whole.summary["params_sha256"]
    assert read_lines(run.path) == read_lines(whole.path)
    assert equal(run.model(), whole.model())


def test_more_rounds_make_a_run_longer(tmp_path: Path) -> None:
    experiment = make_experiment(rounds=4)
    longer = fedcm.resume(fedcm.run(experiment, runs_dir=tmp_path), rounds=7)
    whole = fedcm.run(make_experiment(rounds=7), name="whole", runs_dir=tmp_path)
    assert longer.summary["params_sha256"] == whole.summary["params_sha256"]
    assert longer.experiment.rounds == 7
    assert "rounds = 7" in (longer.path / "experiment.toml").read_text()


def test_another_program_needs_the_objects_again(tmp_path: Path) -> None:
    run = fedcm.run(make_experiment(rounds=4), runs_dir=tmp_path)
    opened = fedcm.Run(run.path)
    with pytest.raises(fedcm.UserError, match="Python object of the program"):
        opened.model()
    module = torch.nn.Linear(3, 2)
    assert equal(opened.model(module), run.model())
    with pytest.raises(fedcm.UserError, match="Python object of the program"):
        fedcm.resume(opened, rounds=6)
    resumed = fedcm.resume(opened, rounds=6, experiment=make_experiment(rounds=4))
    assert (
        resumed.summary["params_sha256"]
        == (fedcm.run(make_experiment(rounds=6), name="whole", runs_dir=tmp_path).summary["params_sha256"])
    )


def test_another_experiment_cannot_resume_a_run(tmp_path: Path) -> None:
    run = fedcm.run(make_experiment(rounds=2), runs_dir=tmp_path)
    other = make_experiment(rounds=4, client=make_experiment().client.model_copy(update={"lr": 0.3}))
    with pytest.raises(
        fedcm.UserError,
        match=r"^client.lr must not change after the run began; a resume may only change rounds",
    ):
        fedcm.resume(run.path, rounds=4, experiment=other)


def test_the_trained_model_of_a_file_is_built_from_its_name(experiment: Any, tmp_path: Path) -> None:
    run = fedcm.run(experiment(rounds=3), runs_dir=tmp_path)
    model = fedcm.Run(run.path).model()
    assert next(tuple(p.shape) for p in model.parameters()) == (8, 6)
    stopped = fedcm.run(experiment(), name="stopped", runs_dir=tmp_path, callbacks=[lambda metrics: True])
    with pytest.raises(fedcm.UserError, match="has no model yet, because it is stopped"):
        stopped.model()


def test_fresh_archives_the_existing_run(experiment: Any, tmp_path: Path) -> None:
    first = fedcm.run(experiment(rounds=2), runs_dir=tmp_path)
    before = (first.path / "metrics.jsonl").read_bytes()
    second = fedcm.run(experiment(rounds=3), runs_dir=tmp_path, fresh=True)
    assert second.path == first.path
    (archived,) = tmp_path.glob("archive/*/*/metrics.jsonl")
    assert archived.read_bytes() == before


@pytest.mark.slow
def test_a_sweep_has_a_run_for_each_value(experiment: Any, tmp_path: Path) -> None:
    path = experiment(rounds=2)
    runs = fedcm.sweep(path, {"client.lr": [0.1, 0.2]}, algorithms=["fedavg", "fedcm"], runs_dir=tmp_path, jobs=2)
    assert [(run.experiment.client.lr, type(run.experiment.algorithm).__name__) for run in runs] == [
        *((0.1, "FedAvg"), (0.1, "FedCM")),
        *((0.2, "FedAvg"), (0.2, "FedCM")),
    ]
    dates = {run.name: (run.path / "summary.json").stat().st_mtime_ns for run in runs}
    again = fedcm.sweep(fedcm.load_experiment(path), {"client.lr": [0.1, 0.2]}, runs_dir=tmp_path)
    assert {run.name for run in again} <= set(dates)
    assert all((run.path / "summary.json").stat().st_mtime_ns == dates[run.name] for run in again)
    with pytest.raises(fedcm.UserError, match="must be a list of values"):
        fedcm.sweep(path, {"client.lr": 0.1}, runs_dir=tmp_path)  # pyright: ignore[reportArgumentType]
    with pytest.raises(fedcm.UserError, match="cannot share Python objects"):
        fedcm.sweep(make_experiment(), {"client.lr": [0.1]}, runs_dir=tmp_path)


def test_a_report_is_written_about_runs_and_folders(experiment: Any, tmp_path: Path) -> None:
    run = fedcm.run(experiment(rounds=2), runs_dir=tmp_path / "runs")
    for number, runs in enumerate((run, [str(tmp_path / "runs")])):
        page = fedcm.report(runs, tmp_path / f"report-{number}")
        assert run.name in page.read_text()


def test_a_python_run_can_be_reported_and_listed(fedcm_command: Any, tmp_path: Path) -> None:
    run = fedcm.run(make_experiment(rounds=2), runs_dir=tmp_path)
    assert fedcm.report(run, tmp_path / "report").is_file()
    listed = json.loads(fedcm_command("runs", "--runs-dir", tmp_path, "--json").out)
    assert [(one["name"], one["state"], one["done"]) for one in listed] == [(run.name, "finished", 2)]


@pytest.fixture
def fedcm_command(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue("fedcm")


def test_a_module_must_have_exactly_the_parameters_of_the_run(tmp_path: Path) -> None:
    run = fedcm.run(make_experiment(rounds=2), runs_dir=tmp_path)
    larger = torch.nn.Linear(3, 2)
    larger.extra = torch.nn.Linear(1, 1)
    for module in (torch.nn.Module(), larger, torch.nn.Linear(4, 2)):
        with pytest.raises(fedcm.UserError, match="does not have the parameters of the run's model"):
            run.model(module)


def test_a_longer_run_that_was_stopped_has_no_old_model(tmp_path: Path) -> None:
    run = fedcm.run(make_experiment(rounds=2), runs_dir=tmp_path)
    stopped = fedcm.resume(run, rounds=9, callbacks=[lambda metrics: metrics.round == 4])
    assert (stopped.outcome, len(stopped.metrics)) == ("stopped", 5)
    with pytest.raises(fedcm.UserError, match="no model yet"):
        stopped.model()


def test_an_archive_is_used_only_by_a_fresh_run(tmp_path: Path) -> None:
    fedcm.run(make_experiment(rounds=1), name="one", runs_dir=tmp_path)
    with pytest.raises(fedcm.UserError, match="exists already"):
        fedcm.run(make_experiment(rounds=1), name="one", runs_dir=tmp_path, archive=tmp_path / "old")
    assert not (tmp_path / "old").exists()


def test_an_unknown_tracker_ends_a_sweep_before_its_first_run(experiment: Any, tmp_path: Path) -> None:
    with pytest.raises(fedcm.UserError, match="did you mean 'tensorboard'"):
        fedcm.sweep(experiment(rounds=1), {"client.lr": [0.1]}, runs_dir=tmp_path / "runs", track=["tensorbord"])
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"workers": 0}, "workers must be a whole number, at least 1, got 0"),
        ({"diagnose_every": 0}, "diagnose_every must be a whole number, at least 1, got 0"),
        ({"callbacks": [3]}, "callbacks must be a list of functions"),
        ({"callbacks": print}, "callbacks must be a list of functions"),
    ],
)
def test_a_bad_argument_is_rejected_before_a_folder_appears(
    arguments: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(fedcm.UserError, match=message):
        fedcm.run(make_experiment(), runs_dir=tmp_path, **arguments)
    assert not list(tmp_path.iterdir())
    run = fedcm.run(make_experiment(), runs_dir=tmp_path, callbacks=[lambda metrics: True])
    with pytest.raises(fedcm.UserError, match=message):
        fedcm.resume(run, **arguments)


@pytest.mark.parametrize("argument", ["jobs", "workers", "seeds"])
def test_a_sweep_without_processes_is_rejected(argument: str, tmp_path: Path) -> None:
    arguments: dict[str, Any] = {argument: 0}
    with pytest.raises(fedcm.UserError, match=f"{argument} must be a whole number, at least 1, got 0"):
        fedcm.sweep("demo", runs_dir=tmp_path, **arguments)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_run_is_closed_if_a_message_cannot_be_shown(workers: int, tmp_path: Path) -> None:
    def fail(sentence: str) -> None:
        raise RuntimeError("the window is gone")

    with pytest.raises(RuntimeError, match="the window is gone"):
        fedcm.run(make_experiment(), name="mine", runs_dir=tmp_path, workers=workers, notify=fail)
    run = fedcm.Run(tmp_path / "mine", make_experiment())
    assert run.outcome == "stopped"
    with pytest.raises(RuntimeError, match="the window is gone"):
        fedcm.resume(run, workers=workers, notify=fail)
    assert fedcm.resume(run, workers=workers).outcome == "finished"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rounds": 2.5}, "rounds must be a valid integer"),
        ({"seed": -1}, "seed must be"),
        ({"lr": 0.5}, "PythonExperiment has no setting 'lr'"),
        ({"model": None}, "model must be a ModelSection, got None"),
        ({"client": make_experiment().client.model_copy(update={"lr": -1.0})}, "client.lr must be greater than 0"),
    ],
)
def test_a_copy_of_an_experiment_with_a_bad_value_is_rejected(
    changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(fedcm.UserError, match=message):
        fedcm.run(make_experiment().model_copy(update=changes), runs_dir=tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rounds": 2.5}, "rounds must be a valid integer, got 2.5"),
        ({"rounds": 0}, "rounds must be greater than or equal to 1"),
        ({"rounds": 1}, "rounds must be at least 3"),
        ({"overrides": {"client.lr": 0.77}}, "got another client.lr"),
        ({"overrides": {"evaluation.every": 3}}, "got another evaluation.every"),
        ({"overrides": {"evaluation.targets": "high"}}, "evaluation.targets must be"),
        ({"overrides": {"x.y": 1}}, "got another x"),
        ({"overrides": 3}, "overrides must be a dict"),
        ({"experiment": "demo"}, "experiment must be an Experiment, got 'demo'"),
    ],
)
def test_a_resume_with_wrong_settings_changes_nothing(arguments: dict[str, Any], message: str, tmp_path: Path) -> None:
    run = fedcm.run(make_experiment(), runs_dir=tmp_path, callbacks=[lambda metrics: metrics.round == 2])
    before = run.folder.experiment.read_text()
    with pytest.raises(fedcm.UserError, match=message):
        fedcm.resume(run, **arguments)
    assert run.folder.experiment.read_text() == before
    assert fedcm.resume(run).outcome == "finished"


def test_a_resumed_run_of_python_objects_takes_overrides(tmp_path: Path) -> None:
    run = fedcm.run(make_experiment(), runs_dir=tmp_path, callbacks=[lambda metrics: metrics.round == 2])
    run = fedcm.resume(run, overrides={"evaluation.targets": [0.25], "checkpoints.every": 2, "rounds": 7})
    assert (run.outcome, len(run.metrics)) == ("finished", 7)
    assert (run.experiment.evaluation.targets, run.experiment.checkpoints.every) == ([0.25], 2)


def test_a_finished_run_takes_new_targets_and_rejects_other_settings(experiment: Any, tmp_path: Path) -> None:
    run = fedcm.run(experiment(), runs_dir=tmp_path)
    before, rounds = run.folder.experiment.read_text(), len(run.metrics)
    for overrides, message in (
        (
            {"client.lr": 0.9},
            "^client.lr must not change after the run began; a resume may only change rounds",
        ),
        ({"rounds": rounds - 1}, f"rounds must be at least {rounds}"),
    ):
        with pytest.raises(fedcm.UserError, match=message):
            fedcm.resume(run, overrides=overrides)
        assert (run.folder.experiment.read_text(), run.outcome) == (before, "finished")
    changed = fedcm.resume(run, overrides={"evaluation.targets": [0.01]})
    assert (changed.outcome, changed.experiment.evaluation.targets) == ("finished", [0.01])
    assert "0.01" in json.dumps(changed.summary)


def test_a_folder_called_like_a_bundled_experiment_does_not_hide_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "demo").mkdir()
    assert fedcm.load_experiment("demo").name == "demo"
    for wrong, message in ((None, "got None"), (make_model(), "got a Linear"), ("x" * 5000, "no experiment")):
        with pytest.raises(fedcm.UserError, match=message):
            fedcm.run(wrong, runs_dir=tmp_path)  # pyright: ignore[reportArgumentType]


def test_a_module_of_another_shape_cannot_take_the_parameters(tmp_path: Path) -> None:
    run = fedcm.run(make_experiment(), runs_dir=tmp_path)
    with pytest.raises(fedcm.UserError, match="does not have the parameters of the run's model"):
        run.model(torch.nn.Linear(77, 2))


@pytest.mark.parametrize(
    ("arguments", "message"), [({"over": ["client.lr"]}, "over must be a dict"), ({"algorithms": "fedcm"}, "a list")]
)
def test_the_axes_of_a_sweep_must_be_lists(arguments: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(fedcm.UserError, match=message):
        fedcm.sweep("demo", runs_dir=tmp_path, **arguments)


def test_forked_workers_are_rejected_on_cuda(tmp_path: Path) -> None:
    experiment = make_experiment(engine=make_experiment().engine.model_copy(update={"device": "cuda"}))
    with pytest.raises(fedcm.UserError, match="does not survive a fork"):
        fedcm.run(experiment, runs_dir=tmp_path, workers=2)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("wrong", [3, None, b"runs", ["runs"]])
def test_a_path_of_a_wrong_type_raises_one_sentence(wrong: Any, tmp_path: Path) -> None:
    run = fedcm.run(make_experiment(), runs_dir=tmp_path)
    calls: list[tuple[str, Callable[[], object]]] = [
        ("runs_dir", lambda: fedcm.run(make_experiment(), runs_dir=wrong)),
        ("path", lambda: fedcm.Run(wrong)),
        ("path", lambda: fedcm.resume(wrong)),
        ("runs_dir", lambda: fedcm.sweep("demo", runs_dir=wrong)),
        ("output", lambda: fedcm.report(run, wrong)),
        ("path", lambda: fedcm.RunState.load(wrong)),
    ]
    if wrong is not None:  # None is the default
        calls.append(("data_dir", lambda: fedcm.run(make_experiment(), runs_dir=tmp_path, data_dir=wrong)))
        calls.append(("data_dir", lambda: run.model(data_dir=wrong)))
    for name, call in calls:
        with pytest.raises(fedcm.UserError, match=f"^{name} must be a path, as a string or a pathlib.Path, got "):
            call()
    with pytest.raises(fedcm.UserError, match=r"^runs must be a path"):
        fedcm.report([3])  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("inner", [".", "deeper/runs"])
def test_a_file_cannot_be_the_folder_of_runs(inner: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for call in (
        lambda: fedcm.run(make_experiment(), runs_dir=tmp_path / "file" / inner),
        lambda: fedcm.sweep("demo", runs_dir=tmp_path / "file" / inner),
    ):
        with pytest.raises(fedcm.UserError, match=r"runs_dir must be a folder, and '.*/file' is a file"):
            call()


def test_one_tracker_can_be_named_by_a_string(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    run = fedcm.run(make_experiment(), runs_dir=tmp_path, track="tensorboard")
    assert list((run.path / "tensorboard").iterdir())
    for call in (
        lambda: fedcm.run(make_experiment(), runs_dir=tmp_path, track=cast("str", 3)),
        lambda: fedcm.sweep("demo", runs_dir=tmp_path, track=cast("str", [3])),
    ):
        with pytest.raises(fedcm.UserError, match="track must be a string or a list of strings, got"):
            call()


def test_numbers_of_numpy_are_accepted(tmp_path: Path) -> None:
    numbers: dict[str, Any] = {"rounds": np.int64(2), "seed": np.int32(4), "batch_size": np.uint8(5)}
    run = fedcm.run(
        fedcm.make_experiment(make_model(), make_clients(), fedcm.FedCM(), lr=np.float32(0.5), **numbers),  # pyright: ignore[reportArgumentType]
        runs_dir=tmp_path,
        workers=np.int64(1),  # pyright: ignore[reportArgumentType]
        diagnose_every=np.int64(2),  # pyright: ignore[reportArgumentType]
    )
    assert (len(run.metrics), run.experiment.seed, run.experiment.client.batch_size) == (2, 4, 5)
    assert type(run.experiment.rounds) is int
    run = fedcm.resume(run, rounds=np.int64(3))  # pyright: ignore[reportArgumentType]
    assert len(run.metrics) == 3
    demo = fedcm.load_experiment("demo", {"rounds": np.int64(7), "client.lr": np.float64(0.25)})
    assert (demo.rounds, demo.client.lr) == (7, 0.25)


def test_a_callback_may_return_a_bool_of_numpy(tmp_path: Path) -> None:
    run = fedcm.run(make_experiment(), runs_dir=tmp_path, callbacks=[lambda metrics: np.bool_(metrics.round == 1)])
    assert (run.outcome, len(run.metrics)) == ("stopped", 2)
    run = fedcm.resume(run, callbacks=[lambda metrics: 1])  # only True stops
    assert run.outcome == "finished"


def test_messages_are_printed_on_stderr_by_default(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    experiment = make_experiment(checkpoints=CheckpointSection(every=1))
    run = fedcm.run(experiment, name="mine", runs_dir=tmp_path, callbacks=[lambda metrics: metrics.round == 1])
    assert capsys.readouterr() == ("", f"run {run.path}\n")
    max((run.path / "checkpoints").glob("*.json")).write_text("{")
    fedcm.resume(run)
    printed = capsys.readouterr()
    assert printed.out == ""
    assert [line.partition(" ")[0] for line in printed.err.splitlines()] == ["checkpoint", "run"]
    assert printed.err.endswith(f"run {run.path} resumes at round 1 of 6\n")
    fedcm.resume(run)
    assert capsys.readouterr() == ("", f"run {run.path} has finished already\n")
