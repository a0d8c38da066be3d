"""Any number of workers gives the same bits; they are started as `fedcm run --workers` starts them."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from processes import find_worker_processes, make_command, run_with_workers
from scenes import load_summary, read_lines, resume_run, run_and_stop_after, run_to_end

from fedcm.executors.process_group import divide_work
from fedcm.system.hardware import count_default_workers, count_physical_cores

Write = Callable[..., Path]


def assert_same_bits(folder: Path, reference: Path) -> None:
    assert read_lines(folder) == read_lines(reference)
    assert load_summary(folder)["params_sha256"] == load_summary(reference)["params_sha256"]


@pytest.mark.parametrize(
    ("algorithm", "workers"),
    [
        ("scaffold", 2),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in (("fedavg", 3), ("fedcm", 2), ("fedcm", 3), ("fedadam", 2), ("scaffold", 3), ("feddyn", 3))
        ),
    ],
)
def test_any_number_of_workers_gives_the_same_bits(
    experiment: Write, tmp_path: Path, algorithm: str, workers: int
) -> None:
    path = experiment(algorithm={"name": algorithm})
    reference = run_to_end(path, tmp_path / "runs")
    run_with_workers(path, tmp_path / "runs" / "shared", workers)
    assert_same_bits(tmp_path / "runs" / "shared", reference)


@pytest.mark.slow
def test_weights_by_examples_and_empty_rounds_give_the_same_bits_too(experiment: Write, tmp_path: Path) -> None:
    path = experiment(
        server={"weights": "examples"},
        split={"kind": "dirichlet-by-label", "clients": 12, "concentration": 0.3},
        participation={"kind": "independent", "probability": 0.1},
    )
    reference = run_to_end(path, tmp_path / "runs")
    assert any(line["cohort"] == 0 for line in read_lines(reference))
    run_with_workers(path, tmp_path / "runs" / "shared", 2)
    assert_same_bits(tmp_path / "runs" / "shared", reference)


@pytest.mark.slow
def test_a_stacked_run_keeps_its_bits_on_several_workers(experiment: Write, tmp_path: Path) -> None:
    path = experiment(
        engine={"stack": 2, "compile": "off"},
        algorithm={"name": "scaffold"},
        participation={"kind": "fixed", "clients": 7},
    )
    reference = run_to_end(path, tmp_path / "runs")
    run_with_workers(path, tmp_path / "runs" / "shared", 2)
    assert_same_bits(tmp_path / "runs" / "shared", reference)


def read_shared_arrays(process: int) -> dict[str, str]:
    """Return the arrays in shared memory that a process has mapped, as name -> inode."""
    lines = (line.split() for line in Path(f"/proc/{process}/maps").read_text().splitlines())
    return {words[5]: words[4] for words in lines if len(words) > 5 and words[5].startswith("/memfd:fedcm-")}


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="the system has no memfd")
def test_workers_share_one_copy_of_the_data(experiment: Write, tmp_path: Path) -> None:
    (tmp_path / "counted.py").write_text(
        "import numpy as np\n"
        "def load():\n"
        "    with open('loaded', 'a') as file: file.write('once\\n')\n"
        "    x = np.random.default_rng(0).normal(size=(240, 6))\n"
        "    return (x, x[:, :4].argmax(1)), (x[:50], x[:50, :4].argmax(1))\n"
    )
    path = experiment(data={"source": "counted:load"}, rounds=100_000, client={"lr": 0.01})
    folder = tmp_path / "runs" / "one"
    words = make_command("run", path, "--runs-dir", folder.parent, "--name", folder.name, "--workers", 3)
    process = subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while len(read_existing_lines(folder)) < 5:
            assert process.poll() is None
            time.sleep(0.01)
        first = read_shared_arrays(process.pid)
        assert {name.removeprefix("/memfd:fedcm-") for name in first} >= {"train_features", "test_labels"}
        assert [read_shared_arrays(worker) for worker in find_worker_processes(folder, process.pid)] == [first, first]
        assert (tmp_path / "loaded").read_text() == "once\n"
    finally:
        process.kill()
        process.wait()


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["scaffold", pytest.param("feddyn", marks=pytest.mark.slow)])
def test_rounded_client_states_keep_their_bits_on_two_workers_and_after_a_resume(
    experiment: Write, tmp_path: Path, algorithm: str
) -> None:
    path = experiment(algorithm={"name": algorithm}, rounds=20)
    exact = run_to_end(path, tmp_path / "runs", "exact")
    path = experiment(algorithm={"name": algorithm}, rounds=20, engine={"stack": 1, "client_states": "bfloat16"})
    reference = run_to_end(path, tmp_path / "runs")
    assert load_summary(reference)["params_sha256"] != load_summary(exact)["params_sha256"]
    run_with_workers(path, tmp_path / "runs" / "shared", 2)
    assert_same_bits(tmp_path / "runs" / "shared", reference)
    stopped = run_and_stop_after(9, path, tmp_path / "runs", "stopped")
    resume_run(stopped)
    assert_same_bits(stopped, reference)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "before", "after"),
    [
        *(("scaffold", *pair) for pair in ((2, 1), (1, 2), (3, 2))),
        *((name, 2, 3) for name in ("fedavg", "fedcm", "fedadam", "feddyn")),
    ],
)
def test_a_killed_run_resumes_with_another_number_of_workers(
    experiment: Write, tmp_path: Path, algorithm: str, before: int, after: int
) -> None:
    path = experiment(algorithm={"name": algorithm}, rounds=100, checkpoints={"every": 5})
    reference = run_to_end(path, tmp_path / "runs")
    folder = tmp_path / "runs" / "killed"
    words = make_command("run", path, "--runs-dir", folder.parent, "--name", folder.name, "--workers", before)
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while process.poll() is None and not len(read_existing_lines(folder)) > 37:
        time.sleep(0.002)
    process.kill()
    process.wait()
    deadline = time.monotonic() + 60
    while find_worker_processes(folder, process.pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not find_worker_processes(folder, process.pid), "workers end when rank 0 is gone"
    done = subprocess.run(
        make_command("resume", folder, "--workers", after), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert_same_bits(folder, reference)


@pytest.mark.slow
def test_a_killed_worker_ends_the_run_and_is_named(experiment: Write, tmp_path: Path) -> None:
    path = experiment(rounds=100_000, client={"lr": 0.01}, checkpoints={"every": 50})
    folder = tmp_path / "runs" / "one"
    words = make_command("run", path, "--runs-dir", folder.parent, "--name", folder.name, "--workers", 2)
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while len(read_existing_lines(folder)) < 60:
        assert process.poll() is None
        time.sleep(0.01)
    (worker,) = find_worker_processes(folder, process.pid)
    subprocess.run(["kill", "-9", str(worker)], check=True)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "worker 1 was killed by SIGKILL while it trained client" in err
    assert f"fedcm resume {folder}" in err
    assert "Traceback" not in err


@pytest.mark.slow
def test_an_exception_on_a_worker_names_its_client(experiment: Write, tmp_path: Path) -> None:
    (tmp_path / "falling.py").write_text(
        "from torch import nn\n"
        "class Falling(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.linear, self.calls = nn.Linear(6, 4), 0\n"
        "    def forward(self, x):\n"
        "        self.calls += 1\n"
        "        if self.calls > 60:\n"
        "            raise LookupError('the sixtieth call is one too many')\n"
        "        return self.linear(x)\n"
    )
    path = experiment(model={"name": "falling:Falling"}, rounds=1000, client={"lr": 0.01})
    words = make_command("run", path, "--runs-dir", "runs", "--name", "one", "--workers", 2)
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1
    assert "the sixtieth call is one too many" in done.stderr
    assert "client" in done.stderr
    assert "in round" in done.stderr
    assert "fedcm resume runs/one" in done.stderr


@pytest.mark.slow
def test_ctrl_c_stops_all_workers_and_saves(experiment: Write, tmp_path: Path) -> None:
    path = experiment(rounds=100_000, client={"lr": 0.01}, checkpoints={"every": 50_000})
    folder = tmp_path / "runs" / "one"
    words = make_command("run", path, "--runs-dir", folder.parent, "--name", folder.name, "--workers", 2)
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while len(read_existing_lines(folder)) < 20:
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert f"fedcm resume {folder}" in err
    note = sorted((folder / "checkpoints").glob("*.json"))[-1]
    assert note.stem == f"round-{len(read_lines(folder)):06d}"
    assert not find_worker_processes(folder, process.pid)


def test_work_is_balanced_by_steps_and_covers_all_clients() -> None:
    steps = [9, 1, 1, 1, 1, 1, 4, 7]
    for size in (1, 2, 3, 10):
        dealt = divide_work(steps, size)
        assert sorted(sum(dealt, [])) == list(range(8))  # noqa: RUF017
        loads = [sum(steps[k] for k in share) for share in dealt]
        assert max(loads) <= max(9, -(-sum(steps) // size) + 4)


def test_two_threads_of_one_core_count_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of six allowed threads, two pairs share a core. Without information about cores, every thread counts."""
    siblings = {0: "0,4", 4: "0,4", 1: "1,5", 5: "1,5", 2: "2", 3: "3"}
    files = {f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list": text for cpu, text in siblings.items()}
    monkeypatch.setattr("os.sched_getaffinity", lambda process: set(siblings), raising=False)
    monkeypatch.setattr(Path, "read_text", lambda self: files[str(self)])
    assert count_physical_cores() == 4

    def raise_error(self: Path) -> str:
        raise FileNotFoundError

    monkeypatch.setattr(Path, "read_text", raise_error)
    assert count_physical_cores() == 6


def test_the_default_is_one_worker_per_core_or_cuda_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 3)
    monkeypatch.setattr("fedcm.system.hardware.count_physical_cores", lambda: 7)
    assert [count_default_workers(name) for name in ("cpu", "cuda", "cuda:1")] == [7, 3, 1]


def read_existing_lines(folder: Path) -> list[str]:
    try:
        return (folder / "metrics.jsonl").read_text().splitlines()
    except FileNotFoundError:
        return []


def test_a_checkpoint_does_not_contain_the_client_states(experiment: Write, tmp_path: Path) -> None:
    path = experiment(algorithm={"name": "scaffold"}, model={"name": "mlp", "hidden": [200]})
    folder = run_to_end(path, tmp_path / "runs")
    vectors = 2 * 4 * json.loads((folder / "summary.json").read_text())["parameters"]
    newest = sorted((folder / "checkpoints").glob("*.safetensors"))[-1]
    assert newest.stat().st_size < vectors + 5000
