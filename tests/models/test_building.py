"""Models are built by name or import path; what cannot be built is rejected in one sentence."""

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from fedcm.config.experiment import load_experiment_file
from fedcm.errors import UserError
from fedcm.models import build_model
from fedcm.runs.build import build


def test_building_a_model_neither_uses_nor_changes_torchs_global_generator() -> None:
    parameters = []
    for before in (1, 2):
        torch.manual_seed(before)
        state = torch.get_rng_state()
        model = build_model("lenet", (1, 28, 28), 10, {}, torch_seed=5)
        parameters.append(torch.cat([p.detach().reshape(-1) for p in model.parameters()]))
        assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(*parameters)


def test_a_users_factory_receives_input_shape_classes_and_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_own_models.py").write_text(
        "from torch import nn\n"
        "def tiny(input_shape, classes, bias=True):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(input_shape[0], classes, bias=bias))\n"
        "def fixed():\n    return nn.Linear(4, 2)\n"
        "def anything(**options):\n    return nn.Linear(options['width'], 2)\n"
        "def odd():\n    return nn.Linear(3, 2)\n"
        "odd.__signature__ = 'none that Python knows'\n"
        "def wrong():\n    return 'a string'\n"
        "def broken():\n    raise RuntimeError('no weights')\n"
    )
    monkeypatch.chdir(tmp_path)
    model = build_model("my_own_models:tiny", (4,), 3, {"bias": False}, 0)
    assert model(torch.ones(1, 4)).shape == (1, 3)
    for name, options, inputs in (("fixed", {}, 4), ("anything", {"width": 7}, 7), ("odd", {}, 3)):
        model = build_model(f"my_own_models:{name}", (4,), 3, options, 0)
        assert isinstance(model, nn.Linear)
        assert model.in_features == inputs
    for name, options, message in [
        ("my_own_models:tiny", {"bais": False}, "did you mean 'bias'"),
        ("my_own_models:wrong", {}, "must return an nn.Module"),
        ("my_own_models:broken", {}, "no weights"),
        ("my_own_models:tyni", {}, "tiny"),
        ("builtins:dict", {}, "must return an nn.Module, got dict"),  # a callable without a signature
    ]:
        with pytest.raises(UserError, match=message):
            build_model(name, (4,), 3, options, 0)


@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [
        ("lenet", (20,), r"needs images .* shape \(20,\); use the model 'mlp' or 'linear'$"),
        ("resnet8", (8, 8), "needs images"),
        ("lenet", (1, 15, 16), "at least 16×16, but the data are 15×16; use the model 'resnet8', 'mlp' or 'linear'$"),
        ("cnn", (1, 16, 8), "at least 16×16, but the data are 16×8; use the model 'resnet8', 'mlp' or 'linear'$"),
        ("lenet", (1, 7, 16), "the data are 7×16; use the model 'mlp' or 'linear'$"),
        ("resnet8", (1, 8, 7), "at least 8×8, but the data are 8×7; use the model 'mlp' or 'linear'$"),
        ("resnet18", (1, 7, 8), "at least 8×8"),
        ("resnet18-imagenet-stem", (1, 31, 32), "at least 32×32"),
        ("resnet81", (3, 32, 32), "did you mean 'resnet8'"),
        ("lstm", (3, 32, 32), r"needs sequences of token ids .* shape \(3, 32, 32\); use a model of images"),
        ("transformer", (), r"needs sequences of token ids .* shape \(\)"),
    ],
)
def test_a_model_that_does_not_fit_the_data_is_rejected_with_alternatives(
    name: str, shape: tuple[int, ...], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        build_model(name, shape, 10, {}, 0)


@pytest.mark.parametrize(
    ("name", "shape"),
    [("lenet", (1, 16, 16)), ("cnn", (1, 16, 16)), ("resnet8", (1, 8, 8)), ("resnet18", (1, 8, 8))],
)
def test_the_smallest_images_are_accepted(name: str, shape: tuple[int, ...]) -> None:
    assert build_model(name, shape, 3, {}, 0)(torch.ones(1, *shape)).shape == (1, 3)


@pytest.mark.parametrize("name", ["resnet8", "resnet18", "resnet18-imagenet-stem"])
@pytest.mark.parametrize("options", [{"width": 6, "groups": 4}, {"width": 4, "groups": 0}, {"width": 4, "groups": -2}])
def test_groups_that_do_not_divide_the_width_are_rejected(name: str, options: dict[str, int]) -> None:
    message = f"^width must be a multiple of groups, got width {options['width']} and groups {options['groups']}$"
    with pytest.raises(UserError, match=message):
        build_model(name, (3, 32, 32), 10, options, 0)


@pytest.mark.parametrize(("labels", "outputs"), [((24,), 1), ((24, 1), 1), ((24, 3), 3)])
def test_a_regression_has_one_output_per_label_value(
    experiment: Callable[..., Path], tmp_path: Path, labels: tuple[int, ...], outputs: int
) -> None:
    x = np.random.default_rng(0).normal(size=(24, 6)).astype(np.float32)
    y = np.arange(np.prod(labels)).reshape(labels).astype(np.float32)
    np.savez(tmp_path / "numbers.npz", x=x, y=y)
    path = experiment(
        data={"source": str(tmp_path / "numbers.npz")}, model={"name": "linear"}, split={"kind": "iid", "clients": 4}
    )
    found = build(load_experiment_file(path))
    assert found.problem.model(torch.ones(2, 6)).shape == (2, outputs)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("lstm", {"hidden": 0}, "model.hidden must be a whole number of at least 1, got 0"),
        ("lstm", {"embedding": 2.5}, "model.embedding must be a whole number of at least 1, got 2.5"),
        ("lstm", {"layers": True}, "model.layers must be a whole number of at least 1, got True"),
        ("lstm", {"vocabulary": -1}, "model.vocabulary must be a whole number, 0 for the number of classes, got -1"),
        ("transformer", {"outputs": "first"}, 'model.outputs must be "all" or "last", got \'first\''),
        (
            "transformer",
            {"width": 6, "heads": 4},
            "model.width must be a multiple of model.heads, got width 6 and heads 4",
        ),
        ("transformer", {"heads": 0}, "model.heads must be a whole number of at least 1, got 0"),
    ],
)
def test_wrong_options_of_a_sequence_model_are_rejected(name: str, options: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=f"^{re.escape(message)}$"):
        build_model(name, (5,), 4, options, 0)


@pytest.mark.parametrize("name", ["lstm", "transformer"])
def test_a_sequence_model_rejects_features_that_are_no_token_ids_in_one_sentence(
    experiment: Callable[..., Path], tmp_path: Path, name: str
) -> None:
    np.savez(tmp_path / "numbers.npz", x=np.ones((8, 6), np.float32), y=np.arange(8) % 2)
    split = {"kind": "iid", "clients": 2}
    path = experiment(data={"source": str(tmp_path / "numbers.npz")}, model={"name": name, "layers": 1}, split=split)
    with pytest.raises(
        UserError, match=r"^this model needs token ids, but the features are float32 numbers; give integers"
    ):
        build(load_experiment_file(path))
