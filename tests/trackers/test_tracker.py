"""What passes by is told to trackers, and none of them can end a run."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, final

import pytest
from scenes import Answer, lines_of, whole

from fedcm.config.experiment import read_experiment
from fedcm.config.overrides import read_table
from fedcm.runs.running import drive
from fedcm.runs.starting import begin
from fedcm.trackers import load_trackers
from fedcm.trackers.tracker import Flat, Point, TrackedRun, track

Write = Callable[..., Path]


@final
class Told:
    """Remembers, and fails where it is asked to."""

    fails_in = ""

    def __init__(self) -> None:
        Told.told: list[Any] = []

    def begin(self, run: TrackedRun) -> None:
        self._take("begin", run)

    def round(self, point: Point) -> None:
        self._take("round" if point.round < 3 else "a later round", point)

    def end(self, summary: Flat | None) -> None:
        self._take("end", summary)

    def _take(self, moment: str, what: Any) -> None:
        if moment == Told.fails_in:
            raise OSError("No space left\non device")
        Told.told.append(what)


def run_with(path: Path, runs: Path) -> Path:
    run = begin(read_experiment(read_table(path)), runs, "one")
    for _ in track(drive(run), run.folder, run.first, [Told]):
        pass
    return runs / "one"


def test_a_tracker_is_told_of_the_run_its_rounds_and_its_end(
    experiment: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Told, "fails_in", "")
    folder = run_with(experiment(), tmp_path / "runs")
    run, *points, summary = Told.told
    assert run.name == "one"
    assert run.settings["client.lr"] == 0.1
    assert [point.round for point in points] == list(range(12))
    assert [point.values["client_lr"] for point in points] == [line["client_lr"] for line in lines_of(folder)]
    assert summary["outcome"] == "finished"


@pytest.mark.parametrize("moment", ["begin", "round", "a later round", "end"])
def test_a_tracker_that_fails_is_given_up_in_a_line_and_the_run_goes_on(
    experiment: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], moment: str
) -> None:
    monkeypatch.setattr(Told, "fails_in", moment)
    reference = whole(experiment(), tmp_path / "runs")
    folder = run_with(experiment(), tmp_path / "runs")
    assert lines_of(folder) == lines_of(reference)
    assert capsys.readouterr().err == (
        "Told is given up for this run (OSError: No space left on device); the run itself goes on\n"
    )


def test_event_files_on_a_full_disk_do_not_end_the_run(
    experiment: Write, fedcm: Callable[..., Answer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    (kind,) = load_trackers(["tensorboard"])
    began = kind.begin

    def begin_there(self: Any, run: TrackedRun) -> None:
        began(self, run)
        self.file.close()
        self.file = Path("/dev/full").open("wb")  # noqa: SIM115 - as long as the tracker
        self.records = type(self.records)(self.file)

    monkeypatch.setattr(kind, "begin", begin_there)
    words = ["--runs-dir", tmp_path / "runs", "--name", "one", "--track", "tensorboard"]
    answer = fedcm("run", experiment(), *words)
    assert answer.code == 0
    assert answer.err.count("No space left on device") == 1
    assert "Traceback" not in answer.err
    assert len(lines_of(tmp_path / "runs" / "one")) == 12


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--track", "tensorbord"], "there is no tracker 'tensorbord'; did you mean 'tensorboard'?"),
        (["--track", "x,"], "there is no tracker 'x'; known: tensorboard, mlflow, wandb"),
    ],
)
def test_an_unknown_tracker_is_refused(
    experiment: Write, fedcm: Callable[..., Answer], tmp_path: Path, words: list[str], said: str
) -> None:
    answer = fedcm("run", experiment(), "--runs-dir", tmp_path / "runs", *words)
    assert (answer.code, answer.err) == (2, f"fedcm: {said}\n")
    assert not (tmp_path / "runs").exists()
