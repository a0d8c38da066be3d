"""Check that the token ids of the data fit the bundled models of sequences."""

from collections.abc import Iterator
from typing import Any

from torch import Tensor, nn

from fedcm.core.evaluation import EVALUATED_SETS, list_pieces, read_piece
from fedcm.data.federated import ArrayData, FederatedData
from fedcm.data.structures.ragged import Ragged
from fedcm.errors import UserError
from fedcm.models.lstm import SequenceLstm
from fedcm.models.transformer import CausalTransformer


def reject_unknown_tokens(model: nn.Module, data: FederatedData) -> None:
    """Raise UserError if a token id lies outside the vocabulary of a bundled model.

    All training, test and validation data are read. If the clients are created on demand, only the first of them is.
    """
    if not isinstance(model, SequenceLstm | CausalTransformer):
        return
    vocabulary = model.tokens.num_embeddings
    for features in _list_features(data):
        tokens = features.values if isinstance(features, Ragged) else features
        if not isinstance(tokens, Tensor) or tokens.is_floating_point() or not tokens.numel():
            continue  # the smoke test says what is wrong with them
        least, most = int(tokens.min()), int(tokens.max())
        if least < 0 or most >= vocabulary:
            raise UserError(
                f"token ids must be from 0 to {vocabulary - 1}, because the model has a vocabulary of {vocabulary}, "
                f"got {least if least < 0 else most}"
                + (f"; set model.vocabulary = {most + 1}" if least >= 0 else "; number the tokens from 0")
            )


def _list_features(data: FederatedData) -> Iterator[Any]:
    if isinstance(data, ArrayData):
        own, tests = data.dataset, data.client_tests
        for examples in (own.train, own.test, own.validation, None if tests is None else tests.examples):
            if examples is not None:
                yield examples.features
        return
    yield data.client(0).features
    for which in EVALUATED_SETS:
        yield from (read_piece(data, which, start).features for start in list_pieces(data, which))
