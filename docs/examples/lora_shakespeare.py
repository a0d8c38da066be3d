"""Fine-tune a small language model across the roles of Shakespeare's plays, with LoRA and in full.

    pip install "fedcm[finetune]"
    fedcm data prepare shakespeare
    python docs/examples/lora_shakespeare.py

A GPT-2 of two layers is trained centrally on 27 of the plays and saved. Then the roles of the other ten plays fine-tune
it with FedCM. With LoRA, only the small matrices of the adapters are trained, sent and stored.
"""

import argparse
import math
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import GPT2Config, GPT2LMHeadModel

import fedcm
from fedcm.data import load_dataset

Client = tuple[Tensor, Tensor]


class NextToken(nn.Module):
    """A language model that takes token ids (b, L) and returns logits (b, vocabulary, L)."""

    def __init__(self, language_model: nn.Module) -> None:
        super().__init__()
        self.language_model = language_model

    def forward(self, tokens: Tensor) -> Tensor:
        return self.language_model(input_ids=tokens).logits.transpose(1, 2)


class Result(NamedTuple):
    """One way of fine-tuning."""

    trained: int  # parameters
    bytes_per_round: int  # down and up, all clients of a round
    perplexity: float  # on the test sequences, after the last round


def make_language_model(vocabulary: int, length: int, width: int, layers: int) -> nn.Module:
    """Make a GPT-2 without dropout, with random parameters."""
    config = GPT2Config(
        vocab_size=vocabulary,
        n_positions=length,
        n_embd=width,
        n_layer=layers,
        n_head=4,
        bos_token_id=None,
        eos_token_id=None,
    )
    config.resid_pdrop = config.embd_pdrop = config.attn_pdrop = 0.0
    config.use_cache, config.tie_word_embeddings = False, False
    torch.manual_seed(0)
    return GPT2LMHeadModel(config)


def pretrain(model: nn.Module, data: Client, steps: int, batch_size: int = 32) -> None:
    """Train a model centrally, with AdamW."""
    optimiser, draw = torch.optim.AdamW(model.parameters(), lr=2e-3), torch.Generator().manual_seed(1)
    for _ in range(steps):
        index = torch.randint(0, len(data[0]), (batch_size,), generator=draw)
        loss = nn.functional.cross_entropy(model(data[0][index]), data[1][index])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()


def add_adapters(model: NextToken, rank: int) -> NextToken:
    """Freeze a model and add low-rank adapters to its attention (Hu et al., 2021); only these require a gradient."""
    torch.manual_seed(2)
    config = LoraConfig(r=rank, lora_alpha=2 * rank, target_modules=["c_attn"], fan_in_fan_out=True)
    return NextToken(get_peft_model(model.language_model, config))  # pyright: ignore[reportArgumentType]


@torch.no_grad()
def compute_perplexity(model: nn.Module, data: Client) -> float:
    """Return e to the mean cross-entropy."""
    pieces = [
        nn.functional.cross_entropy(model(x), y, reduction="sum")
        for x, y in zip(*map(split_in_pieces, data), strict=True)
    ]
    return math.exp(float(torch.stack(pieces).sum()) / data[1].numel())


def split_in_pieces(tensor: Tensor) -> Sequence[Tensor]:
    return tensor.split(200)


def fine_tune(model: nn.Module, clients: Sequence[Client], test: Client, **settings: Any) -> Result:
    """Train what requires a gradient across clients with FedCM."""
    trained, history = fedcm.train(model, clients, fedcm.FedCM(alpha=0.3), test=test, **settings)
    count = sum(parameter.numel() for parameter in trained.parameters() if parameter.requires_grad)
    round = history[-1]
    return Result(count, round["bytes_down"] + round["bytes_up"], math.exp(round["test_loss"]))


def compare(
    weights: Path, clients: Sequence[Client], test: Client, sizes: dict[str, int], rank: int, **settings: Any
) -> dict[str, Result]:
    """Fine-tune the language model of a file in full and with adapters."""
    results = {}
    for name, lr in (("full", 0.1), ("LoRA", 1.0)):
        language_model = make_language_model(**sizes)
        language_model.load_state_dict(load_file(weights))
        model = NextToken(language_model)
        results[name] = fine_tune(
            add_adapters(model, rank) if name == "LoRA" else model, clients, test, lr=lr, **settings
        )
    return results


def load_plays(plays_for_tuning: int) -> tuple[Client, list[Client], Client]:
    """Return the sequences of the first plays, the roles of the last plays, and the last fifth of each role to test."""
    data = load_dataset("shakespeare")
    assert data.owners is not None
    plays = sorted({name.split("/")[0] for name in data.client_names})
    chosen = set(plays[-plays_for_tuning:])
    owners = torch.from_numpy(data.owners)
    central, clients, held_out = [], [], []
    for client, name in enumerate(data.client_names):
        index = (owners == client).nonzero()[:, 0]
        own = data.train.features[index], data.train.labels[index]
        if name.split("/")[0] not in chosen:
            central.append(own)
            continue
        border = math.ceil(len(index) * 0.8)
        clients.append((own[0][:border], own[1][:border]))
        held_out.append((own[0][border:], own[1][border:]))
    return join(central), clients, join(held_out)


def join(parts: Sequence[Client]) -> Client:
    features, labels = zip(*parts, strict=True)
    return torch.cat(features), torch.cat(labels)


def main() -> None:
    parser = argparse.ArgumentParser(description="Fine-tune a language model across the roles of ten plays.")
    parser.add_argument("--steps", type=int, default=500, help="steps of the central training")
    parser.add_argument("--rounds", type=int, default=30, help="rounds of the fine-tuning")
    parser.add_argument("--rank", type=int, default=4, help="rank of the adapters")
    parser.add_argument("--workers", type=int, default=2, help="processes")
    given = parser.parse_args()
    central, clients, test = load_plays(plays_for_tuning=10)
    sizes = {"vocabulary": 97, "length": 80, "width": 64, "layers": 2}
    base = NextToken(make_language_model(**sizes))
    pretrain(base, central, given.steps)
    print(f"{len(clients)} roles; perplexity before fine-tuning {compute_perplexity(base, test):.3f}")
    with tempfile.TemporaryDirectory() as folder:
        weights = Path(folder) / "base.safetensors"
        save_file(base.language_model.state_dict(), weights)
        settings = {"rounds": given.rounds, "participation": 10, "batch_size": 10, "workers": given.workers}
        for name, result in compare(weights, clients, test, sizes, given.rank, **settings).items():
            print(
                f"{name}: {result.trained:,} parameters trained, {result.bytes_per_round:,} bytes per round, "
                f"perplexity {result.perplexity:.3f}"
            )


if __name__ == "__main__":
    main()
