"""Autotune replaces every "auto" of the engine once, by timing, and the run's experiment keeps the choice."""

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scenes import read_lines
from torch import nn

from fedcm.config.sections import EngineSection
from fedcm.core.participation import FixedSize
from fedcm.core.problem import Problem
from fedcm.core.round_loop import TrainingPlan
from fedcm.core.schedule import Schedule
from fedcm.data.batches import LocalWork
from fedcm.data.dataset import Dataset, Examples
from fedcm.data.federated import ArrayData
from fedcm.errors import UserError
from fedcm.runs import autotune
from fedcm.runs.autotune import tune_engine

IMAGES = torch.randn(40, 3, 8, 8)
LABELS = torch.arange(40) % 4


def tried(
    monkeypatch: pytest.MonkeyPatch, seconds: dict[str, float], engine: EngineSection, **more: Any
) -> EngineSection:
    """The engine's choice where these are the times: of a step by layout, of a stack by its size, compiled."""
    model = more.get("model") or nn.Sequential(nn.Flatten(), nn.Linear(192, 4))
    problem = Problem(model)
    seen: list[str] = []

    def timed(step: Callable[[], Any]) -> float:
        result = step()
        if isinstance(result, tuple):  # a stack's gradients and losses
            size = len(result[0])
            return seconds.get(f"stack of {size}", 9.0) * size
        if problem._compiled_size is not None:
            return seconds["compiled"]
        seen.append("layout")
        return seconds[("channels_last", "contiguous")[len(seen) - 1] if len(seen) <= 2 and asks_layout else "alone"]

    asks_layout = engine.layout == "auto"
    monkeypatch.setattr(autotune, "_measure_step", timed)
    monkeypatch.setattr(autotune, "count_default_workers", lambda device: 2)
    data = ArrayData(Dataset("made", Examples(IMAGES, LABELS), None, 4), np.split(np.arange(40), 4))
    plan = TrainingPlan(more.get("rounds", 10), 4, FixedSize(more.get("cohort", 4)), Schedule(0.1))
    return tune_engine(engine, problem, data, LocalWork(more.get("batch_size", 5)), plan).engine


FIXED = EngineSection(layout="channels_last", compile="off")


def test_the_stack_with_the_shortest_time_per_client_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(autotune, "_compute_mean_cohort", lambda plan: 100.0)
    times = {"alone": 0.001, "stack of 4": 0.0005, "stack of 16": 0.0001, "stack of 50": 0.0002}
    assert tried(monkeypatch, times, FIXED).stack == 16


def test_no_stack_leaves_a_core_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(autotune, "_compute_mean_cohort", lambda plan: 12.0)
    times = {"alone": 0.001, "stack of 4": 0.0005, "stack of 6": 0.0001, "stack of 16": 0.00001}
    assert tried(monkeypatch, times, FIXED).stack == 6


@pytest.mark.parametrize(
    ("times", "cohort"),
    [
        ({"alone": 0.001, "stack of 4": 0.00095, "stack of 16": 0.001}, 100.0),  # hardly faster
        ({"alone": 0.01, "stack of 4": 0.0001, "stack of 16": 0.0001}, 100.0),  # a core is busy with one client
        ({"alone": 0.001, "stack of 4": 0.0001}, 3.0),  # too few take part
    ],
)
def test_clients_train_one_by_one_if_stacks_are_not_faster(
    monkeypatch: pytest.MonkeyPatch, times: dict[str, float], cohort: float
) -> None:
    monkeypatch.setattr(autotune, "_compute_mean_cohort", lambda plan: cohort)
    assert tried(monkeypatch, times, FIXED).stack == 1


def test_a_model_that_cannot_be_stacked_trains_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(autotune, "_compute_mean_cohort", lambda plan: 100.0)
    dropping = nn.Sequential(nn.Flatten(), nn.Dropout(), nn.Linear(192, 4))
    times = {"alone": 0.001, "stack of 4": 0.0001}
    assert tried(monkeypatch, times, FIXED, model=dropping).stack == 1


