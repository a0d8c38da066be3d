"""Early ends and best models of runs in folders: the same bits on workers and after a resume."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from scenes import forget_manifest
from torch import nn

import fedcm
from fedcm.errors import UserError

DRAW = torch.Generator().manual_seed(4)
CLIENTS = [(torch.randn(30, 4, generator=DRAW), torch.randint(3, (30,), generator=DRAW)) for _ in range(4)]
EARLY: dict[str, Any] = {"validation": 0.3, "evaluate_every": 1, "lr": 0.5, "stop": fedcm.Stop(patience=4)}


def make(**settings: Any) -> fedcm.PythonExperiment:
    torch.manual_seed(0)
    usual: dict[str, Any] = {"rounds": 40, **EARLY, **settings}
    return fedcm.make_experiment(nn.Linear(4, 3), CLIENTS, fedcm.FedCM(), **usual)


def start(folder: Path, **arguments: Any) -> fedcm.Run:
    settings = arguments.pop("settings", {})
    return fedcm.run(make(**settings), runs_dir=folder, name="run", notify=lambda sentence: None, **arguments)


def read_numbers(run: fedcm.Run) -> list[dict[str, Any]]:
    return [{key: value for key, value in line.items() if key != "seconds"} for line in run.metrics]


def test_a_run_that_ended_early_is_finished(tmp_path: Path) -> None:
    run = start(tmp_path)
    scores = [line["validation_accuracy"] for line in run.metrics]
    assert run.outcome == "finished"
    assert len(scores) < 40
    assert run.summary["rounds"] == len(scores)
    assert run.summary["stopped_early"]["round"] == len(scores) - 1
    assert run.summary["best_round"] == scores.index(max(scores)) == len(scores) - 5
    assert (run.path / "model.safetensors").is_file()
    again = fedcm.resume(run, notify=lambda sentence: None)
    assert read_numbers(again) == read_numbers(run)


def test_more_rounds_for_a_run_that_ended_early_say_why_there_are_none(tmp_path: Path) -> None:
    run, said = start(tmp_path), []
    longer = fedcm.resume(run, rounds=50, notify=said.append)
    assert read_numbers(longer) == read_numbers(run)
    reason = run.summary["stopped_early"]["reason"]
    told = f"has finished already, because it ended early: {reason}; to continue it, set another stop"
    assert said == [f"run {run.path} {told}"]


def test_a_training_that_ended_early_continues_only_with_another_rule() -> None:
    early = _arguments() | {"stop": EARLY["stop"]}
    result = fedcm.train(**early, rounds=40)
    assert result.stopped_early
    for train in (fedcm.train, fedcm.rounds):
        with pytest.raises(UserError, match=r"^by this stop, .* has ended already, after round \d+: .*give another"):
            train(**early, rounds=5, resume_from=result.state)
    more = fedcm.train(**_arguments(), rounds=5, resume_from=result.state)
    assert (len(more.history), more.stopped_early) == (5, False)


def test_workers_end_in_the_same_round(tmp_path: Path) -> None:
    one, two = (start(tmp_path / str(workers), workers=workers) for workers in (1, 2))
    assert read_numbers(one) == read_numbers(two)
    assert torch.equal(one.model("best").weight, two.model("best").weight)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("workers", [1, 2])
def test_a_resume_ends_in_the_same_round_with_the_same_best_model(tmp_path: Path, workers: int) -> None:
    whole = start(tmp_path / "whole")
    stopped = start(tmp_path / "stopped", callbacks=[lambda metrics: metrics.round == 2])
    assert stopped.outcome == "stopped"
    resumed = fedcm.resume(stopped, workers=workers, notify=lambda sentence: None)
    assert read_numbers(resumed) == read_numbers(whole)
    assert resumed.summary["stopped_early"] == whole.summary["stopped_early"]
    for which in ("last", "best"):
        states = [run.model(which).state_dict() for run in (whole, resumed)]
        assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


def test_the_best_model_is_that_of_the_best_round(tmp_path: Path) -> None:
    run = start(tmp_path)
    shorter = fedcm.train(**_arguments(), rounds=run.summary["best_round"] + 1)
    assert torch.equal(load_file(run.path / "best.safetensors")["weight"], shorter.model.weight)  # pyright: ignore[reportArgumentType]
    assert run.folder.read_best_round() == run.summary["best_round"]
    assert fedcm.train(**_arguments(), rounds=40, stop=EARLY["stop"]).best_round == run.summary["best_round"]


def test_a_best_model_of_a_removed_round_is_removed(tmp_path: Path) -> None:
    """The newest checkpoint is damaged, so the run resumes from an earlier one than that of its best round."""
    run = start(tmp_path, settings={"stop": None, "rounds": 30})
    best = run.summary["best_round"]
    assert best is not None
    for note in (run.path / "checkpoints").glob("round-*.json"):
        if int(note.stem[6:]) > 10:
            note.write_text("{}")
    (forget_manifest(run.path) / "summary.json").unlink()
    seen = []

    def look(metrics: fedcm.RoundMetrics) -> None:
        seen.append((metrics.round, run.folder.read_best_round()))

    resumed = fedcm.resume(run, callbacks=[look], notify=lambda sentence: None)
    assert all(found is None or found <= round for round, found in seen)
    assert resumed.folder.read_best_round() == (best if best >= 10 else run.folder.read_best_round())


def test_another_rule_continues_the_run(tmp_path: Path) -> None:
    run = start(tmp_path)
    longer = fedcm.resume(run, overrides={"stop.patience": 30}, notify=lambda sentence: None)
    assert len(longer.metrics) > len(read_numbers(start(tmp_path / "same")))
    assert read_numbers(longer)[:5] == read_numbers(start(tmp_path / "other"))[:5]


def test_a_run_without_validation_data_has_no_best_model(tmp_path: Path) -> None:
    run = start(tmp_path, settings={"validation": None, "stop": None, "rounds": 2})
    with pytest.raises(UserError, match="has no best model, because no validation data were evaluated"):
        run.model("best")
    with pytest.raises(UserError, match='must be "last" or "best"'):
        run.model("bst")  # pyright: ignore[reportArgumentType]
    assert "best_round" not in run.summary


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"validation": None}, "needs validation data, and there are none"),
        ({"stop": fedcm.Stop("test_accuracy", 3)}, "must not be a metric of the test data"),
        ({"stop": fedcm.Stop("validation_f1", 3)}, "there is no metric 'validation_f1' to stop by"),
        ({"stop": fedcm.Stop()}, "patience, target or both"),
        ({"stop": fedcm.Stop(patience=0)}, "patience must be"),
        ({"stop": 5}, "must be a fedcm.Stop"),
    ],
)
def test_a_rule_that_cannot_work_is_one_sentence(tmp_path: Path, settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence) as error:
        start(tmp_path, settings=settings)
    assert "\n" not in str(error.value)
    assert not list(tmp_path.iterdir())


def test_client_results_are_those_of_the_last_evaluation(tmp_path: Path) -> None:
    settings = {"stop": None, "rounds": 3, "client_tests": 0.3, "personalise": 1}
    one, two = (start(tmp_path / str(workers), settings=settings, workers=workers) for workers in (1, 2))
    texts = [(run.path / "client_results.json").read_text() for run in (one, two)]
    assert texts[0] == texts[1]
    results = json.loads(texts[0])
    assert (results["round"], results["clients"]) == (2, [0, 1, 2, 3])
    assert one.summary["clients"]["worst"] == min(results["values"])
    assert one.summary["personal"]["mean"] == pytest.approx(sum(results["personal"]) / 4)


def _arguments() -> dict[str, Any]:
    torch.manual_seed(0)
    model = nn.Linear(4, 3)
    settings = {key: value for key, value in EARLY.items() if key != "stop"}
    return {"model": model, "clients": CLIENTS, "algorithm": fedcm.FedCM(), **settings}
