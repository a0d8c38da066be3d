"""What docs/models.md says about the parameters: their number, order, names and initial distribution."""

import math
import re
from pathlib import Path

import pytest
import torch
from architectures import SEQUENCE_MODELS
from torch import Tensor, nn

from fedcm.core.problem import Problem
from fedcm.models import MODELS, build_model

DOCUMENT = (Path(__file__).parents[2] / "docs" / "models.md").read_text()
RESIDUAL = {"resnet8": (1, 1, 1), "resnet18": (2, 2, 2, 2), "resnet18-imagenet-stem": (2, 2, 2, 2)}
SEED = 7


def build(name: str, shape: tuple[int, ...] = (3, 32, 32)) -> nn.Module:
    if name in SEQUENCE_MODELS:
        return build_model(name, (80,), 97, {}, torch_seed=SEED)
    return build_model(name, shape, 10, {}, torch_seed=SEED)


def build_narrow(name: str, seed: int = SEED) -> nn.Module:
    """Build a model; residual networks are narrow, because large ones take long to initialise."""
    if name in SEQUENCE_MODELS:
        return build_model(name, (80,), 97, {}, torch_seed=seed)
    return build_model(name, (3, 32, 32), 10, {"width": 16} if name in RESIDUAL else {}, torch_seed=seed)


def read_documented_counts() -> dict[str, int]:
    """Return the last column of the document's tables of models, by model."""
    rows = re.findall(r"^\| `([\w-]+)` \|.*\| ([\d,]+) \|$", DOCUMENT, re.MULTILINE)
    return {name: int(count.replace(",", "")) for name, count in rows}


def test_the_documented_parameter_counts_are_right() -> None:
    counts = {name: sum(p.numel() for p in build(name).parameters()) for name in MODELS}
    assert read_documented_counts() == counts


@pytest.mark.parametrize(
    ("name", "shape", "parameters"),
    [
        ("linear", (1, 28, 28), 7850),
        ("mlp", (1, 28, 28), 199_210),  # McMahan et al.'s 2NN
        ("lenet", (1, 32, 32), 61_706),
        ("lenet", (3, 32, 32), 62_006),
        ("lenet-wide", (3, 32, 32), 16 * 76 + 32 * 401 + 120 * 801 + 84 * 121 + 850),
        ("cnn", (3, 32, 32), 797_962),  # Acar et al.'s
        ("resnet18", (3, 32, 32), 11_173_962),
        ("resnet18-imagenet-stem", (3, 32, 32), 11_181_642),
    ],
)
def test_the_models_have_the_published_number_of_parameters(name: str, shape: tuple[int, ...], parameters: int) -> None:
    assert sum(p.numel() for p in build(name, shape).parameters()) == parameters


def list_layer_names(*layers: str) -> list[str]:
    return [f"{layer}.{kind}" for layer in layers for kind in ("weight", "bias")]


def list_residual_names(blocks: tuple[int, ...]) -> list[str]:
    names, block = ["0.0.weight", *list_layer_names("0.1")], 0
    for stage, count in enumerate(blocks):
        for index in range(count):
            block += 1
            for conv, norm in (("conv1", "norm1"), ("conv2", "norm2")):
                names += [f"{block}.{conv}.weight", *list_layer_names(f"{block}.{norm}")]
            if stage > 0 and index == 0:
                names += [f"{block}.shortcut.0.weight", *list_layer_names(f"{block}.shortcut.1")]
    return [*names, *list_layer_names(str(block + 3))]


