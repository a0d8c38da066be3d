"""Convolutions whose gradients oneDNN gets wrong: they run on contiguous images, and their gradients are right.

Without the guard, the first test ends the process on a CPU with AVX2, so it trains in a process of its own.
"""

import subprocess
import sys
import textwrap

import pytest
import torch
from torch import nn

from fedcm.core.losses import cross_entropy
from fedcm.core.problem import Problem


@pytest.mark.slow  # the process imports torch
def test_gradients_of_small_strided_convolutions_are_those_in_float64() -> None:
    code = """
        import copy, torch
        from torch import nn
        from fedcm.core.losses import cross_entropy
        from fedcm.core.problem import Problem
        from fedcm.data.dataset import Examples

        for channels in (1, 4, 6, 8, 12, 16):
            model = nn.Sequential(nn.Conv2d(channels, 8, 1, stride=2), nn.Flatten(), nn.Linear(8 * 16, 3))
            exact = Problem(copy.deepcopy(model).double(), cross_entropy)
            problem = Problem(model, cross_entropy)
            for _ in range(20):
                x = torch.randn(5, channels, 8, 8).to(memory_format=torch.channels_last)
                y = torch.randint(3, (5,))
                own = problem.gradient(Examples(x, y))(problem.initial_params)
                true = exact.gradient(Examples(x.double(), y))(exact.initial_params)
                assert torch.allclose(own.double(), true, atol=1e-5), channels
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("convolution", "is_contiguous"),
    [
        (nn.Conv2d(4, 8, 1, stride=2), True),
        (nn.Conv2d(64, 16, 1, stride=2, groups=16), True),
        (nn.Conv2d(16, 8, 1, stride=2), False),
        (nn.Conv2d(4, 8, 1), False),
        (nn.Conv2d(4, 8, 3, stride=2), False),
    ],
)
def test_only_convolutions_that_the_bug_affects_get_contiguous_images(
    convolution: nn.Conv2d, is_contiguous: bool
) -> None:
    seen = []
    problem = Problem(nn.Sequential(convolution), cross_entropy)
    Problem(problem.model, cross_entropy)  # a second one adds nothing
    assert len(convolution._forward_pre_hooks) == is_contiguous
    convolution.register_forward_hook(lambda module, arguments, output: seen.append(arguments[0].is_contiguous()))
    images = torch.randn(2, convolution.in_channels, 4, 4).to(memory_format=torch.channels_last)
    with torch.no_grad():
        problem.model(images)
    assert seen == [is_contiguous]
