"""`SmallMapConv2d` is torch's convolution, but a matrix product where it has one output position."""

from itertools import product

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from fedcm.models import build_model
from fedcm.models.small_maps import SmallMapConv2d

SHAPES = [
    (kernel, stride, padding)
    for kernel, stride, padding in product((1, 2, 3, 5), (1, 2, 3), (0, 1, 2))
    if padding < kernel
]


@pytest.mark.parametrize(("kernel", "stride", "padding"), SHAPES)
def test_values_and_gradients_are_those_of_the_convolution(kernel: int, stride: int, padding: int) -> None:
    generator = torch.Generator().manual_seed(0)
    module = SmallMapConv2d(3, 4, kernel, stride, padding).double()
    for height, width in product(range(1, 6), repeat=2):
        if min(height, width) + 2 * padding < kernel:
            continue
        images = torch.randn(2, 3, height, width, dtype=torch.float64, generator=generator, requires_grad=True)
        own, true = module(images), F.conv2d(images, module.weight, None, stride, padding)
        seed = torch.randn(true.shape, dtype=torch.float64, generator=generator)
        torch.testing.assert_close(own, true)
        torch.testing.assert_close(differentiate(own, images, module, seed), differentiate(true, images, module, seed))


def differentiate(output: Tensor, images: Tensor, module: SmallMapConv2d, seed: Tensor) -> tuple[Tensor, ...]:
    return torch.autograd.grad(output, (images, module.weight), seed)


def test_one_output_position_needs_no_convolution_and_two_need_one(monkeypatch: pytest.MonkeyPatch) -> None:
    convolved: list[tuple[int, int]] = []
    convolve = F.conv2d

    def record(images: Tensor, *arguments: object) -> Tensor:
        convolved.append((images.shape[-2], images.shape[-1]))
        return convolve(images, *arguments)  # pyright: ignore[reportArgumentType, reportCallIssue]

    monkeypatch.setattr(F, "conv2d", record)
    same, halving = SmallMapConv2d(3, 4, 3, padding=1), SmallMapConv2d(3, 4, 3, stride=2, padding=1)
    for module in (same, halving):
        for size in (1, 2, 3):
            module(torch.zeros(2, 3, size, size))
        module(torch.zeros(2, 3, 1, 3))
    assert convolved == [(2, 2), (3, 3), (1, 3), (3, 3), (1, 3)]


def test_the_last_stage_of_resnet18_with_the_imagenet_stem_is_computed_so() -> None:
    model = build_model("resnet18-imagenet-stem", (3, 32, 32), 10, {}, 0)
    maps = [module for module in model.modules() if isinstance(module, SmallMapConv2d)]
    seen: list[int] = []
    for module in maps:
        module.register_forward_hook(lambda module, arguments, output: seen.append(output.shape[-1]))
    with torch.no_grad():
        model(torch.zeros(1, 3, 32, 32))
    assert len(maps) == 19  # all but the stem
    assert seen.count(1) == 5
