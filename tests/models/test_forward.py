"""Every bundled model computes the function of its paper, with parameters in their documented order."""

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from architectures import ARCHITECTURES
from torch import Tensor, nn

from fedcm.models import MODELS, build_model

Shape = tuple[int, ...]

SMALL = [
    ("linear", (7,), {}),
    ("linear", (2, 5, 4), {}),
    ("mlp", (7,), {"hidden": [5]}),
    ("mlp", (7,), {"hidden": [6, 3, 4]}),
    ("mlp", (7,), {"hidden": []}),
    ("mlp", (2, 5, 4), {"hidden": [9, 8]}),
    ("lenet", (1, 16, 16), {}),
    ("lenet", (3, 17, 28), {}),  # not square, and an odd height
    ("lenet", (1, 19, 18), {}),  # pooling drops rows and columns, the first and the second time
    ("cnn", (2, 20, 16), {}),
    ("resnet8", (1, 8, 8), {"width": 4}),
    ("resnet8", (3, 9, 12), {"width": 6, "groups": 3}),
    ("resnet18", (1, 8, 8), {"width": 4}),
    ("resnet18", (3, 16, 11), {"width": 4, "groups": 1}),
    ("resnet18-imagenet-stem", (1, 32, 32), {"width": 4}),
    ("resnet18-imagenet-stem", (2, 40, 33), {"width": 4, "groups": 4}),
]


def build_with_random_parameters(name: str, shape: Shape, options: Mapping[str, Any], classes: int = 5) -> nn.Module:
    """Build a model in float64 without parameters of a neutral value, such as a norm's initial scale of 1."""
    model = build_model(name, shape, classes, dict(options), torch_seed=3).double()
    generator = torch.Generator().manual_seed(4)
    for parameter in model.parameters():
        fan_in = parameter[0].numel() if parameter.dim() > 1 else 1
        values = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
        parameter.data = values * (2 / fan_in) ** 0.5
    return model


def make_images(shape: Shape, count: int = 3) -> Tensor:
    return torch.randn(count, *shape, generator=torch.Generator().manual_seed(5), dtype=torch.float64)


def assert_same_function(name: str, shape: Shape, options: Mapping[str, Any], count: int = 3) -> None:
    model, x = build_with_random_parameters(name, shape, options), make_images(shape, count)
    expected = ARCHITECTURES[name](model.state_dict().values(), x, **options)
    assert expected.shape == (count, 5)
    assert expected.std() > 1e-3, "outputs that are all equal prove nothing"
    with torch.no_grad():
        torch.testing.assert_close(model(x), expected, rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize(("name", "shape", "options"), SMALL, ids=str)
def test_a_model_computes_the_function_of_its_paper(name: str, shape: Shape, options: dict[str, Any]) -> None:
    assert_same_function(name, shape, options)


@pytest.mark.parametrize("name", MODELS)
def test_a_model_with_default_options_computes_that_function_on_cifar(name: str) -> None:
    assert_same_function(name, (3, 32, 32), {}, count=2)


def test_every_model_has_an_architecture_and_small_cases() -> None:
    assert set(ARCHITECTURES) == set(MODELS) == {name for name, *_ in SMALL}


def test_channels_last_images_give_the_same_outputs_up_to_rounding() -> None:
    model, x = build_with_random_parameters("resnet8", (3, 16, 16), {"width": 4}), make_images((3, 16, 16))
    with torch.no_grad():
        torch.testing.assert_close(model(x.contiguous(memory_format=torch.channels_last)), model(x))
