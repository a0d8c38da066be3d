"""Real logs of TensorBoard, MLflow and Weights & Biases, read back with each program's own reader."""

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
from read_back import Series, load_events, load_mlflow_run, read_expected_series, read_series, read_wandb_records
from scenes import Answer, load_summary, run_to_end

from fedcm.core.participation import Independent
from fedcm.privacy.accountant import Accountant, Sampling
from fedcm.trackers import TRACKERS

Write = Callable[..., Path]
Fedcm = Callable[..., Answer]

ROUNDS = 12


def skip_without(name: str) -> None:
    if find_spec(name) is None:
        pytest.skip(f"{name} is not installed: pip install 'fedcm[{name}]'")


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty MLflow store, made once because that takes seconds."""
    from mlflow import MlflowClient

    path = tmp_path_factory.mktemp("mlflow") / "mlflow.db"
    MlflowClient(f"sqlite:///{path}").search_experiments()
    return path


@pytest.fixture(params=TRACKERS)
def tracker(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    skip_without(request.param)
    for name in ("WANDB_MODE", "WANDB_PROJECT", "WANDB_DIR", "MLFLOW_EXPERIMENT_NAME"):
        monkeypatch.delenv(name, raising=False)
    if request.param == "mlflow":
        store = shutil.copy(request.getfixturevalue("empty_store"), tmp_path / "mlflow.db")
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{store}")
    return request.param


def rounded(found: Series) -> dict[str, object]:
    """Round to single precision, as in event files."""
    return {key: [(index, pytest.approx(value, rel=1e-6)) for index, value in pairs] for key, pairs in found.items()}


in_short_for_tensorboard_alone = pytest.mark.parametrize(
    "tracker",
    ["tensorboard", *(pytest.param(name, marks=pytest.mark.slow) for name in ("mlflow", "wandb"))],
    indirect=True,
)


@pytest.mark.slow
def test_every_round_is_read_back(experiment: Write, fedcm: Fedcm, tmp_path: Path, tracker: str) -> None:
    path = experiment(participation={"kind": "independent", "probability": 0.1})  # some rounds have an empty cohort
    answer = fedcm("run", path, "--runs-dir", tmp_path / "runs", "--name", "one", "--json", "--track", tracker)
    assert answer.code == 0, answer.err
    assert json.loads(answer.out)["outcome"] == "finished"
    folder = tmp_path / "runs" / "one"
    found = read_series(tracker, folder)
    assert found == rounded(read_expected_series(folder))
    assert [index for index, _ in found["cohort"]] == list(range(ROUNDS))
    assert 0 < len(found["loss"]) < ROUNDS
    assert found["total_bytes_up"][-1][1] == load_summary(folder)["bytes_up"]


@pytest.mark.slow
@in_short_for_tensorboard_alone
def test_a_resumed_run_has_every_round_once(experiment: Write, fedcm: Fedcm, tmp_path: Path, tracker: str) -> None:
    path = experiment(rounds=100, client={"lr": 0.01}, checkpoints={"every": 7}, evaluation={"every": 3})
    folder = tmp_path / "runs" / "killed"
    words = ["run", path, "--runs-dir", folder.parent, "--name", folder.name, "--track", tracker]
    for stop, code in ((signal.SIGKILL, -9), (signal.SIGINT, 130)):
        command = [sys.executable, "-m", "fedcm", *map(str, words)]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
        seen = count_rounds(folder)
        while count_rounds(folder) < seen + 15:
            assert process.poll() is None, process.communicate()
            time.sleep(0.0005)
        if stop == signal.SIGINT:
            os.killpg(process.pid, stop)  # Ctrl-C in a terminal also reaches the processes of a tracker
        else:
            process.send_signal(stop)
        _, err = process.communicate(timeout=60)
        assert process.returncode == code, err
        assert "is disabled" not in err
        words = ["resume", folder, "--track", tracker]
    if tracker == "mlflow":
        assert load_mlflow_run(folder)[1].info.status == "KILLED"
    answer = fedcm(*words)
    assert answer.code == 0, answer.err
    assert "is disabled" not in answer.err
    found, wanted = read_series(tracker, folder), read_expected_series(folder)
    if tracker == "mlflow":  # rounds that MLflow had already keep their seconds
        assert [index for index, _ in found.pop("seconds")] == list(range(100))
        del wanted["seconds"]
    assert found == rounded(wanted)
    assert len(found["cohort"]) == 100


def count_rounds(folder: Path) -> int:
    try:
        return (folder / "metrics.jsonl").read_bytes().count(b"\n")
    except FileNotFoundError:
        return 0


@pytest.mark.slow
def test_a_finished_run_can_be_tracked_later(experiment: Write, fedcm: Fedcm, tmp_path: Path, tracker: str) -> None:
    folder = run_to_end(experiment(), tmp_path / "runs")
    for _ in range(2):  # the second time the store has the run already
        assert fedcm("resume", folder, "--track", tracker).code == 0
        assert read_series(tracker, folder) == rounded(read_expected_series(folder))


@pytest.mark.slow
def test_settings_and_summary_are_logged(experiment: Write, fedcm: Fedcm, tmp_path: Path, tracker: str) -> None:
    folder = tmp_path / "runs" / "one"
    fedcm("run", experiment(), "--runs-dir", folder.parent, "--name", "one", "--track", tracker)
    summary = load_summary(folder)
    if tracker == "tensorboard":
        hparams = load_events(folder).PluginTagToContent("hparams")
        assert b"client.batch_size" in hparams["_hparams_/session_start_info"]
        assert "_hparams_/session_end_info" in hparams
        (event,) = load_events(folder).Tensors("summary/text_summary")
        assert summary["params_sha256"].encode() in event.tensor_proto.string_val[0]
    elif tracker == "mlflow":
        client, run = load_mlflow_run(folder)
        assert (run.info.run_name, run.info.status) == ("one", "FINISHED")
        assert client.get_experiment(run.info.experiment_id).name == "small"
        assert run.data.params["client.batch_size"] == "7"
        assert run.data.params["model.hidden"] == "[8]"
        assert run.data.metrics["summary/accuracy.best"] == summary["accuracy"]["best"]
        assert run.data.tags["summary/params_sha256"] == summary["params_sha256"]
    else:
        records = {record.WhichOneof("record_type"): record for record in read_wandb_records(folder)}
        run = records["run"].run
        assert (run.project, run.display_name) == ("small", "one")
        config = {item.key: json.loads(item.value_json) for item in run.config.update}
        assert config["client.batch_size"] == 7
        logged = {
            item.key: json.loads(item.value_json)
            for record in read_wandb_records(folder)
            if record.WhichOneof("record_type") == "summary"
            for item in record.summary.update
        }
        assert logged["summary/accuracy.best"] == summary["accuracy"]["best"]
        assert logged["summary/params_sha256"] == summary["params_sha256"]
        assert records["exit"].exit.exit_code == 0


@in_short_for_tensorboard_alone
def test_the_epsilon_of_every_round_of_a_private_run_is_logged(
    experiment: Write, fedcm: Fedcm, tmp_path: Path, tracker: str
) -> None:
    """The values are those of the accountant, also in rounds with an empty cohort and after a resume."""
    folder = tmp_path / "runs" / "private"
    path = experiment(
        rounds=ROUNDS - 4,
        participation={"kind": "independent", "probability": 0.1},
        client={"steps": 2, "batch_size": 4, "lr": 0.1},
        privacy={"noise_multiplier": 2.0, "clip": 0.5, "delta": 1e-3},
    )
    words = ["run", path, "--runs-dir", folder.parent, "--name", folder.name, "--track", tracker]
    for command in (words, ["resume", folder, "--set", f"rounds={ROUNDS}", "--track", tracker]):
        answer = fedcm(*command)
        assert answer.code == 0, answer.err
        assert "is disabled" not in answer.err
    found = read_series(tracker, folder)
    assert 0.0 in [value for _, value in found["cohort"]], "otherwise this shows less than it says"
    accountant = Accountant(Sampling.of(Independent(0.1)), 2.0, 1e-3)
    expected = [(index, accountant.compute_epsilon(index + 1)) for index in range(ROUNDS)]
    assert {"epsilon": found["epsilon"]} == rounded({"epsilon": expected})
    assert found["epsilon"][-1][1] == pytest.approx(load_summary(folder)["privacy"]["epsilon"], rel=1e-6)


@pytest.mark.slow
@in_short_for_tensorboard_alone
def test_a_comparison_has_a_log_for_every_run(experiment: Write, fedcm: Fedcm, tmp_path: Path, tracker: str) -> None:
    path, runs = experiment(rounds=3), tmp_path / "runs"
    answer = fedcm("compare", path, "--algorithms", "fedavg,fedcm", "--runs-dir", runs, "--track", tracker)
    assert answer.code == 0, answer.err
    for name in ("fedavg", "fedcm"):
        folder = runs / f"small-{name}-seed3"
        assert read_series(tracker, folder) == rounded(read_expected_series(folder))


def test_a_diverged_run_is_marked_as_failed(experiment: Write, fedcm: Fedcm, tmp_path: Path, tracker: str) -> None:
    folder = tmp_path / "runs" / "wild"
    path = experiment(client={"lr": 1e5, "weight_decay": 10.0}, rounds=50)
    assert fedcm("run", path, "--runs-dir", folder.parent, "--name", "wild", "--track", tracker).code == 1
    assert read_series(tracker, folder) == rounded(read_expected_series(folder))
    if tracker == "mlflow":
        assert load_mlflow_run(folder)[1].info.status == "FAILED"
    elif tracker == "wandb":
        (code,) = [record.exit.exit_code for record in read_wandb_records(folder) if record.HasField("exit")]
        assert code == 1


def test_an_extended_run_continues_the_same_log(experiment: Write, fedcm: Fedcm, tmp_path: Path, tracker: str) -> None:
    folder = tmp_path / "runs" / "short"
    path = experiment(rounds=8, evaluation={"every": 4})
    assert fedcm("run", path, "--runs-dir", folder.parent, "--name", "short", "--track", tracker).code == 0
    answer = fedcm("resume", folder, "--set", "rounds=12", "--track", tracker)
    assert answer.code == 0
    assert "is disabled" not in answer.err
    assert read_series(tracker, folder) == rounded(read_expected_series(folder))


@pytest.mark.slow
def test_only_rank_0_writes(experiment: Write, tmp_path: Path) -> None:
    skip_without("tensorboard")
    folder = tmp_path / "runs" / "one"
    words = ["--runs-dir", str(folder.parent), "--name", "one", "--workers", "2", "--track", "tensorboard"]
    subprocess.run([sys.executable, "-m", "fedcm", "run", str(experiment(rounds=4)), *words], check=True)
    assert len(list((folder / "tensorboard").iterdir())) == 1
    assert read_series("tensorboard", folder) == rounded(read_expected_series(folder))


def test_the_mlflow_store_is_in_the_runs_folder_by_default(
    experiment: Write, fedcm: Fedcm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, empty_store: Path
) -> None:
    skip_without("mlflow")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.chdir(tmp_path)
    runs = tmp_path / "my runs"
    runs.mkdir()
    shutil.copy(empty_store, runs / "mlflow.db")
    before = set(tmp_path.iterdir()) | {tmp_path / "small.toml"}
    assert fedcm("run", experiment(rounds=2), "--runs-dir", "my runs", "--name", "one", "--track", "mlflow").code == 0
    assert set(tmp_path.iterdir()) == before
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{runs / 'mlflow.db'}")
    assert read_series("mlflow", runs / "one") == rounded(read_expected_series(runs / "one"))
    shutil.copy(empty_store, runs / "mlflow.db")  # a store without this run
    assert fedcm("resume", runs / "one", "--track", "mlflow").code == 0
    assert read_series("mlflow", runs / "one") == rounded(read_expected_series(runs / "one"))


@pytest.mark.slow
@pytest.mark.parametrize("name", TRACKERS)
def test_a_tracker_that_is_not_installed_raises_before_the_run(experiment: Write, tmp_path: Path, name: str) -> None:
    code = f"import sys; sys.modules[{name!r}] = None; from fedcm.cli.main import main; main()"
    words = [sys.executable, "-c", code, "run", str(experiment()), "--runs-dir", str(tmp_path / "runs")]
    done = subprocess.run([*words, "--track", name], capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    assert done.stderr == (
        f"fedcm: the tracker {name!r} requires packages that are not installed: {name} cannot be imported; "
        f"install them with `pip install 'fedcm[{name}]'`\n"
    )
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
def test_trackers_send_no_telemetry_by_default() -> None:
    skip_without("mlflow")
    skip_without("wandb")
    code = (
        "from fedcm.trackers import load_trackers; load_trackers(['mlflow', 'wandb'])\n"
        "from mlflow.telemetry import get_telemetry_client\n"
        "from wandb.env import error_reporting_enabled\n"
        "assert get_telemetry_client() is None\n"
        "assert not error_reporting_enabled()\n"
    )
    # with these variables MLflow recognises tests and CI jobs and sends nothing
    environment = {key: value for key, value in os.environ.items() if key not in ("CI", "PYTEST_CURRENT_TEST")}
    for name in ("MLFLOW_DISABLE_TELEMETRY", "WANDB_ERROR_REPORTING"):
        environment.pop(name, None)  # earlier tests set it in this process
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)
