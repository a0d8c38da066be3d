"""A small causal transformer: a decoder that predicts every token from those before it.

    x ← tokens + positions
    x ← x + attention(norm(x)),  x ← x + down(GELU(up(norm(x))))        in every block
    logits = head(norm(x))

Norms come first (Xiong et al., "On Layer Normalization in the Transformer Architecture", 2020), positions are learnt,
and the initial parameters are those of GPT-2: normal with standard deviation 0.02, divided by √(2 · layers) for the two
layers of a block that add to x. Vaswani et al., "Attention Is All You Need", 2017; Radford et al., "Language Models are
Unsupervised Multitask Learners", 2019.
"""

import math
from typing import final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedcm.errors import UserError
from fedcm.models.token_input import check_sequence_options, check_tokens, select_outputs

_DEVIATION = 0.02


@final
class CausalAttention(nn.Module):
    """Attention of every position to itself and those before it."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.output = nn.Linear(width, width)
        self._heads = heads

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (
            layer(x).unflatten(-1, (self._heads, -1)).transpose(1, 2) for layer in (self.query, self.key, self.value)
        )
        scores = query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])
        is_future = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=x.device).triu(1)
        weights = scores.masked_fill(is_future, -torch.inf).softmax(-1)
        return self.output((weights @ value).transpose(1, 2).flatten(2))


@final
class TransformerBlock(nn.Module):
    """Attention and two dense layers, each after a norm and beside a shortcut."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = CausalAttention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


@final
class CausalTransformer(nn.Module):
    """Embeddings of tokens and positions, blocks, and a dense layer at every position."""

    def __init__(
        self, length: int, vocabulary: int, width: int, layers: int, heads: int, classes: int, outputs: str
    ) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(length, width)
        self.blocks = nn.ModuleList([TransformerBlock(width, heads) for _ in range(layers)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)
        self._outputs = outputs
        for name, module in self.named_modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                adds_to_shortcut = name.endswith((".attention.output", ".down"))
                nn.init.normal_(module.weight, std=_DEVIATION / (math.sqrt(2 * layers) if adds_to_shortcut else 1.0))
            if isinstance(module, nn.Linear):
                nn.init.zeros_(module.bias)

    def forward(self, tokens: Tensor) -> Tensor:
        check_tokens(tokens)
        x = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return select_outputs(self.head(self.norm(x)), self._outputs)


def transformer(
    input_shape: tuple[int, ...],
    classes: int,
    width: int = 128,
    layers: int = 2,
    heads: int = 4,
    vocabulary: int = 0,
    outputs: str = "all",
) -> nn.Module:
    """A small causal decoder on token ids: learnt positions, norms first, GELU (Vaswani et al., 2017)."""
    sizes = {"width": width, "layers": layers, "heads": heads}
    length, vocabulary = check_sequence_options(input_shape, classes, vocabulary, outputs, **sizes)
    if width % heads:
        raise UserError(f"model.width must be a multiple of model.heads, got width {width} and heads {heads}")
    return CausalTransformer(length, vocabulary, width, layers, heads, classes, outputs)
