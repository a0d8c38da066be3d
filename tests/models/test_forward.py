"""Every bundled model computes the function of its paper, with parameters in their documented order."""

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from architectures import ARCHITECTURES, SEQUENCE_MODELS
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
    ("lenet-wide", (2, 16, 20), {}),
    ("cnn", (2, 20, 16), {}),
    ("resnet8", (1, 8, 8), {"width": 4}),
    ("resnet8", (3, 9, 12), {"width": 6, "groups": 3}),
    ("resnet18", (1, 8, 8), {"width": 4}),
    ("resnet18", (3, 16, 11), {"width": 4, "groups": 1}),
    ("resnet18-imagenet-stem", (1, 32, 32), {"width": 4}),
    ("resnet18-imagenet-stem", (2, 40, 33), {"width": 4, "groups": 4}),
    ("lstm", (7,), {"embedding": 3, "hidden": 4, "layers": 1}),
    ("lstm", (5,), {"embedding": 2, "hidden": 3, "layers": 3, "vocabulary": 11, "outputs": "last"}),
    ("transformer", (7,), {"width": 6, "layers": 1, "heads": 1}),
    ("transformer", (5,), {"width": 8, "layers": 3, "heads": 4, "vocabulary": 11, "outputs": "last"}),
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


def make_inputs(name: str, shape: Shape, count: int = 3, vocabulary: int = 5) -> Tensor:
    if name in SEQUENCE_MODELS:
        return torch.randint(0, vocabulary, (count, *shape), generator=torch.Generator().manual_seed(5))
    return make_images(shape, count)


def make_images(shape: Shape, count: int = 3) -> Tensor:
    return torch.randn(count, *shape, generator=torch.Generator().manual_seed(5), dtype=torch.float64)


def assert_same_function(name: str, shape: Shape, options: Mapping[str, Any], count: int = 3) -> None:
    model = build_with_random_parameters(name, shape, options)
    x = make_inputs(name, shape, count, options.get("vocabulary") or 5)
    expected = ARCHITECTURES[name](model.state_dict().values(), x, **options)
    is_sequence = name in SEQUENCE_MODELS and options.get("outputs") != "last"
    assert expected.shape == ((count, 5, *shape) if is_sequence else (count, 5))
    assert expected.std() > 1e-3, "outputs that are all equal prove nothing"
    with torch.no_grad():
        torch.testing.assert_close(model(x), expected, rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize(("name", "shape", "options"), SMALL, ids=str)
def test_a_model_computes_the_function_of_its_paper(name: str, shape: Shape, options: dict[str, Any]) -> None:
    assert_same_function(name, shape, options)


@pytest.mark.parametrize("name", MODELS)
def test_a_model_with_default_options_computes_that_function_on_the_usual_shape(name: str) -> None:
    assert_same_function(name, (80,) if name in SEQUENCE_MODELS else (3, 32, 32), {}, count=2)


def test_every_model_has_an_architecture_and_small_cases() -> None:
    assert set(ARCHITECTURES) == set(MODELS) == {name for name, *_ in SMALL}


def test_channels_last_images_give_the_same_outputs_up_to_rounding() -> None:
    model, x = build_with_random_parameters("resnet8", (3, 16, 16), {"width": 4}), make_images((3, 16, 16))
    with torch.no_grad():
        torch.testing.assert_close(model(x.contiguous(memory_format=torch.channels_last)), model(x))


@pytest.mark.parametrize("name", SEQUENCE_MODELS)
def test_an_output_depends_on_no_later_token(name: str) -> None:
    options = {"layers": 2, "width": 8} if name == "transformer" else {"layers": 2, "hidden": 6}
    model, x = build_with_random_parameters(name, (9,), options), make_inputs(name, (9,))
    changed = x.clone()
    changed[:, 5] = (changed[:, 5] + 1) % 5
    with torch.no_grad():
        before, after = model(x), model(changed)
    assert torch.equal(before[:, :, :5], after[:, :, :5])
    assert ((before != after)[:, :, 5:]).any(1).all(), "but it depends on all tokens up to its own"


@pytest.mark.parametrize("name", SEQUENCE_MODELS)
def test_shorter_sequences_are_accepted(name: str) -> None:
    model, x = build_with_random_parameters(name, (9,), {"layers": 1}), make_inputs(name, (9,))
    with torch.no_grad():
        torch.testing.assert_close(model(x[:, :4]), model(x)[:, :, :4])
