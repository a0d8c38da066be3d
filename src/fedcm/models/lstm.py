"""A recurrent network for sequences of token ids.

Hochreiter & Schmidhuber, "Long Short-Term Memory", 1997. The default sizes are those of Caldas et al., "LEAF: A
Benchmark for Federated Settings", 2018, for next-character prediction.
"""

from typing import final

from torch import Tensor, nn

from fedcm.models.token_input import check_sequence_options, check_tokens, select_outputs


@final
class SequenceLstm(nn.Module):
    """An embedding, LSTM layers, and a dense layer at every position."""

    def __init__(self, vocabulary: int, embedding: int, hidden: int, layers: int, classes: int, outputs: str) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, embedding)
        self.lstm = nn.LSTM(embedding, hidden, layers, batch_first=True)
        self.head = nn.Linear(hidden, classes)
        self._outputs = outputs

    def forward(self, tokens: Tensor) -> Tensor:
        check_tokens(tokens)
        hidden, _ = self.lstm(self.tokens(tokens))
        return select_outputs(self.head(hidden), self._outputs)


def lstm(
    input_shape: tuple[int, ...],
    classes: int,
    embedding: int = 8,
    hidden: int = 256,
    layers: int = 2,
    vocabulary: int = 0,
    outputs: str = "all",
) -> nn.Module:
    """A recurrent network on token ids: embedding, LSTM layers and a dense layer (Caldas et al., 2018)."""
    sizes = {"embedding": embedding, "hidden": hidden, "layers": layers}
    _, vocabulary = check_sequence_options(input_shape, classes, vocabulary, outputs, **sizes)
    return SequenceLstm(vocabulary, embedding, hidden, layers, classes, outputs)