def test_a_model_that_mixes_examples_trains_one_by_one_in_batches_of_one_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that takes the mean of its batch off does the same in a stack of single examples that are alike."""

    class Centred(nn.Linear):
        def forward(self, input: torch.Tensor) -> torch.Tensor:
            outputs = super().forward(input.flatten(1))
            return outputs - 0.5 * outputs.mean(0)

    monkeypatch.setattr(autotune, "_compute_mean_cohort", lambda plan: 100.0)
    times = {"alone": 0.001, "stack of 4": 0.0001}
    assert tried(monkeypatch, times, FIXED, model=Centred(192, 4), batch_size=1).stack == 1


@pytest.mark.parametrize(("contiguous", "chosen"), [(0.5, "contiguous"), (0.97, "channels_last")])
def test_the_layout_changes_only_if_another_is_clearly_faster(
    monkeypatch: pytest.MonkeyPatch, contiguous: float, chosen: str
) -> None:
    times = {"channels_last": 1.0, "contiguous": contiguous, "alone": 1.0}
    assert tried(monkeypatch, times, EngineSection(stack=1, compile="off")).layout == chosen


@pytest.mark.parametrize(
    ("rounds", "compiled", "chosen"), [(100_000, 0.5, "on"), (100_000, 0.97, "off"), (10, 0.5, "off")]
)
def test_compilation_is_tried_only_for_long_runs(
    monkeypatch: pytest.MonkeyPatch, rounds: int, compiled: float, chosen: str
) -> None:
    monkeypatch.setattr(torch, "compile", lambda model, **how: model)
    engine = EngineSection(stack=1, layout="channels_last")
    assert tried(monkeypatch, {"alone": 1.0, "compiled": compiled}, engine, rounds=rounds).compile == chosen


def test_a_compiler_that_fails_stops_a_run_only_if_it_was_requested(
    monkeypatch: pytest.MonkeyPatch, fedcm: Callable[..., Any], experiment: Callable[..., Path], tmp_path: Path
) -> None:
    def broken(model: nn.Module, **how: Any) -> nn.Module:
        raise RuntimeError("no C++ compiler")

    monkeypatch.setattr(torch, "compile", broken)
    engine = EngineSection(stack=1, layout="channels_last")
    assert tried(monkeypatch, {"alone": 1.0}, engine, rounds=100_000).compile == "off"
    path = experiment(engine={"stack": 1})
    answer = fedcm("run", path, "--runs-dir", tmp_path / "runs", "--compile", "on")
    assert answer.code == 2
    assert "no C++ compiler" in answer.err
    assert 'engine.compile = "off"' in answer.err
    assert len(answer.err.splitlines()) == 1


def test_a_stack_cannot_be_compiled() -> None:
    problem = Problem(nn.Linear(6, 2))
    data = ArrayData(Dataset("made", Examples(torch.randn(9, 6), torch.zeros(9, dtype=torch.int64)), None, 2), [[0]])  # pyright: ignore[reportArgumentType]
    with pytest.raises(UserError, match=r"engine\.stack = 1"):
        tune_engine(
            EngineSection(stack=4, compile="on"),
            problem,
            data,
            LocalWork(),
            TrainingPlan(1, 1, FixedSize(1), Schedule(0.1)),
        )


def test_the_choice_is_written_to_the_runs_experiment_and_kept(
    fedcm: Callable[..., Any], experiment: Callable[..., Path], tmp_path: Path
) -> None:
    path = experiment(engine={}, rounds=4)
    answer = fedcm("run", path, "--runs-dir", tmp_path / "runs", "--name", "one")
    assert answer.code == 0, answer.err
    assert "chosen by autotune" in answer.err
    folder = tmp_path / "runs" / "one"
    engine = tomllib.loads((folder / "experiment.toml").read_text())["engine"]
    assert engine["stack"] >= 1
    assert engine["layout"] == "channels_last"
    assert engine["compile"] == "off"
    provenance = json.loads((folder / "provenance.json").read_text())
    assert "one client" in provenance["milliseconds_a_step"]
    assert provenance["tuned"] == ["stack", "layout", "compile"]
    again = fedcm("run", folder / "experiment.toml", "--runs-dir", tmp_path / "runs", "--name", "two")
    assert "chosen by autotune" not in again.err
    assert json.loads((tmp_path / "runs" / "two" / "provenance.json").read_text())["tuned"] == []
    assert read_lines(folder) == read_lines(tmp_path / "runs" / "two")


@pytest.mark.slow
def test_a_comparison_resumes_runs_with_an_autotuned_engine(
    fedcm: Callable[..., Any], experiment: Callable[..., Path], tmp_path: Path
) -> None:
    words = (
        "compare",
        experiment(engine={}, rounds=2),
        "--algorithms",
        "fedavg,fedcm",
        "--runs-dir",
        tmp_path / "runs",
    )
    assert fedcm(*words).code == 0
    again = fedcm(*words)
    assert again.code == 0
    assert "2 of 2 runs are finished already" in again.err


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is one here")
def test_a_missing_device_is_rejected(
    fedcm: Callable[..., Any], experiment: Callable[..., Path], tmp_path: Path
) -> None:
    answer = fedcm("run", experiment(), "--runs-dir", tmp_path / "runs", "--device", "cuda")
    assert answer.code == 2
    assert "no CUDA device" in answer.err


def test_bf16_changes_only_the_models_arithmetic(
    fedcm: Callable[..., Any], experiment: Callable[..., Path], tmp_path: Path
) -> None:
    model, batch = nn.Linear(6, 4), Examples(torch.randn(8, 6), torch.arange(8) % 4)
    exact, half = (Problem(model, autocast=half) for half in (False, True))
    gradients = [problem.gradient(batch)(exact.initial_params) for problem in (exact, half)]
    assert not torch.equal(*gradients)
    torch.testing.assert_close(*gradients, rtol=0.02, atol=0.01)
    for name, stack in (("one", 1), ("two", 1), ("stacked", 3)):
        words = ("run", experiment(), "--runs-dir", tmp_path / "runs", "--name", name, "--precision", "bf16")
        assert fedcm(*words, "--set", f"engine.stack={stack}").code == 0
    one, two, stacked = (read_lines(tmp_path / "runs" / name) for name in ("one", "two", "stacked"))
    assert one == two
    assert stacked[-1]["loss"] == pytest.approx(one[-1]["loss"], rel=0.05)


@pytest.mark.parametrize(("precision", "has"), [("bf16", False), ("bf16", True), ("bf16", None), ("float32", False)])
def test_bf16_on_a_cpu_without_its_instructions_prints_a_warning(
    precision: str,
    has: bool | None,
    fedcm: Callable[..., Any],
    experiment: Callable[..., Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fedcm.runs.parts.problem.has_bfloat16_instructions", lambda: has)
    answer = fedcm("run", experiment(), "--runs-dir", tmp_path / "runs", "--precision", precision)
    assert answer.code == 0
    assert ('engine.precision = "bf16" is slower than "float32" here' in answer.err) == (
        precision == "bf16" and has is False
    )


@pytest.mark.slow
def test_a_compiled_model_has_the_trajectory_of_an_uncompiled_one(
    fedcm: Callable[..., Any], experiment: Callable[..., Path], tmp_path: Path
) -> None:
    for name, how in (("eager", "off"), ("compiled", "on"), ("again", "on")):
        words = ("run", experiment(), "--runs-dir", tmp_path / "runs", "--name", name, "--compile", how)
        assert fedcm(*words).code == 0
    eager, compiled, again = (read_lines(tmp_path / "runs" / name) for name in ("eager", "compiled", "again"))
    assert compiled == again
    assert compiled[-1]["loss"] == pytest.approx(eager[-1]["loss"], rel=1e-4)
