"""The flow of a sweep: how it uses cores, what it reports, and how failed runs end it."""

from collections.abc import Callable
from pathlib import Path

import pytest

import fedcm as api
from fedcm.data import load_source
from fedcm.errors import UserError
from fedcm.sweeps.grid import expand_grid
from fedcm.sweeps.preflight import reject_impossible_runs
from fedcm.sweeps.session import CoreShare, divide_cores, find_busiest_device, reject_failed_tasks, report_remarks
from fedcm.sweeps.tasks import SweepTask, make_tasks

Write = Callable[..., Path]


@pytest.fixture
def tasks(experiment: Write, tmp_path: Path) -> list[SweepTask]:
    """Three missing runs."""
    return make_tasks(expand_grid(experiment(rounds=1), over=["client.lr=0.1,0.2,0.3"]), tmp_path / "runs")


@pytest.mark.parametrize(
    ("cores", "ended", "share"), [(8, 0, (3, 2)), (2, 0, (2, 1)), (8, 2, (1, 8)), (1, 0, (1, 1)), (4, 3, (1, 4))]
)
def test_cores_are_divided_among_the_remaining_runs(
    tasks: list[SweepTask], cores: int, ended: int, share: tuple[int, int]
) -> None:
    for task in tasks[:ended]:
        task.outcome = "finished"
    assert divide_cores(tasks, cores) == CoreShare(*share)


def test_runs_on_cuda_are_not_parallel(experiment: Write, tmp_path: Path) -> None:
    runs = expand_grid(experiment(engine={"device": "cuda"}), over=["client.lr=0.1,0.2"])
    assert divide_cores(make_tasks(runs, tmp_path / "runs"), 4) == CoreShare(1, 4)


def test_only_the_first_remarks_are_reported(tasks: list[SweepTask]) -> None:
    messages: list[str] = []
    for task in tasks:
        task.remark = f"{task.run.name} is kept"
    report_remarks([*tasks, *tasks], messages.append)
    assert messages == [*(task.remark for task in [*tasks, *tasks][:5]), "the same holds for 1 more run"]


def test_failed_runs_are_counted_and_the_first_is_named(tasks: list[SweepTask]) -> None:
    reject_failed_tasks(tasks)
    tasks[1].outcome, tasks[1].reason = "failed", "no memory"
    with pytest.raises(UserError, match=rf"^1 of 3 runs failed, first {tasks[1].run.name}: no memory$"):
        reject_failed_tasks(tasks)
    with pytest.raises(UserError, match=r"^1 of 1 run failed, first"):
        reject_failed_tasks(tasks[1:2])


def test_a_sweep_in_python_reports_what_it_reuses(
    experiment: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, runs = experiment(rounds=1), tmp_path / "runs"
    first = api.run(path, overrides={"client.lr": 0.2}, runs_dir=runs, name="other")
    capsys.readouterr()
    (reused,) = api.sweep(path, {"client.lr": [0.2]}, runs_dir=runs)
    assert reused.path == first.path
    assert capsys.readouterr().err.splitlines() == [
        f"small-client.lr=0.2-fedcm-seed3 is the same experiment as {first.path}, which is reused",
        "1 of 1 run is finished already",
    ]


def test_the_check_before_a_sweep_loads_the_data_and_compiles_a_model_once(
    experiment: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[str] = []
    compiled: list[int] = []

    def load(source: str, data_dir: Path | None) -> object:
        loaded.append(source)
        return load_source(source, data_dir)

    monkeypatch.setattr("fedcm.sweeps.preflight.load_source", load)
    monkeypatch.setattr("fedcm.runs.build.compile_model", lambda problem, batch_size, data: compiled.append(batch_size))
    path = experiment(rounds=1, engine={"stack": 1, "layout": "channels_last", "compile": "on"})
    runs = expand_grid(path, over=["client.lr=0.1,0.2", "client.batch_size=5,7"], seeds=2)
    reject_impossible_runs(make_tasks(runs, tmp_path / "runs"), None)
    assert len(loaded) == 1
    assert compiled == [5, 7]


@pytest.mark.parametrize(
    ("devices", "device"),
    [("cpu,cpu", "cpu"), ("cpu,cuda", "cuda"), ("cuda,cpu", "cuda"), ("cuda:1,cpu", "cuda:1")],
)
def test_a_cuda_device_of_any_run_decides_the_number_of_processes(experiment: Write, devices: str, device: str) -> None:
    runs = [run for one in devices.split(",") for run in expand_grid(experiment(engine={"device": one}))]
    assert find_busiest_device(runs) == device
