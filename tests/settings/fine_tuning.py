"""Rows of fine-tuning: a run starts from the weights of a file and trains only the chosen parameters."""

from pathlib import Path

import literal
import pytest
import torch
from bench import CLASSES, CLOSE, FEATURES, Bench, Trained, assert_different
from safetensors.torch import load_file, save_file
from torch import Tensor
from transcriptions import TRANSCRIPTIONS

from fedcm import Run
from fedcm.errors import UserError

WEIGHT = CLASSES * FEATURES  # the bias follows


def starts_from_the_file(bench: Bench, setting: str) -> None:
    """The trajectory is that of a literal run from the weights of the file."""
    start = _draw_start()
    trained = _train(bench, weights=_write(bench, start))
    _assert_trajectory(trained, bench, start)
    assert_different(trained, bench.train(bench.table()))


def loads_the_common_names(bench: Bench, setting: str) -> None:
    """Without the bias in the file, the bias starts as drawn from the seed, and other names are left out."""
    start = _draw_start()
    path = _write(bench, start, without_bias=True)
    with pytest.raises(UserError, match=r"lack '1.bias' and have besides 'other'"):
        _train(bench, weights=path)
    start[WEIGHT:] = literal.initial(bench.table()["seed"], FEATURES, CLASSES)[WEIGHT:]
    _assert_trajectory(_train(bench, weights=path, weights_strict=False), bench, start)


def trains_only_these_parameters(bench: Bench, setting: str) -> None:
    """The trajectory is that of a literal run whose loss has no gradient elsewhere; only the trained part is sent."""
    start = literal.initial(bench.table()["seed"], FEATURES, CLASSES)
    for patterns, trained_part in ((["1.bias"], slice(WEIGHT, None)), (["*.w*"], slice(0, WEIGHT))):
        trained = _train(bench, train=patterns)
        _assert_trajectory(trained, bench, start, trained_part)
        size = len(start[trained_part])
        assert trained.params.shape == (size,)
        assert {line["bytes_up"] for line in trained.lines} == {3 * 4 * size}
        final = load_file(trained.folder / "model.safetensors")
        whole = torch.cat([final["1.weight"].reshape(-1), final["1.bias"]])
        frozen = torch.ones(len(start), dtype=torch.bool)
        frozen[trained_part] = False
        assert torch.equal(whole[frozen], start.float()[frozen]), "frozen parameters keep their bits"
        assert torch.equal(whole[~frozen], trained.params)


def keeps_these_parameters_at_the_clients(bench: Bench, setting: str) -> None:
    """Only the others are sent; the clients' own parameters differ, and the model of the run keeps the initial ones."""
    start = literal.initial(bench.table()["seed"], FEATURES, CLASSES)
    trained = _train(bench, personal=["1.b*"])
    assert trained.params.shape == (WEIGHT,)
    assert {line["bytes_up"] for line in trained.lines} == {3 * 4 * WEIGHT}
    final = load_file(trained.folder / "model.safetensors")
    assert torch.equal(final["1.bias"], start[WEIGHT:].float())
    assert torch.equal(final["1.weight"].reshape(-1), trained.params)
    run = Run(trained.folder)
    first, second = sorted({client for line in trained.lines for client in line["clients"]})[:2]
    own = [run.model(client=client).get_parameter("1.bias") for client in (first, second)]
    assert not torch.equal(own[0], own[1])
    assert not torch.equal(own[0], final["1.bias"])
    assert _train(bench, personal=["1.w*"]).params.shape == (CLASSES,)
    assert _train(bench, personal=[]).params.shape == (WEIGHT + CLASSES,)


def _train(bench: Bench, **model: object) -> Trained:
    return bench.train(bench.table(model={"name": "linear", **model}))


def _draw_start() -> Tensor:
    return torch.randn(WEIGHT + CLASSES, generator=torch.Generator().manual_seed(3)).double()


def _write(bench: Bench, start: Tensor, without_bias: bool = False) -> str:
    tensors = {"1.weight": start[:WEIGHT].reshape(CLASSES, FEATURES).float(), "1.bias": start[WEIGHT:].float()}
    path: Path = bench.folder / "weights.safetensors"
    save_file({"1.weight": tensors["1.weight"], "other": torch.ones(2)} if without_bias else tensors, path)
    return str(path)


def _assert_trajectory(trained: Trained, bench: Bench, start: Tensor, part: slice = slice(None)) -> None:
    world = literal.world_of(trained.table | {"classes": CLASSES}, bench.clients, trained.cohorts)
    is_trained = torch.zeros(len(start), dtype=torch.bool)
    is_trained[part] = True
    whole_loss = world.loss
    world.loss = lambda theta, batch: whole_loss(torch.where(is_trained, theta, theta.detach()), batch)
    settings = {"alpha": trained.table["algorithm"]["alpha"]}
    expected = TRANSCRIPTIONS["fedcm"](world, start, len(trained.cohorts), settings)
    for server, variables in zip(trained.servers, expected, strict=True):
        assert float((server.params - variables["x"][part]).abs().max()) <= CLOSE
        assert torch.equal(variables["x"][~is_trained], start[~is_trained])
