"""Rows of the engine: other ways to compute the same trajectory, observed from inside a model."""

import tomllib
from typing import Any

import pytest
import torch
from bench import CLOSE, Bench, Trained, assert_literal_trajectory
from schema import put
from spying_model import SEEN

from fedcm.errors import UserError

SPYING = {"name": "spying_model:Spying"}


def run_spied(bench: Bench, setting: str, value: Any, **changes: Any) -> tuple[Trained, list[dict[str, Any]]]:
    """Return a run and what its model saw, without the smoke test: two examples twice, then one."""
    table = bench.table(model=SPYING, **changes)
    put(table, setting, value)
    SEEN.clear()
    trained = bench.train(table)
    return trained, SEEN[3:]


def stacks_clients(bench: Bench, setting: str) -> None:
    """A stack calls the model fewer times than there are steps, for the same trajectory; auto becomes a number."""
    alone, calls = run_spied(bench, setting, 1)
    stacked, fewer = run_spied(bench, setting, 3)
    assert_literal_trajectory(alone, bench.clients)
    assert_literal_trajectory(stacked, bench.clients)
    steps = sum(round(line["steps"] * line["cohort"]) for line in alone.lines)
    assert len(calls) == steps
    assert len(fewer) - 3 < steps  # two clients alone and a stack of both are compared first
    chosen, _ = run_spied(bench, setting, None)
    assert_literal_trajectory(chosen, bench.clients)
    assert _get_engine(chosen)["stack"] >= 1


def lays_out_images(bench: Bench, setting: str) -> None:
    images = bench.whole_file("images", shape=(2, 4, 5), examples=60)
    changes = {"data": {"source": images}, "split": {"kind": "iid", "clients": 6}}
    for layout in ("channels_last", "contiguous"):
        trained, calls = run_spied(bench, setting, layout, **changes)
        assert {seen["channels_last"] for seen in calls} == {layout == "channels_last"}
        assert_literal_trajectory(trained, trained.clients)
    chosen, _ = run_spied(bench, setting, None, **changes)
    assert _get_engine(chosen)["layout"] in ("channels_last", "contiguous")


def compiles_the_model(bench: Bench, setting: str) -> None:
    """Only full batches use the compiled model."""
    sizes: list[int] = []

    def compiled(model: Any, **options: Any) -> Any:
        def run(x: torch.Tensor) -> torch.Tensor:
            sizes.append(len(x))
            return model(x)

        return run

    bench.monkeypatch.setattr(torch, "compile", compiled)
    off, calls = run_spied(bench, setting, "off")
    assert not sizes
    on, _ = run_spied(bench, setting, "on")
    assert set(sizes) == {4}
    assert len(sizes) == 1 + sum(seen["size"] == 4 for seen in calls), "plus one before the first round"
    assert {seen["size"] for seen in calls} > {4}
    assert torch.equal(on.params, off.params)
    short, _ = run_spied(bench, setting, None)
    assert _get_engine(short)["compile"] == "off", "compiling does not pay for a run of seconds"
    alone = bench.clients_folder("alone", bench.clients[:1])
    run_spied(bench, setting, "on", data={"source": alone}, participation={"kind": "everyone"})


def computes_on_the_device(bench: Bench, setting: str) -> None:
    trained, calls = run_spied(bench, setting, None)
    assert {seen["device"] for seen in calls} == {"cpu"}
    assert trained.params.device.type == "cpu"
    if not torch.cuda.is_available():
        with pytest.raises(UserError, match=r'engine\.device must be "cpu" here'):
            run_spied(bench, setting, "cuda")
    else:
        trained, calls = run_spied(bench, setting, "cuda")
        assert {seen["device"] for seen in calls} == {"cuda"}


def computes_in_this_precision(bench: Bench, setting: str) -> None:
    """The model's own numbers are halves; parameters stay what they are and end nearby."""
    for precision, dtype in ((None, torch.float32), ("bf16", torch.bfloat16)):
        trained, calls = run_spied(bench, setting, precision)
        assert {seen["dtype"] for seen in calls} == {dtype}
        assert trained.params.dtype == torch.float32
        assert_literal_trajectory(trained, bench.clients, CLOSE if precision is None else 0.05)
    with pytest.raises(AssertionError, match="differs by"):
        assert_literal_trajectory(trained, bench.clients)


def _get_engine(trained: Trained) -> dict[str, Any]:
    return tomllib.loads((trained.folder / "experiment.toml").read_text())["engine"]
