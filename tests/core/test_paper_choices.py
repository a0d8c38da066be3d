"""Choices of docs/decisions/0001 that the paper leaves open and no other test checks."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from architectures import SEQUENCE_MODELS
from scenes import small_experiment, write_npz
from torch import nn

from fedcm.algorithms import FedAdam, FedCM, Scaffold
from fedcm.config.experiment import read_experiment
from fedcm.core.participation import Independent
from fedcm.core.round_loop import run_rounds
from fedcm.data.batches import LocalWork
from fedcm.data.dataset import Dataset, Examples
from fedcm.data.federated import ArrayData
from fedcm.data.sources.cifar import CIFAR_SPECS
from fedcm.executors.local import LocalExecutor
from fedcm.models import MODELS, build_model
from fedcm.runs.build import build
from fedcm.sweeps.grid import expand_grid
from fedcm.sweeps.paper_grids import list_grid_files


@pytest.mark.parametrize("name", [name for name in MODELS if name not in SEQUENCE_MODELS])
def test_initial_parameters_are_torchs_default_except_for_residual_convolutions(name: str) -> None:
    """Torch's default is uniform in ±1/√fan_in, weights and biases; Kaiming's has a variance of 2/fan_out."""
    model, seen = build_model(name, (3, 32, 32), 10, {}, torch_seed=1), set()
    for module in model.modules():
        if isinstance(module, nn.GroupNorm):
            assert torch.equal(module.weight, torch.ones_like(module.weight))
            assert torch.equal(module.bias, torch.zeros_like(module.bias))
        if not isinstance(module, nn.Conv2d | nn.Linear):
            continue
        seen.add(nn.Conv2d if isinstance(module, nn.Conv2d) else nn.Linear)
        if isinstance(module, nn.Conv2d) and name.startswith("resnet"):
            assert module.bias is None
            fan_out = module.out_channels * math.prod(module.kernel_size)
            scaled = module.weight.detach() * math.sqrt(fan_out / 2)
            spread = 5 / math.sqrt(2 * scaled.numel())
            assert scaled.std().item() == pytest.approx(1, abs=spread)
            assert scaled.abs().max() > 2.5, "normal, so not bounded by √3 as a uniform one of this variance"
            continue
        limit = 1 / math.sqrt(math.prod(module.weight.shape[1:]))
        for values in (module.weight, module.bias):
            assert values is not None
            assert values.abs().max() <= limit
        assert module.weight.abs().max() > 0.98 * limit
        spread = 3 / math.sqrt(module.weight.numel())
        assert module.weight.std().item() == pytest.approx(limit / math.sqrt(3), rel=spread)
    assert seen == ({nn.Linear} if name in ("linear", "mlp") else {nn.Conv2d, nn.Linear})


def test_weight_decay_includes_biases_and_norms(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    images = draw.normal(size=(20, 1, 8, 8)).astype(np.float32)
    np.savez(
        tmp_path / "images.npz", x_train=images, y_train=np.arange(20) % 2, x_test=images, y_test=np.arange(20) % 2
    )
    gradients, params = [], torch.empty(0)
    for decay in (0.0, 0.25):
        table: Any = small_experiment(
            tmp_path / "images.npz",
            split={"kind": "iid", "clients": 2},
            model={"name": "resnet8", "width": 4},
            client={"weight_decay": decay},
        )
        own = build(read_experiment(table))
        params = own.problem.initial_params
        gradients.append(own.problem.gradient(own.runner.data.client(0))(params))
    assert torch.allclose(gradients[1] - gradients[0], 0.25 * params, atol=1e-6)
    assert any(isinstance(module, nn.GroupNorm) for module in own.problem.model.modules())
    assert sum(parameter.numel() for parameter in own.problem.model.parameters()) == len(params)


def test_examples_are_normalised_and_not_augmented() -> None:
    """Bytes become ((byte/255) − mean)/std in every pass, round and client."""
    known = CIFAR_SPECS["cifar10"].normalisation
    images = torch.arange(4 * 3 * 32 * 32).remainder(256).to(torch.uint8).view(4, 3, 32, 32)
    data = ArrayData(Dataset("made", Examples(images, torch.arange(4)), None, 4, known), [np.arange(4)])
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (known.mean, known.std))
    for round in range(3):
        for batch in LocalWork(3, epochs=2).draw_batches(data.client(0), 1, round, 0):
            for image, label in zip(batch.features, batch.labels, strict=True):
                assert torch.allclose(image, (images[label] / 255 - mean) / std, atol=1e-5)


def test_the_client_rate_also_decays_in_empty_rounds(tmp_path: Path) -> None:
    table = small_experiment(
        write_npz(tmp_path / "made.npz"), participation={"kind": "independent", "probability": 0.05}
    )
    own = build(read_experiment(table))
    server = own.algorithm.init_server(own.problem.initial_params)
    lines = [done.metrics for done in run_rounds(own.algorithm, LocalExecutor(own.runner), own.plan, server)]
    assert {line.cohort_size == 0 for line in lines} == {True, False}
    assert [line.client_lr for line in lines] == pytest.approx([0.1 * 0.99**t for t in range(12)])


def test_algorithms_with_the_same_seed_share_split_start_cohorts_and_minibatches(tmp_path: Path) -> None:
    made = []
    for name in ("fedcm", "fedavg", "scaffold"):
        own = build(read_experiment(small_experiment(write_npz(tmp_path / "made.npz"), algorithm={"name": name})))
        cohorts = [own.plan.participation.cohort(12, own.plan.seed, index).tolist() for index in range(12)]
        first = own.runner.local_work.draw_batches(own.runner.data.client(3), own.runner.seed, 5, 3)
        batches = [batch.features.sum().item() for batch in first]
        made.append((own.checksums["split"], own.problem.initial_params.tolist(), cohorts, batches))
    assert made[0] == made[1] == made[2]


def test_defaults_that_the_paper_grids_rely_on() -> None:
    for name in ("table1", "table2", "table3"):
        (path,) = list_grid_files(name, "full")
        for run in expand_grid(Path(path)):
            experiment = run.experiment
            assert (experiment.seed, experiment.server.weights, experiment.evaluation.every) == (0, "clients", 10)
            assert experiment.model.options == {}, "two groups in a group norm, 64 channels"
            assert isinstance(experiment.participation, Independent)
            if isinstance(experiment.algorithm, FedAdam):
                assert experiment.algorithm.beta2 == 0.99
            if isinstance(experiment.algorithm, Scaffold):
                assert experiment.algorithm.option == "II"


def test_the_first_round_has_zero_momentum_without_correction() -> None:
    params = torch.randn(5, generator=torch.Generator().manual_seed(0))
    algorithm = FedCM(alpha=0.1)
    server = algorithm.init_server(params)
    assert torch.equal(server.momentum, torch.zeros(5))
    step = algorithm.direction(lambda at: 2 * at, params, algorithm.broadcast(server), algorithm.init_client(params))
    assert torch.allclose(step, 0.1 * 2 * params)
