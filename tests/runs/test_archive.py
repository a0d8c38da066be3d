"""`--fresh` moves runs to the archive and never deletes one; on a terminal it asks first."""

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

from fedcm.api.progress import say
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


@pytest.mark.slow
def test_a_fresh_comparison_archives_earlier_runs_and_reports_where(
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


def test_every_fresh_run_has_its_own_archive(experiment: Write, fedcm: Fedcm, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    for rounds in (1, 2, 3):
        answer = fedcm("run", experiment(rounds=rounds), "--runs-dir", runs, "--fresh")
        assert answer.code == 0, answer.err
    assert f"the run that was {runs / 'small-fedcm-seed3'} is {archived(runs)[-1]} now" in answer.err
    assert [len(read_lines(old)) for old in archived(runs)] == [1, 2]
    assert len({old.parent for old in archived(runs)}) == 2
    assert len(read_lines(runs / "small-fedcm-seed3")) == 3


def test_the_archive_is_searched_only_if_it_is_named(experiment: Write, fedcm: Fedcm, tmp_path: Path) -> None:
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


def test_a_users_folder_called_archive_is_not_an_archive(experiment: Write, tmp_path: Path) -> None:
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
    with old.hold_lock(), pytest.raises(UserError, match="in progress in another process"):
        Session.start(read_experiment(read_table(path)), runs, "one", archive=make_archive_path(runs))
    assert contents(old.path) == before
    assert list(runs.iterdir()) == [old.path]


def test_a_folder_that_is_not_a_run_is_neither_moved_nor_overwritten(
    experiment: Write, fedcm: Fedcm, tmp_path: Path
) -> None:
    notes = tmp_path / "runs" / "one" / "notes.txt"
    notes.parent.mkdir(parents=True)
    notes.write_text("mine")
    answer = fedcm("run", experiment(rounds=1), "--runs-dir", tmp_path / "runs", "--name", "one", "--fresh")
    assert answer.code == 2
    assert "is not a run; choose another name" in answer.err
    assert contents(tmp_path / "runs") == {"one/notes.txt": b"mine"}


def test_a_run_that_is_fetched_again_moves_the_earlier_one_to_the_archive(experiment: Write, tmp_path: Path) -> None:
    place, runs = tmp_path / "runs" / "one", tmp_path / "runs"
    install_run(run_to_end(experiment(rounds=1), tmp_path / "server"), place, notify=say)
    before = contents(place)
    later = run_to_end(experiment(rounds=2), tmp_path / "later")
    install_run(later, place, notify=say)
    assert contents(place) == contents(later)
    (old,) = archived(runs)
    assert contents(old) == before


@pytest.mark.slow
def test_a_failed_fresh_start_does_not_reuse_the_earlier_run(
    experiment: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "failing.py").write_text(FAILING)
    path, runs = experiment(rounds=1, model={"name": "failing:Net"}), tmp_path / "runs"
    monkeypatch.syspath_prepend(tmp_path)
    before = contents(run_to_end(path, runs, "small-fedcm-seed3"))
    words = [sys.executable, "-m", "fedcm", "compare", path.name, "--algorithms", "fedcm", "--runs-dir", "runs"]
    dying = os.environ | {"FAIL_AT": "2"}  # the first call is the check before the sweep
    done = subprocess.run([*words, "--fresh"], cwd=tmp_path, env=dying, capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stdout
    assert "1 of 1 run failed" in done.stderr
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
        self.output = ""

    def wait_for(self, text: str) -> None:
        deadline = time.monotonic() + 120
        while text not in self.output:
            assert time.monotonic() < deadline, self.output
            self._read()

    def _read(self) -> bool:
        poll = select.poll()  # unlike select.select, it takes descriptors above 1023
        poll.register(self.ours, select.POLLIN)
        if not poll.poll(1000):
            return self.process.poll() is None
        try:
            self.output += os.read(self.ours, 65536).decode(errors="replace")
        except OSError:  # it has closed its side
            return False
        return True

    def type(self, keys: bytes) -> int:
        """The exit code. The keys are typed again after some seconds of silence, as people do: a Ctrl-C is lost if it
        arrives after the prompt is written and before readline waits for input."""
        deadline = time.monotonic() + 120
        typed = 0.0
        while self._read():
            assert time.monotonic() < deadline, self.output
            if time.monotonic() - typed > 10:
                os.write(self.ours, keys)
                typed = time.monotonic()
        os.close(self.ours)
        return self.process.wait(timeout=120)


def _take_terminal() -> None:
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("keys", "code"),
    [(b"n\n", 1), (b"\x03", 130), (b"\x04", 130), (b"maybe\ny\n", 0)],
    ids=["no", "ctrl-c", "eof", "yes"],
)
def test_on_a_terminal_fresh_asks_first(experiment: Write, tmp_path: Path, keys: bytes, code: int) -> None:
    path, runs = experiment(rounds=1), tmp_path / "runs"
    old = run_to_end(path, runs, "small-fedcm-seed3")
    before = contents(runs)
    terminal = Terminal("run", path, "--runs-dir", runs, "--fresh")
    terminal.wait_for("start again? [Y/n]")
    assert str(old) in "".join(terminal.output.split())
    assert terminal.type(keys) == code, terminal.output
    if code:
        assert contents(runs) == before
        assert "Traceback" not in terminal.output
        assert "nothing was changed" in terminal.output
    else:
        (moved,) = archived(runs)
        assert contents(moved) == {name.removeprefix(f"{old.name}/"): data for name, data in before.items()}


@pytest.mark.slow
def test_a_sweep_on_a_terminal_asks_once_for_all_its_runs(experiment: Write, tmp_path: Path) -> None:
    path, runs = experiment(rounds=1), tmp_path / "runs"
    for name, algorithm in (("small-fedcm-seed3", "fedcm"), ("small-fedavg-seed3", "fedavg")):
        run_to_end(experiment(rounds=1, algorithm={"name": algorithm}), runs, name)
    path = experiment(rounds=1)
    terminal = Terminal("compare", path, "--algorithms", "fedcm,fedavg", "--runs-dir", runs, "--fresh")
    terminal.wait_for("start again? [Y/n]")
    assert "the 2 runs of these names" in terminal.output
    assert terminal.type(b"\n") == 0, terminal.output
    assert terminal.output.count("[Y/n]") == 1
    assert [old.name for old in archived(runs)] == ["small-fedavg-seed3", "small-fedcm-seed3"]


def test_hidden_runs_are_not_listed_but_runs_in_a_hidden_folder_are(
    experiment: Write, fedcm: Fedcm, tmp_path: Path
) -> None:
    runs = tmp_path / ".runs"
    run_to_end(experiment(rounds=1), runs, "one")
    (runs / "one").rename(runs / ".hidden")
    run_to_end(experiment(rounds=1), runs, "two")
    assert [run["name"] for run in json.loads(fedcm("runs", "--runs-dir", runs, "--json").out)] == ["two"]


def test_a_dangling_link_is_no_archive(tmp_path: Path) -> None:
    (tmp_path / "archive").symlink_to(tmp_path / "gone")
    assert make_archive_path(tmp_path).parent == tmp_path / "archive-2"
