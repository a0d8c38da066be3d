"""`--fresh` moves runs aside and never deletes one; on a terminal it asks."""

import json
import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from scenes import read_lines, resume_run, run_and_stop_after, run_to_end

from fedcm.config.experiment import read_experiment
from fedcm.config.overrides import read_table
from fedcm.errors import UserError
from fedcm.federation.admin.results import install_run
from fedcm.reports.collect import RunCollection
from fedcm.runs.archive import make_archive_path, move_to_archive
from fedcm.runs.folder import RunFolder
from fedcm.runs.session import Session

Write = Callable[..., Path]
Fedcm = Callable[..., Any]


def contents(folder: Path) -> dict[str, bytes]:
    found = (path for path in folder.rglob("*") if path.is_file() and path.name != ".lock")
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


def archived(runs: Path) -> list[Path]:
    return sorted(path.parent for path in runs.glob("archive/*/*/experiment.toml"))


def test_a_fresh_comparison_keeps_the_runs_before_it_and_says_where(
    experiment: Write, fedcm: Fedcm, tmp_path: Path
) -> None:
    runs = tmp_path / "runs"
    first = run_to_end(experiment(rounds=1), runs, "small-fedcm-seed3")
    before = contents(first)
    answer = fedcm(
        "compare", experiment(rounds=2), "--algorithms", "fedcm,fedavg", "--runs-dir", runs, "--fresh", "--json"
    )
    assert answer.code == 0, answer.err
    (old,) = archived(runs)
    assert contents(old) == before
    assert old.name == first.name
    assert str(old.parent) in answer.err
    assert {summary["rounds"] for summary in json.loads(answer.out).values()} == {2}
    assert len(read_lines(first)) == 2


