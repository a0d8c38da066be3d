"""Rows of models: a run trains and tests the architecture of the paper, with these options."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from architectures import ARCHITECTURES, SEQUENCE_MODELS
from bench import Bench, Trained
from safetensors.torch import load_file

IMAGES = {
    "lenet": (1, 16, 16),
    "lenet-wide": (1, 16, 16),
    "cnn": (1, 16, 16),
    "resnet8": (1, 8, 8),
    "resnet18": (1, 8, 8),
}
IMAGES["resnet18-imagenet-stem"] = (1, 32, 32)
NARROW: dict[str, Any] = {"width": 4}
RECURRENT: dict[str, Any] = {"embedding": 3, "hidden": 5, "layers": 1}
ATTENTIVE: dict[str, Any] = {"width": 8, "layers": 1, "heads": 2}
TOKENS, LENGTH = 7, 6


def trains_the_architecture(*options: dict[str, Any]) -> Callable[[Bench, str], None]:
    """The loss on the test set is that of the reference architecture with the trained parameters; each set of
    options gives a different loss."""

    def row(bench: Bench, setting: str) -> None:
        losses = {round(_compute_test_loss(bench, setting.split(".")[1], own), 6) for own in options or ({},)}
        assert len(losses) == max(len(options), 1)

    return row


def _compute_test_loss(bench: Bench, name: str, options: dict[str, Any]) -> float:
    if name in SEQUENCE_MODELS:
        source = _write_sequences(bench, options)
    else:
        source = bench.whole_file("images", shape=IMAGES.get(name, (6,)), examples=30)
    trained = bench.train(
        bench.table(
            rounds=2,
            data={"source": source},
            split={"kind": "iid", "clients": 3},
            model={"name": name, **options},
            client={"lr": 1.0, "epochs": 8, "batch_size": 5} if name in SEQUENCE_MODELS else {"lr": 0.02},
        )
    )
    tensors = load_file(trained.folder / "model.safetensors")
    _assert_learnt(trained, tensors)
    # the tensors of the file are in another order, so they are matched by name
    names = list(trained.run.setup.problem.model.state_dict())
    parameters = [tensors[own].double() for own in names]
    whole = np.load(source)
    x, y = torch.from_numpy(whole["x_test"]), torch.from_numpy(whole["y_test"])
    x = x.double() if x.is_floating_point() else x
    loss = F.cross_entropy(ARCHITECTURES[name](parameters, x, **options), y).item()
    assert abs(trained.lines[-1]["test_loss"] - loss) <= 1e-4
    return loss


def _assert_learnt(trained: Trained, tensors: dict[str, torch.Tensor]) -> None:
    flat = torch.cat([tensors[own].reshape(-1) for own in trained.run.setup.problem.model.state_dict()])
    assert torch.equal(flat, trained.params)
    assert not torch.equal(flat, trained.run.setup.problem.initial_params)


def _write_sequences(bench: Bench, options: dict[str, Any]) -> str:
    """Write sequences of tokens with a label at every position, or one label each; more tokens than classes if the
    model has a vocabulary of its own."""
    draw, data = np.random.default_rng(8), {}
    for part, size in (("train", 30), ("test", 20)):
        tokens = draw.integers(0, options.get("vocabulary", TOKENS), (size, LENGTH))
        tokens[:, -1] = np.arange(size) % TOKENS
        labels = np.roll(tokens, -1, 1) % TOKENS
        data |= {f"x_{part}": tokens, f"y_{part}": labels[:, 0] if options.get("outputs") == "last" else labels}
    path = bench.folder / "sequences.npz"
    np.savez(path, allow_pickle=False, **data)
    return str(path)
