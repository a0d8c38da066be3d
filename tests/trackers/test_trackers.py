"""TensorBoard, MLflow and Weights & Biases for real: written by a run, read back with each one's own reader."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest
from read_back import Series, accumulated, expected, mlflow_run, series, wandb_records
from scenes import Answer, summary_of, whole

from fedcm.trackers import TRACKERS

Write = Callable[..., Path]
Fedcm = Callable[..., Answer]

ROUNDS = 12


def needs(name: str) -> None:
    if find_spec(name) is None:
        pytest.skip(f"{name} is not installed: pip install 'fedcm[{name}]'")


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """MLflow takes seconds to make one."""
    from mlflow import MlflowClient

    path = tmp_path_factory.mktemp("mlflow") / "mlflow.db"
    MlflowClient(f"sqlite:///{path}").search_experiments()
    return path


@pytest.fixture(params=TRACKERS)
def tracker(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    needs(request.param)
    for name in ("WANDB_MODE", "WANDB_PROJECT", "WANDB_DIR", "MLFLOW_EXPERIMENT_NAME"):
        monkeypatch.delenv(name, raising=False)
    if request.param == "mlflow":
        store = shutil.copy(request.getfixturevalue("empty_store"), tmp_path / "mlflow.db")
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{store}")
    return request.param


def rounded(found: Series) -> dict[str, object]:
    """Event files hold single precision."""
    return {key: [(index, pytest.approx(value, rel=1e-6)) for index, value in pairs] for key, pairs in found.items()}


in_short_for_tensorboard_alone = pytest.mark.parametrize(
    "tracker",
    ["tensorboard", *(pytest.param(name, marks=pytest.mark.slow) for name in ("mlflow", "wandb"))],
    indirect=True,
)


def test_every_round_is_read_back_as_it_went(experiment: Write, fedcm: Fedcm, tmp_path: Path, tracker: str) -> None:
    path = experiment(participation={"kind": "independent", "probability": 0.1})  # in some rounds nobody takes part
    answer = fedcm("run", path, "--runs-dir", tmp_path / "runs", "--name", "one", "--json", "--track", tracker)
    assert answer.code == 0, answer.err
    assert json.loads(answer.out)["outcome"] == "finished"
    folder = tmp_path / "runs" / "one"
    found = series(tracker, folder)
    assert found == rounded(expected(folder))
    assert [index for index, _ in found["cohort"]] == list(range(ROUNDS))
    assert 0 < len(found["loss"]) < ROUNDS
    assert found["total_bytes_up"][-1][1] == summary_of(folder)["bytes_up"]


@in_short_for_tensorboard_alone
def test_a_run_that_was_stopped_and_goes_on_has_every_round_once(
    experiment: Write, fedcm: Fedcm, tmp_path: Path, tracker: str
) -> None:
    path = experiment(rounds=100, client={"lr": 0.01}, checkpoints={"every": 7}, evaluation={"every": 3})
    folder = tmp_path / "runs" / "killed"
    words = ["run", path, "--runs-dir", folder.parent, "--name", folder.name, "--track", tracker]
    for stop, code in ((signal.SIGKILL, -9), (signal.SIGINT, 130)):
        command = [sys.executable, "-m", "fedcm", *map(str, words)]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
        seen = rounds_in(folder)
        while rounds_in(folder) < seen + 15:
            assert process.poll() is None, process.communicate()
            time.sleep(0.0005)
        if stop == signal.SIGINT:
            os.killpg(process.pid, stop)  # a terminal's Ctrl-C reaches what a tracker started too
        else:
            process.send_signal(stop)
        _, err = process.communicate(timeout=60)
        assert process.returncode == code, err
        assert "given up" not in err
        words = ["resume", folder, "--track", tracker]
    if tracker == "mlflow":
        assert mlflow_run(folder)[1].info.status == "KILLED"
    answer = fedcm(*words)
    assert answer.code == 0, answer.err
    assert "given up" not in answer.err
    found, wanted = series(tracker, folder), expected(folder)
    if tracker == "mlflow":  # rounds that it had already keep the time they took then
        assert [index for index, _ in found.pop("seconds")] == list(range(100))
        del wanted["seconds"]
    assert found == rounded(wanted)
    assert len(found["cohort"]) == 100


def rounds_in(folder: Path) -> int:
    try:
        return (folder / "metrics.jsonl").read_bytes().count(b"\n")
    except FileNotFoundError:
        return 0


def test_a_finished_run_is_told_whole_when_asked_late(
    experiment: Write, fedcm: Fedcm, tmp_path: Path, tracker: str
) -> None:
    folder = whole(experiment(), tmp_path / "runs")
    for _ in range(2):  # the second time it is known already
        assert fedcm("resume", folder, "--track", tracker).code == 0
        assert series(tracker, folder) == rounded(expected(folder))


def test_settings_and_summary_stand_beside_the_rounds(
    experiment: Write, fedcm: Fedcm, tmp_path: Path, tracker: str
) -> None:
    folder = tmp_path / "runs" / "one"
    fedcm("run", experiment(), "--runs-dir", folder.parent, "--name", "one", "--track", tracker)
    summary = summary_of(folder)
    if tracker == "tensorboard":
        hparams = accumulated(folder).PluginTagToContent("hparams")
        assert b"client.batch_size" in hparams["_hparams_/session_start_info"]
        assert "_hparams_/session_end_info" in hparams
        (said,) = accumulated(folder).Tensors("summary/text_summary")
        assert summary["params_sha256"].encode() in said.tensor_proto.string_val[0]
    elif tracker == "mlflow":
        client, run = mlflow_run(folder)
        assert (run.info.run_name, run.info.status) == ("one", "FINISHED")
        assert client.get_experiment(run.info.experiment_id).name == "small"
        assert run.data.params["client.batch_size"] == "7"
        assert run.data.params["model.hidden"] == "[8]"
        assert run.data.metrics["summary/accuracy.best"] == summary["accuracy"]["best"]
        assert run.data.tags["summary/params_sha256"] == summary["params_sha256"]
    else:
        records = {record.WhichOneof("record_type"): record for record in wandb_records(folder)}
        run = records["run"].run
        assert (run.project, run.display_name) == ("small", "one")
        config = {item.key: json.loads(item.value_json) for item in run.config.update}
        assert config["client.batch_size"] == 7
        told = {
            item.key: json.loads(item.value_json)
            for record in wandb_records(folder)
            if record.WhichOneof("record_type") == "summary"
            for item in record.summary.update
        }
        assert told["summary/accuracy.best"] == summary["accuracy"]["best"]
        assert told["summary/params_sha256"] == summary["params_sha256"]
        assert records["exit"].exit.exit_code == 0


@in_short_for_tensorboard_alone
def test_a_comparison_has_a_log_for_every_run(experiment: Write, fedcm: Fedcm, tmp_path: Path, tracker: str) -> None:
    path, runs = experiment(rounds=3), tmp_path / "runs"
    answer = fedcm("compare", path, "--algorithms", "fedavg,fedcm", "--runs-dir", runs, "--track", tracker)
    assert answer.code == 0, answer.err
    for name in ("fedavg", "fedcm"):
        folder = runs / f"small-{name}-seed3"
        assert series(tracker, folder) == rounded(expected(folder))


def test_a_run_that_diverged_is_told_as_failed(experiment: Write, fedcm: Fedcm, tmp_path: Path, tracker: str) -> None:
    folder = tmp_path / "runs" / "wild"
    path = experiment(client={"lr": 1e5, "weight_decay": 10.0}, rounds=50)
    assert fedcm("run", path, "--runs-dir", folder.parent, "--name", "wild", "--track", tracker).code == 1
    assert series(tracker, folder) == rounded(expected(folder))
    if tracker == "mlflow":
        assert mlflow_run(folder)[1].info.status == "FAILED"
    elif tracker == "wandb":
        (code,) = [record.exit.exit_code for record in wandb_records(folder) if record.HasField("exit")]
        assert code == 1


def test_a_longer_run_goes_on_in_the_same_log(experiment: Write, fedcm: Fedcm, tmp_path: Path, tracker: str) -> None:
    folder = tmp_path / "runs" / "short"
    path = experiment(rounds=8, evaluation={"every": 4})
    assert fedcm("run", path, "--runs-dir", folder.parent, "--name", "short", "--track", tracker).code == 0
    text = (folder / "experiment.toml").read_text()
    (folder / "experiment.toml").write_text(text.replace("rounds = 8", "rounds = 12"))
    answer = fedcm("resume", folder, "--track", tracker)
    assert answer.code == 0
    assert "given up" not in answer.err
    assert series(tracker, folder) == rounded(expected(folder))


def test_only_the_first_process_writes(experiment: Write, tmp_path: Path) -> None:
    needs("tensorboard")
    folder = tmp_path / "runs" / "one"
    words = ["--runs-dir", str(folder.parent), "--name", "one", "--workers", "2", "--track", "tensorboard"]
    subprocess.run([sys.executable, "-m", "fedcm", "run", str(experiment(rounds=4)), *words], check=True)
    assert len(list((folder / "tensorboard").iterdir())) == 1
    assert series("tensorboard", folder) == rounded(expected(folder))


def test_mlflow_keeps_its_store_beside_the_runs_unless_told_where(
    experiment: Write, fedcm: Fedcm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, empty_store: Path
) -> None:
    needs("mlflow")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.chdir(tmp_path)
    runs = tmp_path / "my runs"
    runs.mkdir()
    shutil.copy(empty_store, runs / "mlflow.db")
    before = set(tmp_path.iterdir()) | {tmp_path / "small.toml"}
    assert fedcm("run", experiment(rounds=2), "--runs-dir", "my runs", "--name", "one", "--track", "mlflow").code == 0
    assert set(tmp_path.iterdir()) == before
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{runs / 'mlflow.db'}")
    assert series("mlflow", runs / "one") == rounded(expected(runs / "one"))
    shutil.copy(empty_store, runs / "mlflow.db")  # one that does not know the run
    assert fedcm("resume", runs / "one", "--track", "mlflow").code == 0
    assert series("mlflow", runs / "one") == rounded(expected(runs / "one"))


@pytest.mark.parametrize("name", TRACKERS)
def test_one_that_is_not_installed_is_refused_before_the_run_begins(
    experiment: Write, tmp_path: Path, name: str
) -> None:
    code = f"import sys; sys.modules[{name!r}] = None; from fedcm.cli.main import main; main()"
    words = [sys.executable, "-c", code, "run", str(experiment()), "--runs-dir", str(tmp_path / "runs")]
    done = subprocess.run([*words, "--track", name], capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    assert done.stderr == (
        f"fedcm: --track {name} must have its packages installed, and {name} cannot be imported; "
        f"install them with `pip install 'fedcm[{name}]'`\n"
    )
    assert not (tmp_path / "runs").exists()


def test_nobody_is_called_by_default() -> None:
    needs("mlflow")
    needs("wandb")
    code = (
        "from fedcm.trackers import named; named(['mlflow', 'wandb'])\n"
        "from mlflow.telemetry import get_telemetry_client\n"
        "from wandb.env import error_reporting_enabled\n"
        "assert get_telemetry_client() is None\n"
        "assert not error_reporting_enabled()\n"
    )
    # MLflow calls nobody from a test or a CI job, by these
    environment = {key: value for key, value in os.environ.items() if key not in ("CI", "PYTEST_CURRENT_TEST")}
    for name in ("MLFLOW_DISABLE_TELEMETRY", "WANDB_ERROR_REPORTING"):
        environment.pop(name, None)  # set in this process by the tests before
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)
