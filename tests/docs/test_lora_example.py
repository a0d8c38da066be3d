"""The example of fine-tuning with LoRA, on made-up sequences."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from safetensors.torch import save_file

import fedcm
from fedcm.data import Dataset, Examples

SCRIPT = Path(__file__).parents[2] / "docs" / "examples" / "lora_shakespeare.py"
pytestmark = pytest.mark.slow  # importing transformers takes seconds
SIZES = {"vocabulary": 7, "length": 6, "width": 8, "layers": 1}


@pytest.fixture(scope="module")
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("lora_shakespeare", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["lora_shakespeare"] = module
    spec.loader.exec_module(module)
    return module


def make_tokens(first: int, count: int = 20) -> torch.Tensor:
    """Sequences that count upwards modulo 7."""
    return (torch.arange(6)[None] + torch.arange(count)[:, None] + first) % 7


def make_client(first: int) -> dict[str, torch.Tensor]:
    tokens = make_tokens(first)
    return {"input_ids": tokens, "labels": tokens}


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_adapters_are_a_small_part_of_the_model_and_both_ways_learn(example: ModuleType, tmp_path: Path) -> None:
    base = example.make_language_model(**SIZES)
    before = example.compute_perplexity(base, make_tokens(0))
    example.pretrain(base, make_tokens(0), steps=3, batch_size=4)
    pretrained = example.compute_perplexity(base, make_tokens(0))
    assert pretrained < before
    save_file(base.state_dict(), tmp_path / "base.safetensors")
    clients = [make_client(first) for first in range(4)]
    results = example.compare(tmp_path / "base.safetensors", clients, SIZES, 2, rounds=4, batch_size=4, epochs=3)
    assert results["full"].trained == sum(parameter.numel() for parameter in base.parameters())
    assert results["LoRA"].trained == 2 * (8 + 3 * 8)  # two matrices of rank 2 beside the layer 8 → 24
    for result in results.values():
        assert result.bytes_per_round == 4 * 3 * 4 * result.trained  # FedCM: two vectors down, one up, to 4 clients
        assert result.validation[result.lr] == min(result.validation.values())
        assert example.compute_perplexity(result.model, make_tokens(0)) < pretrained


def test_perplexity_is_that_of_the_next_tokens(example: ModuleType) -> None:
    model, tokens = example.make_language_model(**SIZES), make_tokens(3, 250)
    logits = model(input_ids=tokens).logits
    loss = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
    assert example.compute_perplexity(model, tokens) == pytest.approx(loss.exp().item(), rel=1e-5)


def test_frozen_weights_of_a_model_with_adapters_do_not_change(example: ModuleType) -> None:
    model = example.add_adapters(example.make_language_model(**SIZES), rank=2)
    settings = {"rounds": 2, "lr": 1.0, "batch_size": 4, "loss": "model"}
    trained, _ = fedcm.train(model, [make_client(0), make_client(1)], fedcm.FedCM(), **settings)
    after = trained.state_dict()
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, after[name]) != ("lora_" in name), name


def test_a_test_set_of_each_role_is_left_out_of_training(example: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    features = torch.arange(30)[:, None].repeat(1, 4)
    owners = torch.tensor([0] * 10 + [1] * 10 + [2] * 10).numpy()
    dataset = Dataset(
        "plays",
        Examples(features, features),
        None,
        30,
        owners=owners,
        client_names=("a/ANN", "b/BOB", "b/EVE"),
    )
    monkeypatch.setattr(example, "load_dataset", lambda name: dataset)
    central, clients, test = example.load_plays(plays_for_tuning=1)
    assert central[:, 0].tolist() == list(range(10))
    assert [client["input_ids"][:, 0].tolist() for client in clients] == [list(range(10, 18)), list(range(20, 28))]
    assert test[:, 0].tolist() == [18, 19, 28, 29]
    assert test.shape == (4, 5)
