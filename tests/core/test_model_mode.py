"""Every module trains in the mode in which it was given: frozen modules stay frozen, updated statistics raise."""

import copy
import subprocess
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from processes import make_command, run_with_workers
from safetensors.torch import load_file
from scenes import load_summary, read_lines, resume_run, run_and_stop_after, run_to_end, small_experiment
from tomli_w import dumps
from torch import Tensor, nn

import fedcm
from fedcm.config.sections import EngineSection
from fedcm.core.model_mode import eval_mode
from fedcm.core.participation import Everyone
from fedcm.core.problem import Problem
from fedcm.core.round_loop import TrainingPlan
from fedcm.core.schedule import Schedule
from fedcm.data.batches import LocalWork
from fedcm.data.dataset import Dataset, Examples
from fedcm.data.federated import ArrayData
from fedcm.errors import UserError
from fedcm.runs.autotune import tune_engine

DRAW = torch.Generator().manual_seed(0)
SIZES = (9, 4, 6, 3, 8)
CLIENTS = [(torch.randn(size, 2, 5, 5, generator=DRAW), torch.randint(3, (size,), generator=DRAW)) for size in SIZES]
TEST = torch.randn(30, 2, 5, 5, generator=DRAW), torch.randint(3, (30,), generator=DRAW)


class Constants(nn.Module):
    """Batch norm with constant statistics, as a formula."""

    def __init__(self, norm: nn.BatchNorm2d) -> None:
        super().__init__()
        assert norm.running_mean is not None
        assert norm.running_var is not None
        self.weight, self.bias = nn.Parameter(norm.weight.detach().clone()), nn.Parameter(norm.bias.detach().clone())
        self.mean, self.deviation = norm.running_mean.clone(), (norm.running_var + norm.eps).sqrt()

    def forward(self, x: Tensor) -> Tensor:
        columns = [part[:, None, None] for part in (self.mean, self.deviation, self.weight, self.bias)]
        return (x - columns[0]) / columns[1] * columns[2] + columns[3]