BLOCK = ["norm1", *(f"attention.{part}" for part in ("query", "key", "value", "output")), "norm2", "up", "down"]
NAMES = {
    "linear": list_layer_names("1"),
    "mlp": list_layer_names("1", "3", "5"),
    "lenet": list_layer_names("0", "3", "7", "9", "11"),
    "lenet-wide": list_layer_names("0", "3", "7", "9", "11"),
    "cnn": list_layer_names("0", "3", "7", "9", "11"),
    **{name: list_residual_names(blocks) for name, blocks in RESIDUAL.items()},
    "lstm": [
        "tokens.weight",
        *(f"lstm.{kind}_l{layer}" for layer in (0, 1) for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")),
        *list_layer_names("head"),
    ],
    "transformer": [
        "tokens.weight",
        "positions.weight",
        *list_layer_names(*(f"blocks.{block}.{layer}" for block in (0, 1) for layer in BLOCK), "norm", "head"),
    ],
}


@pytest.mark.parametrize("name", MODELS)
def test_the_parameters_have_the_documented_names_and_order(name: str) -> None:
    model = build(name)
    assert list(model.state_dict()) == [key for key, _ in model.named_parameters()] == NAMES[name]
    flat = torch.cat([tensor.reshape(-1) for tensor in model.state_dict().values()])
    assert torch.equal(Problem(model).initial_params, flat)
    assert {p.dtype for p in model.parameters()} == {torch.float32}


def assert_uniform(values: Tensor, bound: float, what: str) -> None:
    """Check the range ±bound, the mean 0 and the standard deviation bound/√3 of a uniform distribution."""
    count = values.numel()
    assert values.abs().max() <= bound, what
    assert values.abs().max() >= bound * (1 - 12 / count), what
    assert abs(values.mean()) <= 5 * bound / math.sqrt(3 * count), what
    deviation = values.square().mean().sqrt() / (bound / math.sqrt(3))
    assert abs(deviation - 1) <= 5 * math.sqrt(0.2 / count), what


def assert_normal(values: Tensor, deviation: float, what: str) -> None:
    """Check the mean, the standard deviation and the fourth moment: 3 if normal, 1.8 if uniform."""
    count = values.numel()
    scaled = values.double() / deviation
    assert abs(scaled.mean()) <= 5 / math.sqrt(count), what
    assert abs(scaled.square().mean() - 1) <= 5 * math.sqrt(2 / count), what
    assert abs(scaled.pow(4).mean() - 3) <= 5 * math.sqrt(96 / count), what


def assert_initial(model: nn.Module, residual: bool, what: str) -> None:
    tensors = model.state_dict()
    for name, tensor in tensors.items():
        weight = tensors[name.rpartition(".")[0] + ".weight"]
        if weight.dim() == 1:
            assert torch.equal(tensor, torch.full_like(tensor, 1.0 if name.endswith("weight") else 0.0)), (what, name)
        elif residual and weight.dim() == 4:
            outputs, _, height, width = weight.shape
            assert_normal(tensor, math.sqrt(2 / (outputs * height * width)), f"{what} {name}")
        elif tensor.numel() >= 84:  # fewer values do not show a distribution
            assert_uniform(tensor.flatten(), 1 / math.sqrt(weight[0].numel()), f"{what} {name}")
        else:
            assert tensor.unique().numel() == tensor.numel(), (what, name)
            assert tensor.abs().max() <= 1 / math.sqrt(weight[0].numel()), (what, name)


@pytest.mark.parametrize("name", [name for name in MODELS if name not in SEQUENCE_MODELS])
def test_the_initial_parameters_have_the_documented_distributions(name: str) -> None:
    assert_initial(build_narrow(name), name in RESIDUAL, name)


def test_the_initial_parameters_of_the_lstm_have_the_documented_distributions() -> None:
    for name, tensor in build("lstm").named_parameters():
        if name == "tokens.weight":
            assert_normal(tensor.detach(), 1.0, name)
        else:
            assert_uniform(tensor.detach().flatten(), 1 / 16, name)  # 256 units in every layer and below the head


def test_the_initial_parameters_of_the_transformer_have_the_documented_distributions() -> None:
    for name, tensor in build("transformer").named_parameters():
        if tensor.dim() == 1:
            is_scale = "norm" in name and name.endswith("weight")
            assert torch.equal(tensor, torch.full_like(tensor, 1.0 if is_scale else 0.0)), name
        else:
            adds = name.endswith(("attention.output.weight", "down.weight"))
            assert_normal(tensor.detach(), 0.02 / math.sqrt(2 * 2) if adds else 0.02, name)


@pytest.mark.parametrize("name", MODELS)
def test_the_initial_parameters_are_a_function_of_the_seed(name: str) -> None:
    once, again, other = (build_narrow(name, seed).state_dict() for seed in (SEED, SEED, SEED + 1))
    for key, tensor in once.items():
        assert torch.equal(tensor, again[key])
        is_random = bool((tensor != tensor.flatten()[0]).any())  # a norm's scales and shifts are not
        assert torch.equal(tensor, other[key]) != is_random, key
