"""An error in user code on a worker is reported as it is without workers."""

import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest
from cli_errors import ALGORITHM, Write
from failing_code import MODULE, OWN_ALGORITHM, check_error
from processes import make_command

ON_WORKER = """
import os
class OnWorker(nn.Linear):
    def __init__(self): super().__init__(6, 4)
    def forward(self, x):
        if "FEDCM_RANK" in os.environ and {when}: fail()
        return super().forward(x)
"""


def run_and_fail_on_two_workers(folder: Path, path: object, *words: str) -> str:
    """Run an experiment on two workers, check that it fails, and return stderr."""
    arguments = make_command("run", path, "--runs-dir", "runs", "--workers", 2, *words)
    done = subprocess.run(arguments, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    return done.stderr


@pytest.mark.slow
def test_a_workers_failure_is_reported_and_debug_adds_its_traceback(
    experiment: Write, tmp_path: Path, module: Callable[[str], str]
) -> None:
    """The error is in a local step, and only on a worker."""
    name = module(MODULE + ON_WORKER.format(when="torch.is_grad_enabled() and len(x) > 2"))
    path = experiment(model={"name": f"{name}:OnWorker"}, participation={"kind": "everyone"})
    stderr = run_and_fail_on_two_workers(tmp_path, path, "--debug")
    assert stderr.count("Traceback (most recent call last)") >= 1
    assert "in fail" in stderr
    sentence = check_error(stderr.replace("Traceback", ""), name, tmp_path)
    assert re.search(r"^fedcm: client \d+ failed in round 0 on worker 1, in the model: JSON", sentence), sentence


@pytest.mark.slow
def test_a_workers_failure_in_evaluation_is_reported(
    experiment: Write, tmp_path: Path, module: Callable[[str], str]
) -> None:
    code = (
        MODULE
        + ON_WORKER.format(when="not self.training and len(x) > 2")
        + dedent("""
    def many():
        x = np.ones((700, 6), np.float32)
        return (x[:24], np.arange(24) % 4), (x, np.arange(700) % 4)
    """)
    )
    name = module(code)
    path = experiment(model={"name": f"{name}:OnWorker"}, data={"source": f"{name}:many"}, evaluation={"every": 1})
    stderr = run_and_fail_on_two_workers(tmp_path, path)
    sentence = check_error(stderr, name, tmp_path)
    assert "the evaluation failed on worker 1, in the model: JSONDecodeError" in sentence


@pytest.mark.slow
def test_an_algorithm_that_fails_only_in_a_worker_is_reported(
    experiment: Write, tmp_path: Path, module: Callable[[str], str]
) -> None:
    changed = OWN_ALGORITHM.replace(
        "if where == self.where and", 'if "FEDCM_RANK" in os.environ and where == "update" and'
    )
    name = module(f"import os\n{MODULE}{ALGORITHM}{changed}")
    path = experiment(algorithm={"name": f"{name}:Own"})
    stderr = run_and_fail_on_two_workers(tmp_path, path)
    assert "round 0 failed: JSONDecodeError" in check_error(stderr, name, tmp_path)
