"""Training with very large gradients works and has the same bits on any number of workers and after a resume."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from scenes import load_summary, read_lines, resume_run, run_and_stop_after, run_to_end
from torch import nn

import fedcm

Write = Callable[..., Path]

LARGE = 3e4  # features of this size give gradients of its square, 1e9: far past the single limb's 2¹⁴ / S


def regression() -> list[tuple[torch.Tensor, torch.Tensor]]:
    draw = torch.Generator().manual_seed(0)
    x = LARGE * torch.randn(80, 3, generator=draw)
    y = x @ torch.tensor([1.0, -2.0, 0.5])
    return [(x[k::8], y[k::8]) for k in range(8)]


@pytest.mark.slow
@pytest.mark.parametrize(
    "algorithm", [fedcm.FedAvg(), fedcm.FedCM(0.3), fedcm.Scaffold("I"), fedcm.Scaffold("II")], ids=str
)
@pytest.mark.parametrize("stack", [1, 4])
def test_linear_regression_with_large_features_trains(algorithm: fedcm.Algorithm, stack: int) -> None:
    torch.manual_seed(0)
    clients = regression()
    trained = fedcm.train(
        nn.Linear(3, 1, bias=False), clients, algorithm, rounds=80, lr=0.05 / LARGE**2, steps=5, stack=stack
    )
    found = next(trained.model.parameters()).detach().flatten()
    torch.testing.assert_close(found, torch.tensor([1.0, -2.0, 0.5]), rtol=0.02, atol=0.02)
    assert trained.history[-1]["loss"] < 1e-3 * trained.history[0]["loss"]


@pytest.fixture
def large(experiment: Write, tmp_path: Path) -> Path:
    """SCAFFOLD on features of 3·10⁴: controls and momenta need a second limb in every round."""
    clients = regression()
    x, y = (torch.cat(parts).numpy() for parts in zip(*clients, strict=True))
    np.savez(tmp_path / "large.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    return experiment(
        data={"source": str(tmp_path / "large.npz")},
        split={"kind": "iid", "clients": 12},
        participation={"kind": "fixed", "clients": 5},
        model={"name": "linear"},
        algorithm={"name": "scaffold"},
        client={"lr": 0.02 / LARGE**2, "steps": 4, "batch_size": 7},
    )


@pytest.mark.slow
def test_large_reports_have_the_same_bits_on_several_workers_and_after_a_resume(large: Path, tmp_path: Path) -> None:
    reference = run_to_end(large, tmp_path / "runs")
    assert max(line["control_norm"] for line in read_lines(reference)) > 1e8
    words = [sys.executable, "-m", "fedcm", "run", large, "--runs-dir", tmp_path / "runs", "--name", "shared"]
    done = subprocess.run(
        [*map(str, words), "--workers", "2"], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    resumed = run_and_stop_after(5, large, tmp_path / "runs", "resumed")
    resume_run(resumed)
    for folder in (tmp_path / "runs" / "shared", resumed):
        assert read_lines(folder) == read_lines(reference)
        assert load_summary(folder)["params_sha256"] == load_summary(reference)["params_sha256"]
