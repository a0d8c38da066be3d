"""Softmax regression as a user's own model, which records its inputs during training."""

import torch
from torch import Tensor, nn

SEEN: list[dict[str, object]] = []


class Spying(nn.Module):
    def __init__(self, input_shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.linear = nn.Linear(torch.Size(input_shape).numel(), classes)

    def forward(self, x: Tensor) -> Tensor:
        outputs = self.linear(x.flatten(1))
        if self.training:
            last = x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last) and not x.is_contiguous()
            SEEN.append({"size": len(x), "channels_last": last, "dtype": outputs.dtype, "device": x.device.type})
        return outputs
