"""The same runs under torchrun: real agents, on this machine and on two that differ in folder, data and file system."""

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
from scenes import get_private_mount_command, load_summary, read_lines, run_to_end, small_experiment

from fedcm.algorithms import ALGORITHMS
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
class Ended:
    code: int
    said: str


def agent(*words: object, folder: Path, before: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    """One torchrun command, as on one machine."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "FEDCM_WORKERS": "7"}
    command = [*before, sys.executable, "-m", "torch.distributed.run", *map(str, words)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen(command, cwd=folder, env=environment, **pipes)


def ended(process: subprocess.Popen[str]) -> Ended:
    said, _ = process.communicate(timeout=300)
    return Ended(process.returncode, said)


def on_one_machine(folder: Path, *words: object, options: tuple[str, ...] = ()) -> Ended:
    return ended(agent("--standalone", "--nproc-per-node", 2, *options, "-m", "fedcm", *words, folder=folder))


def same(folder: Path, reference: Path) -> None:
    assert read_lines(folder) == read_lines(reference)
    assert load_summary(folder)["params_sha256"] == load_summary(reference)["params_sha256"]


def test_torchrun_gives_the_same_bits_and_the_first_process_alone_speaks(experiment: Write, tmp_path: Path) -> None:
    path = experiment(algorithm={"name": "scaffold"})
    reference = run_to_end(path, tmp_path / "runs")
    done = on_one_machine(tmp_path, "run", path, "--name", "shared")
    assert done.code == 0, done.said
    assert done.said.count("run runs/shared") == 1
    same(tmp_path / "runs" / "shared", reference)


@pytest.mark.slow
@pytest.mark.parametrize("processes", [2, 3])
def test_a_comparison_under_torchrun_runs_one_after_another_to_the_same_bits(
    experiment: Write, tmp_path: Path, processes: int
) -> None:
    path = experiment(rounds=4)
    words = ("-m", "fedcm", "compare", path, "--json")  # all the bundled algorithms
    done = ended(agent("--standalone", "--nproc-per-node", processes, *words, folder=tmp_path))
    assert done.code == 0, done.said
    for algorithm in ALGORITHMS:
        alone = run_to_end(experiment(rounds=4, algorithm={"name": algorithm}), tmp_path / "alone", algorithm)
        same(tmp_path / "runs" / f"small-{algorithm}-seed3", alone)


def test_a_refusal_ends_all_and_is_said_once(experiment: Write, tmp_path: Path) -> None:
    done = on_one_machine(tmp_path, "run", experiment(), "--workers", 5)
    assert done.code != 0
    assert done.said.count("fedcm: --workers must be left out under torchrun, which started 2") == 1, done.said
    assert done.said.count("fedcm: ") == 1
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    "death", [pytest.param(when, marks=pytest.mark.slow) for when in ("1 in a round", "0 in a round", "0 at once")]
)
def test_after_a_restart_the_same_run_goes_on_to_the_same_bits(
    experiment: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, death: str
) -> None:
    (tmp_path / "dying.py").write_text(DYING)
    path = experiment(model={"name": "dying:Dying"}, algorithm={"name": "scaffold"}, rounds=40)
    (tmp_path / "dies").write_text(death)
    done = on_one_machine(tmp_path, "run", path, options=("--max-restarts", "1", "--rdzv-id", "none"))
    assert done.code == 0, done.said
    assert not (tmp_path / "dies").exists(), "somebody died"
    assert ("resumes at round" in done.said) == (death != "0 at once"), done.said
    assert [run.name for run in (tmp_path / "runs").iterdir()] == ["small-scaffold-seed3"]
    monkeypatch.chdir(tmp_path)
    same(tmp_path / "runs" / "small-scaffold-seed3", run_to_end(path, tmp_path / "undisturbed"))


def test_a_job_finds_the_run_that_it_began_and_no_other(experiment: Write, tmp_path: Path) -> None:
    folder = run_to_end(experiment(rounds=1), tmp_path / "runs")
    assert find_run_of_job("mine", tmp_path / "runs") is None
    assert find_run_of_job("mine", tmp_path / "nowhere") is None
    known = json.loads((folder / "provenance.json").read_text())
    (folder / "provenance.json").write_text(json.dumps(known | {"job": "mine"}))
    found = find_run_of_job("mine", tmp_path / "runs")
    assert found is not None
    assert found.path == folder
    assert find_run_of_job("another", tmp_path / "runs") is None


def on_two_machines(tmp_path: Path, algorithm: str, second_seed: int = 5) -> tuple[Ended, Ended]:
    """The second has its own working folder and data, no experiment, and nothing of the first one's runs."""
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
        agent(*options, "--node-rank", 0, *words, folder=first),
        agent(*options, "--node-rank", 1, *words, folder=second, before=hidden),
    ]
    one, two = [ended(process) for process in agents]
    return one, two


@pytest.mark.slow
def test_two_machines_that_share_nothing_give_the_same_bits(tmp_path: Path) -> None:
    one, two = on_two_machines(tmp_path, "fedcm")
    assert (one.code, two.code) == (0, 0), one.said + two.said
    assert "fedcm" not in two.said.replace("torch/distributed", ""), "the others print nothing"
    assert not (tmp_path / "second" / "runs").exists()
    words = [sys.executable, "-m", "fedcm", "run", "small.toml", "--name", "alone"]
    subprocess.run(words, cwd=tmp_path / "first", check=True, capture_output=True)
    same(tmp_path / "first" / "runs" / "shared", tmp_path / "first" / "runs" / "alone")


@pytest.mark.slow
def test_other_data_on_another_machine_are_refused(tmp_path: Path) -> None:
    one, two = on_two_machines(tmp_path, "fedcm", second_seed=6)
    assert one.code != 0
    assert two.code != 0
    assert "worker 1 on " in one.said
    assert "the data must be those of rank 0" in one.said
    assert "fedcm: " not in two.said
    assert not list((tmp_path / "first" / "runs").iterdir()), "refused before anything is written"


@pytest.mark.slow
def test_states_of_clients_need_a_folder_that_all_machines_share(tmp_path: Path) -> None:
    one, _ = on_two_machines(tmp_path, "scaffold")
    assert one.code != 0
    assert "give a --runs-dir that all machines share" in one.said
    assert not list((tmp_path / "first" / "runs").iterdir())
