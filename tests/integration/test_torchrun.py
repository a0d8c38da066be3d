"""Runs under torchrun with real agents: on one machine, and on two with different folders, data and file systems."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import tomli_w
from scenes import forget_manifest, get_private_mount_command, load_summary, read_lines, run_to_end, small_experiment

from fedcm.algorithms import PAPER_ALGORITHMS
from fedcm.runs.folder import find_run_of_job

Write = Callable[..., Path]

OWN_DATA = """
import numpy as np

def made():
    draw = np.random.default_rng({seed})
    x = draw.normal(size=(320, 6)).astype(np.float32)
    y = (x @ draw.normal(size=(6, 4))).argmax(1)
    return (x[:240], y[:240]), (x[240:], y[240:])
"""
DYING = """
import os
from pathlib import Path
from torch import nn

class Dying(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.calls = nn.Linear(6, 4), 0
        self.die_once("{rank} at once")

    def forward(self, x):
        self.calls += 1
        if self.calls > 60:
            self.die_once("{rank} in a round")
        return self.linear(x)

    def die_once(self, where):
        plan = Path("dies")
        if plan.exists() and plan.read_text() == where.format(rank=os.environ.get("RANK")):
            plan.unlink()
            os.kill(os.getpid(), 9)
"""


@dataclass
class AgentResult:
    code: int
    output: str


def start_agent(*words: object, folder: Path, before: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    """Start one torchrun command, as on one machine."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "FEDCM_WORKERS": "7"}
    command = [*before, sys.executable, "-m", "torch.distributed.run", *map(str, words)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen(command, cwd=folder, env=environment, **pipes)


def wait_for_agent(process: subprocess.Popen[str]) -> AgentResult:
    output, _ = process.communicate(timeout=300)
    return AgentResult(process.returncode, output)


def run_on_one_machine(folder: Path, *words: object, options: tuple[str, ...] = ()) -> AgentResult:
    return wait_for_agent(
        start_agent("--standalone", "--nproc-per-node", 2, *options, "-m", "fedcm", *words, folder=folder)
    )


def assert_same_bits(folder: Path, reference: Path) -> None:
    assert read_lines(folder) == read_lines(reference)
    assert load_summary(folder)["params_sha256"] == load_summary(reference)["params_sha256"]


@pytest.mark.slow
def test_torchrun_gives_the_same_bits_and_only_rank_0_prints(experiment: Write, tmp_path: Path) -> None:
    path = experiment(algorithm={"name": "scaffold"})
    reference = run_to_end(path, tmp_path / "runs")
    done = run_on_one_machine(tmp_path, "run", path, "--name", "shared")
    assert done.code == 0, done.output
    assert done.output.count("run runs/shared") == 1
    assert_same_bits(tmp_path / "runs" / "shared", reference)


@pytest.mark.slow
@pytest.mark.parametrize("processes", [2, 3])
def test_a_comparison_under_torchrun_has_the_same_bits(experiment: Write, tmp_path: Path, processes: int) -> None:
    path = experiment(rounds=4)
    words = ("-m", "fedcm", "compare", path, "--json")  # all the bundled algorithms
    done = wait_for_agent(start_agent("--standalone", "--nproc-per-node", processes, *words, folder=tmp_path))
    assert done.code == 0, done.output
    for algorithm in PAPER_ALGORITHMS:
        alone = run_to_end(experiment(rounds=4, algorithm={"name": algorithm}), tmp_path / "alone", algorithm)
        assert_same_bits(tmp_path / "runs" / f"small-{algorithm}-seed3", alone)


@pytest.mark.slow
def test_an_error_ends_all_processes_and_is_printed_once(experiment: Write, tmp_path: Path) -> None:
    done = run_on_one_machine(tmp_path, "run", experiment(), "--workers", 5)
    assert done.code != 0
    assert done.output.count("fedcm: --workers must be left out under torchrun, which started 2") == 1, done.output
    assert done.output.count("fedcm: ") == 1
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    "death", [pytest.param(when, marks=pytest.mark.slow) for when in ("1 in a round", "0 in a round", "0 at once")]
)
def test_a_restarted_job_resumes_its_run_to_the_same_bits(
    experiment: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, death: str
) -> None:
    (tmp_path / "dying.py").write_text(DYING)
    path = experiment(model={"name": "dying:Dying"}, algorithm={"name": "scaffold"}, rounds=40)
    (tmp_path / "dies").write_text(death)
    done = run_on_one_machine(tmp_path, "run", path, options=("--max-restarts", "1", "--rdzv-id", "none"))
    assert done.code == 0, done.output
    assert not (tmp_path / "dies").exists(), "a process was killed"
    assert ("resumes at round" in done.output) == (death != "0 at once"), done.output
    assert [run.name for run in (tmp_path / "runs").iterdir()] == ["small-scaffold-seed3"]
    monkeypatch.chdir(tmp_path)
    assert_same_bits(tmp_path / "runs" / "small-scaffold-seed3", run_to_end(path, tmp_path / "undisturbed"))


def test_a_job_finds_only_its_own_run(experiment: Write, tmp_path: Path) -> None:
    folder = run_to_end(experiment(rounds=1), tmp_path / "runs")
    assert find_run_of_job("mine", tmp_path / "runs") is None
    assert find_run_of_job("mine", tmp_path / "nowhere") is None
    known = json.loads((folder / "provenance.json").read_text())
    (forget_manifest(folder) / "provenance.json").write_text(json.dumps(known | {"job": "mine"}))
    found = find_run_of_job("mine", tmp_path / "runs")
    assert found is not None
    assert found.path == folder
    assert find_run_of_job("another", tmp_path / "runs") is None


def run_on_two_machines(tmp_path: Path, algorithm: str, second_seed: int = 5) -> tuple[AgentResult, AgentResult]:
    """Run on two machines; the second has its own folder and data, and no access to the experiment and the runs."""
    private = get_private_mount_command()
    first, second = tmp_path / "first", tmp_path / "second"
    for folder, seed in ((first, 5), (second, second_seed)):
        folder.mkdir()
        (folder / "own.py").write_text(OWN_DATA.format(seed=seed))
    (first / "runs").mkdir()
    table = small_experiment("own:made", algorithm={"name": algorithm})
    (first / "small.toml").write_text(tomli_w.dumps(table))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        where = ("--master-addr", "127.0.0.1", "--master-port", free.getsockname()[1])
    options = ("--nnodes", 2, "--nproc-per-node", 1, *where)
    words = ("-m", "fedcm", "run", "small.toml", "--name", "shared")
    hidden = (*private, "sh", "-c", 'mount -t tmpfs none "$0" && exec "$@"', str(first / "runs"))
    agents = [
        start_agent(*options, "--node-rank", 0, *words, folder=first),
        start_agent(*options, "--node-rank", 1, *words, folder=second, before=hidden),
    ]
    one, two = [wait_for_agent(process) for process in agents]
    return one, two


@pytest.mark.slow
def test_two_machines_that_share_nothing_give_the_same_bits(tmp_path: Path) -> None:
    one, two = run_on_two_machines(tmp_path, "fedcm")
    assert (one.code, two.code) == (0, 0), one.output + two.output
    assert "fedcm" not in two.output.replace("torch/distributed", ""), "the others print nothing"
    assert not (tmp_path / "second" / "runs").exists()
    words = [sys.executable, "-m", "fedcm", "run", "small.toml", "--name", "alone"]
    subprocess.run(words, cwd=tmp_path / "first", check=True, capture_output=True)
    assert_same_bits(tmp_path / "first" / "runs" / "shared", tmp_path / "first" / "runs" / "alone")


@pytest.mark.slow
def test_different_data_on_another_machine_are_rejected(tmp_path: Path) -> None:
    one, two = run_on_two_machines(tmp_path, "fedcm", second_seed=6)
    assert one.code != 0
    assert two.code != 0
    assert "worker 1 on " in one.output
    assert "the data must be those of rank 0" in one.output
    assert "fedcm: " not in two.output
    assert not list((tmp_path / "first" / "runs").iterdir()), "rejected before anything is written"


@pytest.mark.slow
def test_client_states_need_a_folder_that_all_machines_share(tmp_path: Path) -> None:
    one, _ = run_on_two_machines(tmp_path, "scaffold")
    assert one.code != 0
    assert "give a --runs-dir that all machines share" in one.output
    assert not list((tmp_path / "first" / "runs").iterdir())
