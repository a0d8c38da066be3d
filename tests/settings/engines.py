"""Rows of the engine: other ways to compute the same walk, seen from inside a model of the user's own."""

import tomllib
from typing import Any

import pytest
import torch
from bench import CLOSE, Bench, Trained, assert_walked_as_written
from schema import put
from spying_model import SEEN

from fedcm.errors import UserError

SPYING = {"name": "spying_model:Spying"}


def spied(bench: Bench, setting: str, value: Any, **changes: Any) -> tuple[Trained, list[dict[str, Any]]]:
    """A run, and what its model saw after the looks at it that come before: two examples twice, then one."""
    table = bench.table(model=SPYING, **changes)
    put(table, setting, value)
    SEEN.clear()
    trained = bench.train(table)
    return trained, SEEN[3:]


def stacks_clients(bench: Bench, setting: str) -> None:
    """A stack asks the model fewer times than there are steps, for the same walk; auto becomes a number."""
    alone, calls = spied(bench, setting, 1)
    stacked, fewer = spied(bench, setting, 3)
    assert_walked_as_written(alone, bench.clients)
    assert_walked_as_written(stacked, bench.clients)
    steps = sum(round(line["steps"] * line["cohort"]) for line in alone.lines)
    assert len(calls) == steps
    assert len(fewer) - 3 < steps  # two clients alone and a stack of both are compared first
    chosen, _ = spied(bench, setting, None)
    assert_walked_as_written(chosen, bench.clients)
    assert _engine_of(chosen)["stack"] >= 1


def lays_out_images(bench: Bench, setting: str) -> None:
    images = bench.whole_file("images", shape=(2, 4, 5), examples=60)
    changes = {"data": {"source": images}, "split": {"kind": "iid", "clients": 6}}
    for layout in ("channels_last", "contiguous"):
        trained, calls = spied(bench, setting, layout, **changes)
        assert {seen["channels_last"] for seen in calls} == {layout == "channels_last"}
        assert_walked_as_written(trained, trained.clients)
    chosen, _ = spied(bench, setting, None, **changes)
    assert _engine_of(chosen)["layout"] in ("channels_last", "contiguous")


def compiles_the_model(bench: Bench, setting: str) -> None:
    """Full batches go through what torch.compile gave, the others do not."""
    sizes: list[int] = []

    def compiled(model: Any, **how: Any) -> Any:
        def run(x: torch.Tensor) -> torch.Tensor:
            sizes.append(len(x))
            return model(x)

        return run

    bench.monkeypatch.setattr(torch, "compile", compiled)
    off, calls = spied(bench, setting, "off")
    assert not sizes
    on, _ = spied(bench, setting, "on")
    assert set(sizes) == {4}
    assert len(sizes) == 1 + sum(seen["size"] == 4 for seen in calls), "and one before the first round"
    assert {seen["size"] for seen in calls} > {4}
    assert torch.equal(on.params, off.params)
    short, _ = spied(bench, setting, None)
    assert _engine_of(short)["compile"] == "off", "a run of seconds"
    alone = bench.clients_folder("alone", bench.clients[:1])
    spied(bench, setting, "on", data={"source": alone}, participation={"kind": "everyone"})


def computes_on_the_device(bench: Bench, setting: str) -> None:
    trained, calls = spied(bench, setting, None)
    assert {seen["device"] for seen in calls} == {"cpu"}
    assert trained.params.device.type == "cpu"
    if not torch.cuda.is_available():
        with pytest.raises(UserError, match=r'engine\.device must be "cpu" here'):
            spied(bench, setting, "cuda")
    else:
        trained, calls = spied(bench, setting, "cuda")
        assert {seen["device"] for seen in calls} == {"cuda"}


def computes_in_this_precision(bench: Bench, setting: str) -> None:
    """The model's own numbers are halves; parameters stay what they are and end nearby."""
    for precision, dtype in ((None, torch.float32), ("bf16", torch.bfloat16)):
        trained, calls = spied(bench, setting, precision)
        assert {seen["dtype"] for seen in calls} == {dtype}
        assert trained.params.dtype == torch.float32
        assert_walked_as_written(trained, bench.clients, CLOSE if precision is None else 0.05)
    with pytest.raises(AssertionError, match="differs by"):
        assert_walked_as_written(trained, bench.clients)


def _engine_of(trained: Trained) -> dict[str, Any]:
    return tomllib.loads((trained.folder / "experiment.toml").read_text())["engine"]
