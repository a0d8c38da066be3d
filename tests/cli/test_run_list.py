"""`fedcm runs` and `fedcm resume` on damaged runs: the others are listed, and the error is one sentence."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from scenes import Answer, forget_manifest

_IN_MEMORY = '[model]\nname = "in-memory:Linear"\n'


@pytest.mark.parametrize(
    "contents",
    [
        "x = [",
        _IN_MEMORY,
        f'rounds = 2\nseed = 1\ndata = 3\n{_IN_MEMORY}[algorithm]\nname = "fedcm"\n',
        f'rounds = 2\nseed = 1\nalgorithm = "fedcm"\ndata.source = "in-memory"\n{_IN_MEMORY}',
    ],
)
def test_a_damaged_experiment_does_not_hide_the_other_runs(
    contents: str, fedcm: Callable[..., Answer], experiment: Callable[..., Path], tmp_path: Path
) -> None:
    runs = tmp_path / "runs"
    assert fedcm("run", experiment(), "--name", "good", "--runs-dir", runs).code == 0
    (runs / "bad").mkdir()
    (runs / "bad" / "experiment.toml").write_text(contents)
    assert fedcm("runs", "--runs-dir", runs).code == 0
    listed = json.loads(fedcm("runs", "--runs-dir", runs, "--json").out)
    assert {one["name"]: one["state"] for one in listed} == {"good": "finished", "bad": "damaged"}


def test_scores_that_are_not_numbers_are_left_out(
    fedcm: Callable[..., Answer], experiment: Callable[..., Path], tmp_path: Path
) -> None:
    runs = tmp_path / "runs"
    assert fedcm("run", experiment(), "--name", "bad", "--runs-dir", runs).code == 0
    (forget_manifest(runs / "bad") / "metrics.jsonl").write_text('{"round": 0, "test_accuracy": "high"}\n')
    assert fedcm("runs", "--runs-dir", runs).code == 0
    assert json.loads(fedcm("runs", "--runs-dir", runs, "--json").out)[0]["last_accuracy"] is None


def test_settings_that_autotune_chose_are_not_listed_as_differences(
    fedcm: Callable[..., Answer], experiment: Callable[..., Path], tmp_path: Path
) -> None:
    """The choices depend on timings, so the files get the choices that a busy machine could make."""
    runs, path = tmp_path / "runs", experiment()
    chosen = {"auto-1": (1, ["stack"]), "auto-4": (4, ["stack"]), "own-2": (2, ["compile"]), "own-1": (1, ["compile"])}
    for name, (stack, tuned) in chosen.items():
        given = ("--set", f"engine.stack={stack}")
        assert fedcm("run", path, *given, "--name", name, "--runs-dir", runs).code == 0
        provenance = json.loads((runs / name / "provenance.json").read_text())
        recorded = {"tuned": tuned, "milliseconds_a_step": {"one client": 0.4}}
        (forget_manifest(runs / name) / "provenance.json").write_text(json.dumps(provenance | recorded))
    listed = json.loads(fedcm("runs", "--runs-dir", runs, "--json").out)
    assert {one["name"]: one["differs"].get("engine.stack") for one in listed} == {
        "auto-1": None,
        "auto-4": None,
        "own-2": 2,
        "own-1": 1,
    }


def test_the_timings_of_older_runs_show_what_autotune_chose(
    fedcm: Callable[..., Answer], experiment: Callable[..., Path], tmp_path: Path
) -> None:
    """The choices depend on timings, so the files get the choices that a busy machine could make."""
    runs, path = tmp_path / "runs", experiment()
    timings = {"one client": 0.4, "stack of 4": 0.2}
    chosen = {"auto-1": (1, timings), "auto-4": (4, timings), "own-2": (2, {"one client": 0.4}), "own-8": (8, {})}
    for name, (stack, recorded) in chosen.items():
        given = ("--set", f"engine.stack={stack}")
        assert fedcm("run", path, *given, "--name", name, "--runs-dir", runs).code == 0
        provenance = json.loads((runs / name / "provenance.json").read_text())
        del provenance["tuned"]
        (forget_manifest(runs / name) / "provenance.json").write_text(
            json.dumps(provenance | {"milliseconds_a_step": recorded})
        )
    listed = json.loads(fedcm("runs", "--runs-dir", runs, "--json").out)
    assert {one["name"]: one["differs"].get("engine.stack") for one in listed} == {
        "auto-1": None,
        "auto-4": None,
        "own-2": 2,
        "own-8": 8,
    }


def test_a_resume_of_a_damaged_experiment_raises_one_sentence(fedcm: Callable[..., Answer], tmp_path: Path) -> None:
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "experiment.toml").write_text("engine = 3\nrounds = 4\n")
    answer = fedcm("resume", tmp_path / "bad")
    assert (answer.code, answer.err.strip()) == (2, "fedcm: engine must be a table, got 3")