class BatchStatistics(nn.Module):
    """Batch norm with the statistics of each batch, as a formula."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(channels)), nn.Parameter(torch.zeros(channels))

    def forward(self, x: Tensor) -> Tensor:
        deviation = (x.var((0, 2, 3), unbiased=False, keepdim=True) + 1e-5).sqrt()
        normal = (x - x.mean((0, 2, 3), keepdim=True)) / deviation
        return normal * self.weight[:, None, None] + self.bias[:, None, None]


def network(norm: nn.Module, last: nn.Module | None = None) -> nn.Sequential:
    torch.manual_seed(3)
    layers = [nn.Conv2d(2, 4, 3), norm, nn.ReLU(), nn.Flatten(), last or nn.Identity(), nn.Linear(4 * 9, 3)]
    return nn.Sequential(*layers)


def frozen_norm() -> nn.BatchNorm2d:
    norm = nn.BatchNorm2d(4)
    draw = torch.Generator().manual_seed(1)
    assert norm.running_mean is not None
    assert norm.running_var is not None
    norm.running_mean.copy_(torch.randn(4, generator=draw))
    norm.running_var.copy_(torch.rand(4, generator=draw) + 0.5)
    return norm.eval()


def train_model(model: nn.Module, **changes: Any) -> fedcm.TrainingResult:
    settings: dict[str, Any] = {"rounds": 3, "lr": 0.1, "batch_size": 4, "epochs": 2, "test": TEST}
    settings |= {"evaluate_every": 1}
    return fedcm.train(model, CLIENTS, fedcm.FedCM(alpha=0.3), **settings | changes)


@pytest.mark.parametrize("stack", [1, 3])
def test_frozen_batch_norm_trains_as_its_formula_with_constant_statistics(stack: int) -> None:
    norm = frozen_norm()
    model = network(norm)
    before = copy.deepcopy(model.state_dict())
    found, history = train_model(model, stack=stack)
    expected, expected_history = train_model(network(Constants(norm)))
    for one, other in zip(found.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
    assert [line["test_loss"] for line in history] == pytest.approx(
        [line["test_loss"] for line in expected_history], rel=1e-4
    )
    for name, buffer in found.named_buffers():
        assert torch.equal(buffer, before[name])
    assert not torch.equal(found.get_parameter("1.weight"), before["1.weight"])
    modes = [module.training for module in found.modules()]
    assert modes == [module.training for module in model.modules()]
    assert modes.count(False) == 1
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_batch_norm_with_batch_statistics_trains_as_its_formula() -> None:
    found, _ = train_model(network(nn.BatchNorm2d(4, track_running_stats=False)))
    expected, _ = train_model(network(BatchStatistics(4)))
    for one, other in zip(found.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)


def test_frozen_dropout_drops_nothing_and_can_be_stacked() -> None:
    plain, _ = train_model(network(nn.Identity()), stack=2)
    frozen, _ = train_model(network(nn.Identity(), nn.Dropout(0.9).eval()), stack=2)
    active, _ = train_model(network(nn.Identity(), nn.Dropout(0.9)))
    pairs = list(zip(plain.parameters(), frozen.parameters(), active.parameters(), strict=True))
    assert all(torch.equal(one, two) for one, two, _ in pairs)
    assert not all(torch.equal(one, three) for one, _, three in pairs)


@pytest.mark.parametrize("norm", [nn.InstanceNorm2d(4, affine=True), nn.GroupNorm(2, 4)], ids=str)
def test_norms_over_single_examples_can_be_stacked(norm: nn.Module) -> None:
    alone, _ = train_model(network(norm))
    stacked, _ = train_model(network(norm), stack=3)
    for one, other in zip(alone.parameters(), stacked.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)


def test_frozen_instance_norm_with_running_statistics_is_accepted() -> None:
    norm = nn.InstanceNorm2d(4, affine=True, track_running_stats=True)
    with pytest.raises(UserError, match="InstanceNorm2d at '1' does, because it is in training mode"):
        train_model(network(norm))
    found, _ = train_model(network(norm.eval()))
    assert torch.equal(found.get_buffer("1.running_mean"), torch.zeros(4))


class Centred(nn.Module):
    """A module whose output for an example depends on the other examples of the batch."""

    def forward(self, x: Tensor) -> Tensor:
        return x - x.mean(0, keepdim=True)


class Noisy(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + 0.1 * torch.randn_like(x)


@pytest.mark.parametrize(
    ("norm", "message"),
    [
        (nn.BatchNorm2d(4, track_running_stats=False), "BatchNorm2d at '1'"),
        (Centred(), "the output for an example depends on the other examples of its batch"),
        (Noisy(), "cannot be stacked"),
    ],
    ids=lambda case: str(case),
)
def test_a_model_that_mixes_examples_cannot_be_stacked(norm: nn.Module, message: str) -> None:
    model = network(norm)
    with pytest.raises(UserError, match=message) as raised:
        train_model(model, stack=2)
    assert "set engine.stack = 1" in str(raised.value)
    assert not list_measured_stacks(model)
    assert list_measured_stacks(network(nn.GroupNorm(2, 4)))
    assert train_model(model).history[-1]["loss"] > 0


def list_measured_stacks(model: nn.Module) -> list[str]:
    """Return the stacks that autotuning measures for this model; none means that the stack stays at 1."""
    parts = np.split(np.arange(40), 20)
    dataset = Dataset("made", Examples(torch.cat([x for x, _ in CLIENTS] * 2)[:40], torch.arange(40) % 3), None, 3)
    plan = TrainingPlan(10, 20, Everyone(), Schedule(0.1))
    found = tune_engine(EngineSection(), Problem(model), ArrayData(dataset, parts), LocalWork(2), plan)
    return [name for name in found.step_milliseconds if name.startswith("stack")]


@pytest.mark.parametrize(
    ("changes", "rejected"),
    [
        ({"batch_size": 4}, True),  # 9 = 4 + 4 + 1
        ({"batch_size": 1}, True),
        ({"batch_size": 5}, True),  # 6 = 5 + 1
        ({"batch_size": 10}, False),
        ({"batch_size": 4, "steps": 1, "epochs": None}, False),  # no client reaches its last batch
    ],
)
def test_batches_of_one_example_raise_before_training_if_the_model_cannot_take_them(
    changes: dict[str, Any], rejected: bool
) -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(50, 4), nn.BatchNorm1d(4, track_running_stats=False), nn.Linear(4, 3))
    if not rejected:
        assert len(train_model(model, **changes).history) == 3
        return
    message = (
        r"failed on a batch of one example; client \d has such a batch, with \d+ examples? and client.batch_size ="
    )
    with pytest.raises(UserError, match=message):
        train_model(model, **changes)


def test_a_single_last_test_example_raises_before_training() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(50, 4), nn.BatchNorm1d(4, track_running_stats=False), nn.Linear(4, 3))
    x = torch.zeros(501, 2, 5, 5)
    message = "the last batch of the test set has one, because its 501 examples are evaluated 500 at a time"
    with pytest.raises(UserError, match=message):
        train_model(model, batch_size=10, test=(x, torch.zeros(501).long()))


def test_a_model_in_eval_mode_trains_without_dropout_and_warns() -> None:
    model = network(nn.BatchNorm2d(4), nn.Dropout(0.5)).eval()
    with pytest.warns(fedcm.EvalModeWarning, match="its dropout is off; call model.train\\(\\) first"):
        found, _ = train_model(model)
    assert not any(module.training for module in found.modules())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        train_model(network(frozen_norm(), nn.Dropout(0.5).eval()))  # deliberately frozen
        train_model(network(nn.BatchNorm2d(4)).eval())


def test_evaluation_restores_the_mode_of_every_module() -> None:
    shared = nn.Dropout()

    class Own(nn.Sequential):
        """Keeps its first child frozen, as many pretrained networks do, and counts calls of `train(True)`."""

        merged = 0

        def train(self, mode: bool = True) -> nn.Module:
            super().train(mode)
            self[0].eval()
            self.merged += 1 if mode else -1
            return self

    model = nn.Sequential(nn.Sequential(nn.Dropout(), shared), Own(nn.Dropout(), nn.Dropout()), nn.Sequential(shared))
    model.train()
    for frozen in (model[0][0], shared, model[2]):  # pyright: ignore[reportIndexIssue]
        frozen.training = False
    before = [module.training for module in model.modules()]
    balance = model[1].merged
    with eval_mode(model):
        assert not any(module.training for module in model.modules())
    assert [module.training for module in model.modules()] == before
    assert model[1].merged == balance, "a module that overrides train() must get both calls"


FACTORY = """
import torch
from torch import nn

