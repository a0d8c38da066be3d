"""The bundled models' forward passes, written from their papers with torch.nn.functional only.

Each takes the parameters in their documented order (docs/models.md) and uses nothing of the library: LeCun et al. 1998
(LeNet-5, with ReLU and max-pooling), McMahan et al. 2017 (2NN), Acar et al. 2021 (CNN), He et al. 2016 (residual
networks, option B shortcuts), Wu & He 2018 (group norm), Hochreiter & Schmidhuber 1997 (LSTM, with torch's order of
gates), Vaswani et al. 2017 and Xiong et al. 2020 (causal transformer with norms first).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

Forward = Callable[..., Tensor]


def linear(parameters: Iterable[Tensor], x: Tensor) -> Tensor:
    weight, bias = parameters
    return _apply_dense(iter([weight, bias]), x.reshape(len(x), -1))


def mlp(parameters: Iterable[Tensor], x: Tensor, hidden: Sequence[int] = (200, 200)) -> Tensor:
    remaining, x = iter(parameters), x.reshape(len(x), -1)
    for units in hidden:
        x = _relu(_apply_dense(remaining, x))
        assert x.shape[1] == units
    return _apply_last_layer(remaining, x)


def lenet(parameters: Iterable[Tensor], x: Tensor) -> Tensor:
    return _apply_two_convolutions(parameters, x, (6, 16), (120, 84))


def lenet_wide(parameters: Iterable[Tensor], x: Tensor) -> Tensor:
    return _apply_two_convolutions(parameters, x, (16, 32), (120, 84))


def cnn(parameters: Iterable[Tensor], x: Tensor) -> Tensor:
    return _apply_two_convolutions(parameters, x, (64, 64), (384, 192))


def resnet8(parameters: Iterable[Tensor], x: Tensor, width: int = 16, groups: int = 2) -> Tensor:
    remaining = iter(parameters)
    return _apply_stages(remaining, _apply_small_stem(remaining, x, width, groups), width, (1, 1, 1), groups)


def resnet18(parameters: Iterable[Tensor], x: Tensor, width: int = 64, groups: int = 2) -> Tensor:
    remaining = iter(parameters)
    return _apply_stages(remaining, _apply_small_stem(remaining, x, width, groups), width, (2, 2, 2, 2), groups)


def resnet18_imagenet_stem(parameters: Iterable[Tensor], x: Tensor, width: int = 64, groups: int = 2) -> Tensor:
    remaining = iter(parameters)
    x = F.conv2d(x, _check_shape(next(remaining), (width, x.shape[1], 7, 7)), stride=2, padding=3)
    x = F.max_pool2d(_relu(_apply_group_norm(remaining, x, groups)), kernel_size=3, stride=2, padding=1)
    return _apply_stages(remaining, x, width, (2, 2, 2, 2), groups)


def lstm(
    parameters: Iterable[Tensor],
    tokens: Tensor,
    embedding: int = 8,
    hidden: int = 256,
    layers: int = 2,
    vocabulary: int = 0,
    outputs: str = "all",
) -> Tensor:
    remaining = iter(parameters)
    x = _check_shape(table := next(remaining), (vocabulary or len(table), embedding))[tokens]
    for _ in range(layers):
        inward, recurrent, bias, more = (next(remaining) for _ in range(4))
        h = cell = x.new_zeros(len(x), hidden)
        after = []
        for step in range(x.shape[1]):
            gates = x[:, step] @ inward.T + bias + h @ recurrent.T + more
            enter, forget, candidate, leave = gates.split(hidden, dim=1)
            cell = _sigmoid(forget) * cell + _sigmoid(enter) * candidate.tanh()
            h = _sigmoid(leave) * cell.tanh()
            after.append(h)
        x = torch.stack(after, 1)
    return _choose_positions(_apply_last_layer(remaining, x), outputs)


def transformer(
    parameters: Iterable[Tensor],
    tokens: Tensor,
    width: int = 128,
    layers: int = 2,
    heads: int = 4,
    vocabulary: int = 0,
    outputs: str = "all",
) -> Tensor:
    remaining, length = iter(parameters), tokens.shape[1]
    x = _check_shape(table := next(remaining), (vocabulary or len(table), width))[tokens] + next(remaining)[:length]
    for _ in range(layers):
        y = _apply_layer_norm(remaining, x)
        query, key, value = (_apply_dense(remaining, y) for _ in range(3))
        x = x + _apply_dense(remaining, _attend(query, key, value, heads))
        y = _apply_dense(remaining, _apply_layer_norm(remaining, x))
        assert y.shape[-1] == 4 * width
        x = x + _apply_dense(remaining, y * (1 + torch.erf(y / 2**0.5)) / 2)
    return _choose_positions(_apply_last_layer(remaining, _apply_layer_norm(remaining, x)), outputs)


def _attend(query: Tensor, key: Tensor, value: Tensor, heads: int) -> Tensor:
    """Attend head by head and position by position: position i sees positions 0 to i."""
    size, results = query.shape[-1] // heads, torch.zeros_like(query)
    for head in range(heads):
        own = slice(head * size, (head + 1) * size)
        for i in range(query.shape[1]):
            scores = (query[:, i : i + 1, own] * key[:, : i + 1, own]).sum(-1) / size**0.5
            weights = scores.exp() / scores.exp().sum(1, keepdim=True)
            results[:, i, own] = (weights[:, :, None] * value[:, : i + 1, own]).sum(1)
    return results


def _apply_layer_norm(remaining: Iterator[Tensor], x: Tensor) -> Tensor:
    scale, shift = next(remaining), next(remaining)
    mean, variance = x.mean(-1, keepdim=True), x.var(-1, keepdim=True, unbiased=False)
    return (x - mean) / (variance + 1e-5).sqrt() * scale + shift


def _choose_positions(logits: Tensor, outputs: str) -> Tensor:
    return logits.permute(0, 2, 1) if outputs == "all" else logits[:, -1, :]


def _sigmoid(x: Tensor) -> Tensor:
    return 1 / (1 + (-x).exp())


ARCHITECTURES: dict[str, Forward] = {
    "linear": linear,
    "mlp": mlp,
    "lenet": lenet,
    "lenet-wide": lenet_wide,
    "cnn": cnn,
    "resnet8": resnet8,
    "resnet18": resnet18,
    "resnet18-imagenet-stem": resnet18_imagenet_stem,
    "lstm": lstm,
    "transformer": transformer,
}
SEQUENCE_MODELS = ("lstm", "transformer")


def _apply_two_convolutions(
    parameters: Iterable[Tensor], x: Tensor, channels: tuple[int, int], hidden: tuple[int, int]
) -> Tensor:
    remaining = iter(parameters)
    for wide in channels:
        weight, bias = _check_shape(next(remaining), (wide, x.shape[1], 5, 5)), next(remaining)
        x = F.max_pool2d(_relu(F.conv2d(x, weight, bias)), 2)  # the papers' order: pooling comes last
    x = x.reshape(len(x), -1)
    for units in hidden:
        x = _relu(_apply_dense(remaining, x))
        assert x.shape[1] == units
    return _apply_last_layer(remaining, x)


def _apply_small_stem(remaining: Iterator[Tensor], x: Tensor, width: int, groups: int) -> Tensor:
    x = F.conv2d(x, _check_shape(next(remaining), (width, x.shape[1], 3, 3)), padding=1)
    return _relu(_apply_group_norm(remaining, x, groups))


def _apply_stages(remaining: Iterator[Tensor], x: Tensor, width: int, blocks: Sequence[int], groups: int) -> Tensor:
    """Apply all stages; each but the first doubles the channels and halves height and width in its first block."""
    for stage, count in enumerate(blocks):
        for block in range(count):
            stride = 2 if stage and not block else 1
            x = _apply_block(remaining, x, width * 2**stage, stride, groups)
    return _apply_last_layer(remaining, x.mean((2, 3)))


def _apply_block(remaining: Iterator[Tensor], x: Tensor, wide: int, stride: int, groups: int) -> Tensor:
    y = F.conv2d(x, _check_shape(next(remaining), (wide, x.shape[1], 3, 3)), stride=stride, padding=1)
    y = _relu(_apply_group_norm(remaining, y, groups))
    y = F.conv2d(y, _check_shape(next(remaining), (wide, wide, 3, 3)), padding=1)
    y = _apply_group_norm(remaining, y, groups)
    if x.shape != y.shape:  # option B: a projection if the shapes differ, otherwise the input itself
        x = _apply_group_norm(
            remaining, F.conv2d(x, _check_shape(next(remaining), (wide, x.shape[1], 1, 1)), stride=stride), groups
        )
    return _relu(y + x)


def _apply_group_norm(remaining: Iterator[Tensor], x: Tensor, groups: int) -> Tensor:
    """(x − mean) / √(variance + 10⁻⁵) over each image's groups of channels, then a scale and a shift per channel."""
    scale, shift = next(remaining), next(remaining)
    grouped = x.reshape(len(x), groups, -1)
    mean, variance = grouped.mean(2, keepdim=True), grouped.var(2, keepdim=True, unbiased=False)
    return ((grouped - mean) / (variance + 1e-5).sqrt()).reshape(x.shape) * scale[:, None, None] + shift[:, None, None]


def _apply_dense(remaining: Iterator[Tensor], x: Tensor) -> Tensor:
    return x @ next(remaining).T + next(remaining)


def _relu(x: Tensor) -> Tensor:
    return torch.where(x > 0, x, 0)


def _apply_last_layer(remaining: Iterator[Tensor], x: Tensor) -> Tensor:
    outputs = _apply_dense(remaining, x)
    assert next(remaining, None) is None, "every parameter must be used"
    return outputs


def _check_shape(weight: Tensor, shape: tuple[int, ...]) -> Tensor:
    assert tuple(weight.shape) == shape, f"expected weights of {shape}, got {tuple(weight.shape)}"
    return weight
