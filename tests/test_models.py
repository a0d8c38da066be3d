"""The bundled models, and the user's own by import path."""

from pathlib import Path

import pytest
import torch
from torch import nn

from fedcm.models import MODELS, build_model
from fedcm.refusal import Refused


@pytest.mark.parametrize("name", MODELS)
def test_every_model_takes_cifar_and_is_free_of_batch_norm(name: str) -> None:
    model = build_model(name, (3, 32, 32), 10, {}, torch_seed=1)
    x = torch.randn(2, 3, 32, 32).contiguous(memory_format=torch.channels_last)
    assert model(x).shape == (2, 10)
    assert not any(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in model.modules())


@pytest.mark.parametrize(
    ("name", "shape", "parameters"),
    [
        ("linear", (1, 28, 28), 7850),
        ("mlp", (1, 28, 28), 199_210),  # McMahan et al.'s 2NN
        ("lenet", (3, 32, 32), 62_006),
        ("cnn", (3, 32, 32), 797_962),  # Acar et al.'s
        ("resnet18", (3, 32, 32), 11_173_962),
        ("resnet18-imagenet-stem", (3, 32, 32), 11_181_642),
    ],
)
def test_the_models_have_the_published_number_of_parameters(name: str, shape: tuple[int, ...], parameters: int) -> None:
    model = build_model(name, shape, 10, {}, torch_seed=1)
    assert sum(p.numel() for p in model.parameters()) == parameters


def test_relu_after_the_max_pool_is_the_same_function_as_before_it() -> None:
    model = build_model("lenet", (3, 32, 32), 10, {}, torch_seed=1)
    assert isinstance(model, nn.Sequential)
    conv1, pool, relu, conv2, _, _, *rest = model
    x = torch.randn(3, 3, 32, 32)
    usual = nn.Sequential(*rest)(pool(relu(conv2(pool(relu(conv1(x)))))))
    assert torch.equal(model(x), usual)


def test_the_initial_parameters_are_a_function_of_the_seed_alone() -> None:
    def flat(seed: int) -> torch.Tensor:
        torch.rand(3)  # whatever torch's own generator did before
        return torch.cat([p.reshape(-1) for p in build_model("lenet", (1, 28, 28), 10, {}, seed).parameters()])

    state = torch.get_rng_state()
    assert torch.equal(flat(1), flat(1))
    assert not torch.equal(flat(1), flat(2))
    torch.set_rng_state(state)
    torch.rand(12)
    expected = torch.rand(1)
    torch.set_rng_state(state)
    torch.rand(12)
    build_model("lenet", (1, 28, 28), 10, {}, 5)
    assert torch.equal(torch.rand(1), expected), "torch's own generator stays as it was"


def test_a_factory_of_the_users_own_gets_shape_classes_and_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_own_models.py").write_text(
        "from torch import nn\n"
        "def tiny(input_shape, classes, bias=True):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(input_shape[0], classes, bias=bias))\n"
        "def fixed():\n    return nn.Linear(4, 2)\n"
        "def wrong():\n    return 'a string'\n"
        "def broken():\n    raise RuntimeError('no weights')\n"
    )
    monkeypatch.chdir(tmp_path)
    model = build_model("my_own_models:tiny", (4,), 3, {"bias": False}, 0)
    assert model(torch.ones(1, 4)).shape == (1, 3)
    assert isinstance(build_model("my_own_models:fixed", (4,), 3, {}, 0), nn.Linear)
    for name, options, said in [
        ("my_own_models:tiny", {"bais": False}, "did you mean 'bias'"),
        ("my_own_models:wrong", {}, "must return an nn.Module"),
        ("my_own_models:broken", {}, "no weights"),
        ("my_own_models:tyni", {}, "tiny"),
    ]:
        with pytest.raises(Refused, match=said):
            build_model(name, (4,), 3, options, 0)


@pytest.mark.parametrize(
    ("name", "shape", "said"),
    [
        ("lenet", (20,), "takes images"),
        ("lenet", (1, 8, 8), "at least 16×16"),
        ("resnet81", (3, 32, 32), "did you mean 'resnet8'"),
    ],
)
def test_a_model_that_does_not_fit_is_refused_with_one_that_does(name: str, shape: tuple[int, ...], said: str) -> None:
    with pytest.raises(Refused, match=said):
        build_model(name, shape, 10, {}, 0)
