"""Patterns choose the parameters that are trained."""

import pytest
import torch
from torch import nn

from fedcm.core.problem import Problem
from fedcm.errors import UserError
from fedcm.models import build_model
from fedcm.models.trainable import select_trainable


def list_trained(model: nn.Module) -> list[str]:
    return [name for name, parameter in model.named_parameters() if parameter.requires_grad]


@pytest.mark.parametrize(
    ("patterns", "trained"),
    [
        (["head.*"], ["head.weight", "head.bias"]),
        (["*.query.weight"], ["blocks.0.attention.query.weight"]),
        (["blocks.?.norm[12].bias", "tokens*"], ["tokens.weight", "blocks.0.norm1.bias", "blocks.0.norm2.bias"]),
    ],
)
def test_parameters_that_match_a_pattern_are_trained_and_the_others_frozen(
    patterns: list[str], trained: list[str]
) -> None:
    model = build_model("transformer", (5,), 7, {"width": 4, "layers": 1, "heads": 1}, 0)
    select_trainable(model, patterns)
    assert list_trained(model) == trained
    sizes = [parameter.numel() for name, parameter in model.named_parameters() if name in trained]
    assert Problem(model).size == sum(sizes)


def test_a_parameter_that_the_model_froze_is_trained_if_it_matches() -> None:
    model = nn.Linear(2, 2).requires_grad_(False)
    select_trainable(model, ["bias"])
    assert list_trained(model) == ["bias"]


def test_a_pattern_that_matches_nothing_is_rejected_with_the_nearest_names() -> None:
    model = build_model("lenet", (1, 16, 16), 3, {}, 0)
    for pattern in ("11.wieght", "11.WEIGHT"):
        with pytest.raises(UserError, match=rf"^the pattern '{pattern}' .* the nearest names are 11.weight, \d"):
            select_trainable(model, ["0.*", pattern])
    assert len(list_trained(model)) == 10, "and nothing is changed"


def test_integers_cannot_be_trained() -> None:
    model = nn.Linear(2, 2)
    model.register_parameter("table", nn.Parameter(torch.ones(2, dtype=torch.int64), requires_grad=False))
    with pytest.raises(UserError, match=r"must be floats, but 'table' has torch.int64"):
        select_trainable(model, ["*"])
    select_trainable(model, ["weight"])