def test_every_fresh_run_has_an_archive_of_its_own(experiment: Write, fedcm: Fedcm, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    for rounds in (1, 2, 3):
        answer = fedcm("run", experiment(rounds=rounds), "--runs-dir", runs, "--fresh")
        assert answer.code == 0, answer.err
    assert f"the run that was {runs / 'small-fedcm-seed3'} is {archived(runs)[-1]} now" in answer.err
    assert [len(read_lines(old)) for old in archived(runs)] == [1, 2]
    assert len({old.parent for old in archived(runs)}) == 2
    assert len(read_lines(runs / "small-fedcm-seed3")) == 3


def test_the_archive_is_looked_into_only_where_it_is_named(experiment: Write, fedcm: Fedcm, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    old = run_and_stop_after(1, experiment(rounds=3), runs, "one")
    Session.start(
        read_experiment(read_table(experiment(rounds=1))), runs, "one", archive=make_archive_path(runs)
    ).close()
    moved = move_to_archive(run_to_end(experiment(rounds=1), runs, "two"), make_archive_path(runs))
    assert [run["name"] for run in json.loads(fedcm("runs", "--runs-dir", runs, "--json").out)] == ["one"]
    assert [digest.name for digest in RunCollection().read_digests([tmp_path])] == ["one"]
    assert sorted(digest.name for digest in RunCollection().read_digests([runs / "archive"])) == ["one", "two"]
    assert [digest.name for digest in RunCollection().read_digests([moved.parent])] == ["two"]
    (stopped,) = (path for path in archived(runs) if path.name == old.name)
    resume_run(stopped)
    assert read_lines(stopped) == read_lines(run_to_end(experiment(rounds=3), tmp_path / "elsewhere"))


def test_a_folder_of_the_users_own_that_is_called_archive_is_no_archive(experiment: Write, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    mine = run_to_end(experiment(rounds=1), runs / "archive", "mine")
    before = contents(runs / "archive")
    moved = move_to_archive(run_to_end(experiment(rounds=1), runs, "other"), make_archive_path(runs))
    assert moved.parents[1] == runs / "archive-2"
    assert contents(runs / "archive") == before
    assert [digest.name for digest in RunCollection().read_digests([runs])] == [mine.name]


def test_a_run_in_progress_is_not_moved(experiment: Write, tmp_path: Path) -> None:
    path, runs = experiment(rounds=1), tmp_path / "runs"
    old = RunFolder(run_to_end(path, runs, "one"))
    before = contents(old.path)
    with old.locked(), pytest.raises(UserError, match="in progress in another process"):
        Session.start(read_experiment(read_table(path)), runs, "one", archive=make_archive_path(runs))
    assert contents(old.path) == before
    assert list(runs.iterdir()) == [old.path]


def test_what_is_no_run_is_neither_moved_nor_written_over(experiment: Write, fedcm: Fedcm, tmp_path: Path) -> None:
    notes = tmp_path / "runs" / "one" / "notes.txt"
    notes.parent.mkdir(parents=True)
    notes.write_text("mine")
    answer = fedcm("run", experiment(rounds=1), "--runs-dir", tmp_path / "runs", "--name", "one", "--fresh")
    assert answer.code == 2
    assert "is not a run; give another --name" in answer.err
    assert contents(tmp_path / "runs") == {"one/notes.txt": b"mine"}


def test_a_run_that_is_fetched_again_leaves_the_one_before_in_the_archive(experiment: Write, tmp_path: Path) -> None:
    place, runs = tmp_path / "runs" / "one", tmp_path / "runs"
    install_run(run_to_end(experiment(rounds=1), tmp_path / "server"), place)
    before = contents(place)
    later = run_to_end(experiment(rounds=2), tmp_path / "later")
    install_run(later, place)
    assert contents(place) == contents(later)
    (old,) = archived(runs)
    assert contents(old) == before


def test_a_run_that_never_began_anew_is_not_taken_for_the_one_before(
    experiment: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "failing.py").write_text(FAILING)
    path, runs = experiment(rounds=1, model={"name": "failing:Net"}), tmp_path / "runs"
    monkeypatch.syspath_prepend(tmp_path)
    before = contents(run_to_end(path, runs, "small-fedcm-seed3"))
    words = [sys.executable, "-m", "fedcm", "compare", path.name, "--algorithms", "fedcm", "--runs-dir", "runs"]
    dying = os.environ | {"FAIL_AT": "2"}  # the first is the look before the series begins
    done = subprocess.run([*words, "--fresh"], cwd=tmp_path, env=dying, capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stdout
    assert "1 of 1 runs failed" in done.stderr
    assert contents(runs / "small-fedcm-seed3") == before


FAILING = """
import os
import pathlib

import torch

class Net(torch.nn.Linear):
    def __init__(self):
        super().__init__(6, 4)
        if "FAIL_AT" in os.environ:
            calls = pathlib.Path("calls")
            calls.write_text(calls.read_text() + "x" if calls.exists() else "x")
            if len(calls.read_text()) >= int(os.environ["FAIL_AT"]):
                os._exit(1)
"""


class Terminal:
    """A command with a terminal before it."""

    def __init__(self, *words: object) -> None:
        self.ours, theirs = pty.openpty()
        command = [sys.executable, "-m", "fedcm", *map(str, words)]
        self.process = subprocess.Popen(
            command, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True, preexec_fn=_take_terminal
        )
        os.close(theirs)
        self.said = ""

    def wait_for(self, text: str) -> None:
        deadline = time.monotonic() + 120
        while text not in self.said:
            assert time.monotonic() < deadline, self.said
            self._read()

    def _read(self) -> bool:
        poll = select.poll()  # unlike select.select, it takes descriptors above 1023
        poll.register(self.ours, select.POLLIN)
        if not poll.poll(1000):
            return self.process.poll() is None
        try:
            self.said += os.read(self.ours, 65536).decode(errors="replace")
        except OSError:  # it has closed its side
            return False
        return True

    def type(self, keys: bytes) -> int:
        """The exit code. The keys are typed again after some seconds of silence, as people do: a Ctrl-C is lost if it
        arrives after the prompt is written and before readline waits for input."""
        deadline = time.monotonic() + 120
        typed = 0.0
        while self._read():
            assert time.monotonic() < deadline, self.said
            if time.monotonic() - typed > 10:
                os.write(self.ours, keys)
                typed = time.monotonic()
        os.close(self.ours)
        return self.process.wait(timeout=120)


def _take_terminal() -> None:
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


@pytest.mark.parametrize(
    ("keys", "code"),
    [(b"n\n", 1), (b"\x03", 130), (b"\x04", 130), (b"maybe\ny\n", 0)],
    ids=["no", "ctrl-c", "eof", "yes"],
)
def test_a_terminal_is_asked_first(experiment: Write, tmp_path: Path, keys: bytes, code: int) -> None:
    path, runs = experiment(rounds=1), tmp_path / "runs"
    old = run_to_end(path, runs, "small-fedcm-seed3")
    before = contents(runs)
    terminal = Terminal("run", path, "--runs-dir", runs, "--fresh")
    terminal.wait_for("start again? [Y/n]")
    assert str(old) in "".join(terminal.said.split())
    assert terminal.type(keys) == code, terminal.said
    if code:
        assert contents(runs) == before
        assert "Traceback" not in terminal.said
        assert "nothing was changed" in terminal.said
    else:
        (moved,) = archived(runs)
        assert contents(moved) == {name.removeprefix(f"{old.name}/"): data for name, data in before.items()}


@pytest.mark.slow
def test_a_series_on_a_terminal_asks_once_for_all_its_runs(experiment: Write, tmp_path: Path) -> None:
    path, runs = experiment(rounds=1), tmp_path / "runs"
    for name, algorithm in (("small-fedcm-seed3", "fedcm"), ("small-fedavg-seed3", "fedavg")):
        run_to_end(experiment(rounds=1, algorithm={"name": algorithm}), runs, name)
    path = experiment(rounds=1)
    terminal = Terminal("compare", path, "--algorithms", "fedcm,fedavg", "--runs-dir", runs, "--fresh")
    terminal.wait_for("start again? [Y/n]")
    assert "the 2 runs of these names" in terminal.said
    assert terminal.type(b"\n") == 0, terminal.said
    assert terminal.said.count("[Y/n]") == 1
    assert [old.name for old in archived(runs)] == ["small-fedavg-seed3", "small-fedcm-seed3"]


def test_runs_are_found_in_a_hidden_folder_of_runs_but_not_what_is_hidden_in_it(
    experiment: Write, fedcm: Fedcm, tmp_path: Path
) -> None:
    runs = tmp_path / ".runs"
    run_to_end(experiment(rounds=1), runs, "one")
    (runs / "one").rename(runs / ".hidden")
    run_to_end(experiment(rounds=1), runs, "two")
    assert [run["name"] for run in json.loads(fedcm("runs", "--runs-dir", runs, "--json").out)] == ["two"]
