"""Keep a bug of oneDNN, the CPU library of torch, away from models.

The gradient of a 1×1 convolution with a stride above 1 and few input channels (fewer than a vector register holds)
writes beyond its memory if the images are in channels_last: the process crashes, or gradients are silently wrong
(github.com/uxlfoundation/oneDNN/issues/6035). With contiguous images it is right.
"""

from typing import Any

from torch import nn

_FEWEST_SAFE_CHANNELS = 16  # float32 numbers in the longest register, that of AVX-512


def guard_small_strided_convolutions(model: nn.Module) -> None:
    """Give every convolution of a model that the bug would affect contiguous images."""
    for module in model.modules():
        if _is_affected(module) and _make_contiguous not in module._forward_pre_hooks.values():
            module.register_forward_pre_hook(_make_contiguous)


def _is_affected(module: nn.Module) -> bool:
    return (
        isinstance(module, nn.Conv2d)
        and set(module.kernel_size) == {1}
        and max(module.stride) > 1
        and module.in_channels // module.groups < _FEWEST_SAFE_CHANNELS
    )


def _make_contiguous(module: nn.Module, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    images, *others = arguments
    return images.contiguous(), *others
