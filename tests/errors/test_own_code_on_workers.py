"""An error in a user's own code on a worker is reported as it is without workers."""

import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest
from answers import ALGORITHM, Write
from own_code import MODULE, OWN_ALGORITHM, told
from processes import command

ON_WORKER = """
import os
class OnWorker(nn.Linear):
    def __init__(self): super().__init__(6, 4)
    def forward(self, x):
        if "FEDCM_RANK" in os.environ and {when}: fail()
        return super().forward(x)
"""


def fail_on_two_workers(folder: Path, path: object, *words: str) -> str:
    """What `fedcm run` says on stderr."""
    whole = command("run", path, "--runs-dir", "runs", "--workers", 2, *words)
    done = subprocess.run(whole, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    return done.stderr


def test_a_workers_failure_is_told_in_the_same_way_and_debug_brings_its_traceback(
    experiment: Write, tmp_path: Path, module: Callable[[str], str]
) -> None:
    """In a step on a worker alone."""
    name = module(MODULE + ON_WORKER.format(when="torch.is_grad_enabled() and len(x) > 2"))
    path = experiment(model={"name": f"{name}:OnWorker"}, participation={"kind": "everyone"})
    said = fail_on_two_workers(tmp_path, path, "--debug")
    assert said.count("Traceback (most recent call last)") >= 1
    assert "in fail" in said
    sentence = told(said.replace("Traceback", ""), name, tmp_path)
    assert re.search(r"^fedcm: client \d+ failed in round 0 on worker 1, in the model: JSON", sentence), sentence


@pytest.mark.slow
def test_a_workers_failure_in_evaluation_is_told_too(
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
    said = fail_on_two_workers(tmp_path, path)
    sentence = told(said, name, tmp_path)
    assert "the evaluation failed on worker 1, in the model: JSONDecodeError" in sentence


def test_an_algorithm_that_fails_in_a_worker_alone_is_told_too(
    experiment: Write, tmp_path: Path, module: Callable[[str], str]
) -> None:
    changed = OWN_ALGORITHM.replace(
        "if where == self.where and", 'if "FEDCM_RANK" in os.environ and where == "update" and'
    )
    name = module(f"import os\n{MODULE}{ALGORITHM}{changed}")
    path = experiment(algorithm={"name": f"{name}:Own"})
    said = fail_on_two_workers(tmp_path, path)
    assert "round 0 failed: JSONDecodeError" in told(said, name, tmp_path)