def factory(input_shape, classes):
    norm = nn.BatchNorm1d(8)
    norm.running_mean.copy_(torch.linspace(-1, 1, 8))
    norm.running_var.fill_(0.25)
    return nn.Sequential(nn.Linear(input_shape[0], 8), norm.eval(), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, classes))
"""


@pytest.fixture
def own_norm(tmp_path: Path, npz: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "own_norm.py").write_text(FACTORY)
    path = tmp_path / "small.toml"
    path.write_text(dumps(small_experiment(npz, model={"name": "own_norm:factory"})))
    return path


@pytest.mark.slow
def test_frozen_statistics_are_the_same_in_workers_after_a_resume_and_in_the_trained_model(
    own_norm: Path, tmp_path: Path, npz: Path
) -> None:
    reference = run_to_end(own_norm, tmp_path / "runs")
    run_with_workers(own_norm, tmp_path / "runs" / "shared", 2)
    resumed = run_and_stop_after(5, own_norm, tmp_path / "runs", "resumed")
    resume_run(resumed)
    for other in (tmp_path / "runs" / "shared", resumed):
        assert read_lines(other) == read_lines(reference)
        assert load_summary(other)["params_sha256"] == load_summary(reference)["params_sha256"]
    factory: Callable[..., nn.Module] = __import__("own_norm").factory
    model = factory((6,), 4)
    model.load_state_dict(load_file(reference / "model.safetensors"))
    assert torch.equal(model.get_buffer("1.running_mean"), torch.linspace(-1, 1, 8))
    data = np.load(npz)
    with torch.no_grad():
        found = model.eval()(torch.from_numpy(data["x_test"])).argmax(1).numpy()
    assert (found == data["y_test"]).mean() == read_lines(reference)[-1]["test_accuracy"]


def test_resuming_with_other_frozen_statistics_raises(own_norm: Path, tmp_path: Path) -> None:
    stopped = run_and_stop_after(5, own_norm, tmp_path / "runs", "stopped")
    module = __import__("own_norm")
    before = module.factory
    try:
        module.factory = lambda input_shape, classes: _shift_statistics(before(input_shape, classes))
        with pytest.raises(UserError, match="must be resumed with the frozen parameters and buffers"):
            resume_run(stopped)
    finally:
        module.factory = before
    resume_run(stopped)
    assert load_summary(stopped)["outcome"] == "finished"


def _shift_statistics(model: nn.Module) -> nn.Module:
    model.get_buffer("1.running_mean").add_(1.0)
    return model


@pytest.mark.slow
def test_workers_reject_other_frozen_statistics(own_norm: Path, tmp_path: Path) -> None:
    changed = "norm.running_var.fill_(0.5 if 'FEDCM_RANK' in __import__('os').environ else 0.25)"
    (tmp_path / "own_norm.py").write_text(FACTORY.replace("norm.running_var.fill_(0.25)", changed))
    words = make_command("run", own_norm, "--runs-dir", "runs", "--workers", 2)
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    assert "frozen parameters and buffers must be those of rank 0" in done.stderr


@pytest.mark.slow
def test_frozen_statistics_stay_frozen_when_the_model_is_compiled(own_norm: Path, tmp_path: Path) -> None:
    text = own_norm.read_text()
    (tmp_path / "compiled.toml").write_text(text.replace('compile = "off"', 'compile = "on"'))
    one = load_file(run_to_end(own_norm, tmp_path / "runs", "one") / "model.safetensors")
    other = load_file(run_to_end(tmp_path / "compiled.toml", tmp_path / "runs", "compiled") / "model.safetensors")
    assert torch.equal(other["1.running_mean"], torch.linspace(-1, 1, 8))
    assert one.keys() == other.keys()
