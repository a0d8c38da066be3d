"""Rounds are reported to trackers, and a failing tracker does not stop the run."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, final

import pytest
from scenes import Answer, read_lines, run_to_end

from fedcm.api.progress import say
from fedcm.config.experiment import read_experiment
from fedcm.config.overrides import read_table
from fedcm.runs.session import Session
from fedcm.trackers import load_trackers
from fedcm.trackers.tracker import FlatTable, RoundValues, TrackedRun, track

Write = Callable[..., Path]


@final
class Recorder:
    """Records what it receives, and fails at the moment `fails_in`."""

    fails_in = ""

    def __init__(self) -> None:
        Recorder.received: list[Any] = []

    def begin(self, run: TrackedRun) -> None:
        self._record("begin", run)

    def log_round(self, point: RoundValues) -> None:
        self._record("round" if point.round < 3 else "a later round", point)

    def end(self, summary: FlatTable | None) -> None:
        self._record("end", summary)

    def _record(self, moment: str, value: Any) -> None:
        if moment == Recorder.fails_in:
            raise OSError("No space left\non device")
        Recorder.received.append(value)


def run_tracked(path: Path, runs: Path) -> Path:
    with Session.start(read_experiment(read_table(path)), runs, "one") as session:
        rounds = (metrics.to_dict() for metrics in session.rounds())
        for _ in track(rounds, session.folder, session.next_round, [Recorder], say):
            pass
    return runs / "one"


def test_a_tracker_receives_the_run_its_rounds_and_its_summary(
    experiment: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Recorder, "fails_in", "")
    folder = run_tracked(experiment(), tmp_path / "runs")
    run, *points, summary = Recorder.received
    assert run.name == "one"
    assert run.settings["client.lr"] == 0.1
    assert [point.round for point in points] == list(range(12))
    assert [point.values["client_lr"] for point in points] == [line["client_lr"] for line in read_lines(folder)]
    assert summary["outcome"] == "finished"


@pytest.mark.parametrize("moment", ["begin", "round", "a later round", "end"])
def test_a_failing_tracker_is_disabled_and_the_run_continues(
    experiment: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], moment: str
) -> None:
    monkeypatch.setattr(Recorder, "fails_in", moment)
    reference = run_to_end(experiment(), tmp_path / "runs")
    folder = run_tracked(experiment(), tmp_path / "runs")
    assert read_lines(folder) == read_lines(reference)
    assert capsys.readouterr().err == (
        "Recorder is disabled for this run (OSError: No space left on device); the run itself continues\n"
    )


def test_event_files_on_a_full_disk_do_not_stop_the_run(
    experiment: Write, fedcm: Callable[..., Answer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    (kind,) = load_trackers(["tensorboard"])
    original_begin = kind.begin

    def begin_on_full_disk(self: Any, run: TrackedRun) -> None:
        original_begin(self, run)
        self.file.close()
        self.file = Path("/dev/full").open("wb")  # noqa: SIM115 - as long as the tracker
        self.records = type(self.records)(self.file)

    monkeypatch.setattr(kind, "begin", begin_on_full_disk)
    words = ["--runs-dir", tmp_path / "runs", "--name", "one", "--track", "tensorboard"]
    answer = fedcm("run", experiment(), *words)
    assert answer.code == 0
    assert answer.err.count("No space left on device") == 1
    assert "Traceback" not in answer.err
    assert len(read_lines(tmp_path / "runs" / "one")) == 12


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--track", "tensorbord"], "there is no tracker 'tensorbord'; did you mean 'tensorboard'?"),
        (["--track", "x,"], "there is no tracker 'x'; known: tensorboard, mlflow, wandb"),
    ],
)
def test_an_unknown_tracker_raises(
    experiment: Write, fedcm: Callable[..., Answer], tmp_path: Path, words: list[str], message: str
) -> None:
    answer = fedcm("run", experiment(), "--runs-dir", tmp_path / "runs", *words)
    assert (answer.code, answer.err) == (2, f"fedcm: {message}\n")
    assert not (tmp_path / "runs").exists()
