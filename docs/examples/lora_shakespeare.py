"""Fine-tune a small language model across the roles of Shakespeare's plays, with LoRA and in full.

    pip install "fedcm[finetune]"
    fedcm data prepare shakespeare
    python docs/examples/lora_shakespeare.py

A GPT-2 of two layers is trained centrally on 27 of the plays and saved. Then the roles of the other ten plays fine-tune
it with FedCM. With LoRA, only the small matrices of the adapters are trained, sent and stored. Each way has three
learning rates to choose from, by the perplexity on a tenth of every role's training sequences. The test sequences are
looked at once, for the chosen models.
"""

import argparse
import math
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import GPT2Config, GPT2LMHeadModel

import fedcm
from fedcm.data import load_dataset

Client = dict[str, Tensor]  # "input_ids" and "labels", both (n, L); the model shifts the labels itself
RATES = {"full": (0.03, 0.1, 0.3), "LoRA": (0.3, 1.0, 3.0)}


class Result(NamedTuple):
    """One way of fine-tuning, with its best learning rate."""

    lr: float
    validation: Mapping[float, float]  # perplexity on the validation sequences, by learning rate
    trained: int  # parameters
    bytes_per_round: int  # down and up, all clients of a round
    model: nn.Module


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


def pretrain(model: nn.Module, tokens: Tensor, steps: int, batch_size: int = 32) -> None:
    """Train a model centrally, with AdamW."""
    optimiser, draw = torch.optim.AdamW(model.parameters(), lr=2e-3), torch.Generator().manual_seed(1)
    for _ in range(steps):
        batch = tokens[torch.randint(0, len(tokens), (batch_size,), generator=draw)]
        optimiser.zero_grad()
        model(input_ids=batch, labels=batch).loss.backward()
        optimiser.step()


def add_adapters(model: nn.Module, rank: int) -> nn.Module:
    """Freeze a model and add low-rank adapters to its attention (Hu et al., 2021); only these require a gradient."""
    torch.manual_seed(2)
    config = LoraConfig(r=rank, lora_alpha=2 * rank, target_modules=["c_attn"], fan_in_fan_out=True)
    return get_peft_model(model, config)  # pyright: ignore[reportArgumentType]


@torch.no_grad()
def compute_perplexity(model: nn.Module, tokens: Tensor) -> float:
    """Return e to the mean loss."""
    losses = [len(piece) * model(input_ids=piece, labels=piece).loss for piece in tokens.split(200)]
    return math.exp(float(torch.stack(losses).sum()) / len(tokens))


def fine_tune(
    make_model: Callable[[], nn.Module], clients: Sequence[Client], rates: Sequence[float], **settings: Any
) -> Result:
    """Train what requires a gradient across clients with FedCM, and keep the learning rate with the best validation."""
    runs = {
        lr: fedcm.train(
            make_model(),
            clients,
            fedcm.FedCM(alpha=0.3),
            loss="model",
            metrics=["perplexity"],
            validation=0.1,
            lr=lr,
            evaluate_every=settings["rounds"],
            **settings,
        )
        for lr in rates
    }
    validation = {lr: run.history[-1]["validation_perplexity"] for lr, run in runs.items()}
    best = min(validation, key=lambda lr: validation[lr])
    model, history = runs[best]
    count = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    return Result(best, validation, count, history[-1]["bytes_down"] + history[-1]["bytes_up"], model)


def compare(
    weights: Path, clients: Sequence[Client], sizes: dict[str, int], rank: int, **settings: Any
) -> dict[str, Result]:
    """Fine-tune the language model of a file in full and with adapters."""

    def load() -> nn.Module:
        model = make_language_model(**sizes)
        model.load_state_dict(load_file(weights))
        return model

    ways = {"full": load, "LoRA": lambda: add_adapters(load(), rank)}
    return {name: fine_tune(make, clients, RATES[name], **settings) for name, make in ways.items()}


def load_plays(plays_for_tuning: int) -> tuple[Tensor, list[Client], Tensor]:
    """Return the sequences of the first plays, the roles of the last plays, and the last fifth of each role to test."""
    data = load_dataset("shakespeare")
    assert data.owners is not None
    plays = sorted({name.split("/")[0] for name in data.client_names})
    chosen = set(plays[-plays_for_tuning:])
    owners = torch.from_numpy(data.owners)
    tokens = torch.cat([data.train.features, data.train.labels[:, -1:]], dim=1)  # labels are the next tokens
    central, clients, held_out = [], [], []
    for client, name in enumerate(data.client_names):
        own = tokens[owners == client]
        if name.split("/")[0] not in chosen:
            central.append(own)
            continue
        border = math.ceil(len(own) * 0.8)
        clients.append({"input_ids": own[:border], "labels": own[:border]})
        held_out.append(own[border:])
    return torch.cat(central), clients, torch.cat(held_out)


def main() -> None:
    parser = argparse.ArgumentParser(description="Fine-tune a language model across the roles of ten plays.")
    parser.add_argument("--steps", type=int, default=500, help="steps of the central training")
    parser.add_argument("--rounds", type=int, default=30, help="rounds of the fine-tuning")
    parser.add_argument("--rank", type=int, default=4, help="rank of the adapters")
    parser.add_argument("--workers", type=int, default=2, help="processes")
    given = parser.parse_args()
    central, clients, test = load_plays(plays_for_tuning=10)
    sizes = {"vocabulary": 97, "length": 81, "width": 64, "layers": 2}
    base = make_language_model(**sizes)
    pretrain(base, central, given.steps)
    print(f"{len(clients)} roles; test perplexity before fine-tuning {compute_perplexity(base, test):.3f}")
    with tempfile.TemporaryDirectory() as folder:
        weights = Path(folder) / "base.safetensors"
        save_file(base.state_dict(), weights)
        settings = {"rounds": given.rounds, "participation": 10, "batch_size": 10, "workers": given.workers}
        for name, result in compare(weights, clients, sizes, given.rank, **settings).items():
            for lr, perplexity in result.validation.items():
                print(f"{name}: learning rate {lr:g}, validation perplexity {perplexity:.3f}")
            print(
                f"{name}: {result.trained:,} parameters trained, {result.bytes_per_round:,} bytes per round, "
                f"test perplexity {compute_perplexity(result.model, test):.3f} with learning rate {result.lr:g}"
            )


if __name__ == "__main__":
    main()
