"""Trainings with forked workers: failures, Ctrl-C, and what is left afterwards."""

import gc
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
import torch
from test_state import SETTINGS, make_clients, make_model

import fedcm

_PREAMBLE = """
import os, signal, tempfile
import torch, fedcm

parent, calls = os.getpid(), 0

def loss(outputs, labels):
    global calls
    calls += 1
    if os.getpid() == parent and calls == 40:
        os.killpg(0, signal.SIGINT)
    return torch.nn.functional.cross_entropy(outputs, labels)

model = torch.nn.Linear(1, 2)
clients = [(torch.linspace(-1, 1, 8)[:, None], torch.arange(8) // 4) for _ in range(4)]
"""


def run_interrupted(script: str) -> subprocess.CompletedProcess[str]:
    """Run a script in a process group of its own, which it may interrupt as Ctrl-C does."""
    code = _PREAMBLE + textwrap.dedent(script)
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, start_new_session=True, timeout=120, check=False
    )


def count_children() -> int:
    pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return sum(_read_parent(pid) == os.getpid() for pid in pids)


def count_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def _read_parent(pid: int) -> int | None:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return None


def train_with_a_killed_worker() -> None:
    parent = os.getpid()

    def kill_worker(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        if os.getpid() != parent:
            os.kill(os.getpid(), signal.SIGKILL)
        return torch.nn.functional.cross_entropy(outputs, labels)

    fedcm.train(make_model(), make_clients(), fedcm.FedCM(), rounds=3, loss=kill_worker, workers=2, **SETTINGS)


def test_a_killed_worker_is_reported_with_its_client() -> None:
    expected = r"worker 1 was killed by SIGKILL while it trained client \d+ in round 0"
    with pytest.raises(fedcm.TrainingFailed, match=expected):
        train_with_a_killed_worker()


def test_a_fork_does_not_collect_the_garbage_of_a_failed_training() -> None:
    """The garbage has a process group, whose end would wait in the fork for threads that are not there."""
    collectors = [gc.collect]
    os.register_at_fork(after_in_child=lambda: [collect() for collect in collectors])
    gc.disable()
    try:
        with pytest.raises(fedcm.TrainingFailed):
            train_with_a_killed_worker()
        trained = fedcm.train(make_model(), make_clients(), fedcm.FedCM(), rounds=1, workers=2, **SETTINGS)
    finally:
        gc.enable()
        collectors.clear()
    assert len(trained.history) == 1


def test_a_second_training_with_workers_is_rejected_and_the_first_continues() -> None:
    given: Any = (make_model(), make_clients(), fedcm.FedCM())
    first = fedcm.rounds(*given, rounds=3, workers=2, **SETTINGS)
    next(first)
    with pytest.raises(fedcm.UserError, match="only one training with workers"):
        fedcm.train(*given, rounds=1, workers=2, **SETTINGS)
    assert [round.index for round in first] == [1, 2]
    assert len(fedcm.train(*given, rounds=1, workers=2, **SETTINGS).history) == 1


def test_a_run_that_cannot_have_workers_leaves_no_folder(tmp_path: Path) -> None:
    given: Any = (make_model(), make_clients(), fedcm.FedCM())
    first = fedcm.rounds(*given, rounds=3, workers=2, **SETTINGS)
    next(first)
    with pytest.raises(fedcm.UserError, match="only one training with workers"):
        fedcm.run(fedcm.make_experiment(*given, rounds=1), workers=2, runs_dir=tmp_path)
    first.close()
    assert not list(tmp_path.iterdir())


def test_nothing_is_left_of_a_generator_that_is_not_exhausted() -> None:
    given: Any = (make_model(), make_clients(), fedcm.Scaffold())

    def take_one() -> None:
        for _ in fedcm.rounds(*given, rounds=30, workers=2, **SETTINGS):
            break

    take_one()
    descriptors, children = count_descriptors(), count_children()
    for _ in range(3):
        take_one()
    assert (count_descriptors(), count_children()) == (descriptors, children)


@pytest.mark.slow
def test_workers_print_nothing_when_ctrl_c_stops_a_training() -> None:
    result = run_interrupted("""
        trained = fedcm.train(model, clients, fedcm.FedCM(), rounds=1000, loss=loss, workers=3)
        print(trained.stopped, trained.state.next_round == len(trained.history))
    """)
    assert result.stdout.split() == ["True", "True"]
    assert result.stderr.strip() == "stopping at the next client; repeat to stop at once"


def test_workers_print_nothing_when_ctrl_c_leaves_a_loop_over_rounds() -> None:
    result = run_interrupted("""
        try:
            for round in fedcm.rounds(model, clients, fedcm.FedCM(), rounds=1000, loss=loss, workers=3):
                pass
        except KeyboardInterrupt:
            print("interrupted")
    """)
    assert result.stdout.split() == ["interrupted"]
    assert result.stderr == ""


def test_a_loop_over_rounds_may_catch_ctrl_c_and_continue() -> None:
    result = run_interrupted("""
        for round in fedcm.rounds(model, clients, fedcm.FedCM(), rounds=3, workers=2):
            try:
                if round.index == 0:
                    os.killpg(0, signal.SIGINT)
                    signal.pause()
            except KeyboardInterrupt:
                print("interrupted")
        print(round.index)
    """)
    assert result.stdout.split() == ["interrupted", "2"]
    assert result.stderr == ""


def test_the_lock_ends_with_rank_0_even_if_a_worker_is_busy(tmp_path: Path) -> None:
    script = f"""
        import time
        def slow(outputs, labels):
            global calls
            calls += os.getpid() == parent
            if os.getpid() != parent:
                time.sleep(30)
            elif calls == 40:
                time.sleep(1)
                os.kill(parent, signal.SIGKILL)
            return torch.nn.functional.cross_entropy(outputs, labels)
        experiment = fedcm.make_experiment(model, clients, fedcm.FedCM(), rounds=9, loss=slow, batch_size=1, epochs=20)
        fedcm.run(experiment, name="mine", workers=2, runs_dir={str(tmp_path)!r})
    """
    command = [sys.executable, "-c", _PREAMBLE + textwrap.dedent(script)]
    process = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=120, check=False)
    assert process.returncode == -signal.SIGKILL
    assert fedcm.Run(tmp_path / "mine").outcome == "stopped"
