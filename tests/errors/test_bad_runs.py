"""A damaged run, or what is none, is refused and left as it is; stopping, racing and full disks lose nothing either."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from answers import Fedcm, Write, cases, contents, refused
from safetensors import SafetensorError
from scenes import lines_of

from fedcm.algorithms.fedavg import ServerState
from fedcm.config.experiment import read_experiment
from fedcm.config.overrides import read_table
from fedcm.errors import Stopped, UserError
from fedcm.runs import checkpoint
from fedcm.runs.running import drive
from fedcm.runs.starting import begin, resume


def test_the_stopped_run_of_these_tests_can_go_on(fedcm: Fedcm, stopped: Path) -> None:
    assert fedcm("resume", stopped).code == 0
    assert len((stopped / "metrics.jsonl").read_text().splitlines()) == 12


def replaced(name: str, content: bytes) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        (folder / name).write_bytes(content)

    return change


def all_checkpoints(content: bytes, suffix: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        for file in (folder / "checkpoints").glob(f"*{suffix}"):
            file.write_bytes(content)

    return change


def reworded(name: str, old: str, new: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        text = (folder / name).read_text()
        assert old in text
        (folder / name).write_text(text.replace(old, new))

    return change


def fewer_metrics(folder: Path) -> None:
    file = folder / "metrics.jsonl"
    file.write_text("".join(file.read_text().splitlines(keepends=True)[:3]))


def a_note_far_ahead(folder: Path) -> None:
    note = max((folder / "checkpoints").glob("*.json"))
    for file in (note, note.with_suffix(".safetensors")):
        file.rename(file.with_stem(f"round-{10**15}"))
    for other in (folder / "checkpoints").glob("round-0*.json"):
        other.unlink()


def changed_data(folder: Path) -> None:
    npz = folder.parent.parent / "made.npz"
    changed = dict(np.load(npz))
    changed["x_train"][3, 1] += 1
    np.savez(npz, **changed)


def no_data(folder: Path) -> None:
    (folder.parent.parent / "made.npz").unlink()


ROUNDS_AS_LISTS = b"[0]\n[1]\n[2]\n[3]\n[4]\n[5]\n"


@pytest.mark.parametrize(
    ("damage", "said"),
    cases(
        ("experiment not TOML", replaced("experiment.toml", b"rounds = = 3"), "is not valid TOML"),
        ("experiment empty", replaced("experiment.toml", b""), "must be given"),
        ("experiment not UTF-8", replaced("experiment.toml", b"\xff\xfe"), "cannot be read"),
        ("experiment with a typo", reworded("experiment.toml", "rounds", "round"), "did you mean 'rounds'?"),
        ("no experiment", lambda folder: (folder / "experiment.toml").unlink(), "there is no run"),
        ("no provenance", lambda folder: (folder / "provenance.json").unlink(), "start the run anew"),
        ("provenance not JSON", replaced("provenance.json", b"{"), "provenance.json' cannot be read"),
        ("provenance not UTF-8", replaced("provenance.json", b"\xff\xfe"), "provenance.json' cannot be read"),
        ("provenance a list", replaced("provenance.json", b"[1]"), "provenance.json"),
        ("provenance without data", replaced("provenance.json", b"{}"), "provenance.json"),
        ("provenance with other data", replaced("provenance.json", b'{"data_sha256": [1]}'), "provenance.json"),
        ("no metrics", lambda folder: (folder / "metrics.jsonl").unlink(), "must hold rounds 0 to 5"),
        ("metrics not JSON", replaced("metrics.jsonl", b"{}\nwhat\n"), "metrics.jsonl' is damaged"),
        ("metrics not UTF-8", replaced("metrics.jsonl", b"\xff\xfe\n"), "metrics.jsonl' is damaged"),
        ("metrics of other things", replaced("metrics.jsonl", ROUNDS_AS_LISTS), "metrics.jsonl"),
        ("metrics cut short", fewer_metrics, "must hold rounds 0 to 5, which the checkpoint stands on"),
        ("all tensors junk", all_checkpoints(b"junk", ".safetensors"), "no checkpoint of"),
        ("all tensors empty", all_checkpoints(b"", ".safetensors"), "start the run anew with `fedcm run"),
        ("all notes junk", all_checkpoints(b"\xff", ".json"), "no checkpoint of"),
        ("a note far ahead", a_note_far_ahead, "no checkpoint of"),
        ("another model", reworded("experiment.toml", "    8,\n", "    9,\n"), "and was changed"),
        ("data changed", changed_data, "has another checksum; bring the old data back or start a new run"),
        ("data gone", no_data, "there must be an .npz file"),
        ("another seed", reworded("experiment.toml", "seed = 3", "seed = 4"), "and was changed"),
    ),
)
def test_a_damaged_run_is_refused_and_left_as_it_is(
    fedcm: Fedcm, stopped: Path, damage: Callable[[Path], None], said: str
) -> None:
    damage(stopped)
    before = contents(stopped)
    refused(fedcm("resume", stopped), said, informed=r"checkpoint round-\d+ is damaged|run .* goes on at round")
    assert contents(stopped) == before


@pytest.mark.parametrize(
    "summary", cases(("a list", "[1]"), ("without a name", '{"outcome": "finished"}'), ("a text", '"finished"'))
)
def test_a_damaged_summary_gives_no_traceback(fedcm: Fedcm, stopped: Path, summary: str) -> None:
    (stopped / "summary.json").write_text(summary)
    assert fedcm("runs", "--runs-dir", stopped.parent).code == 0
    answer = fedcm("resume", stopped)
    assert answer.code == 0, answer.err
    assert json.loads((stopped / "summary.json").read_text())["rounds"] == 12, "it is written again"


@pytest.mark.parametrize(
    ("path", "said"),
    cases(
        ("nothing there", "runs/stoped", "there is no run 'runs/stoped'; did you mean 'runs/stopped'?"),
        ("nowhere at all", "no/such/place", "there is no run 'no/such/place'"),
        ("a folder that is no run", "runs", "there is no run 'runs'"),
        ("a file", "small.toml", "there is no run 'small.toml'"),
        ("a path too long for a file", "x" * 300, "there is no run"),
    ),
)
def test_what_is_no_run_cannot_go_on(fedcm: Fedcm, stopped: Path, path: str, said: str) -> None:
    refused(fedcm("resume", path), said)


@pytest.mark.parametrize(
    "damage",
    cases(
        ("experiment not TOML", replaced("experiment.toml", b"rounds = = 3")),
        ("algorithm a text", replaced("experiment.toml", b'rounds = 3\nalgorithm = "fedcm"\n')),
        ("algorithm a number", replaced("experiment.toml", b"rounds = 3\nalgorithm.name = 3\n")),
        ("metrics not JSON", replaced("metrics.jsonl", b"{}\nwhat\n")),
        ("metrics not UTF-8", replaced("metrics.jsonl", b"\xff\xfe\n")),
        ("metrics of other things", replaced("metrics.jsonl", ROUNDS_AS_LISTS)),
    ),
)
def test_one_damaged_run_does_not_hide_the_others(fedcm: Fedcm, stopped: Path, damage: Callable[[Path], None]) -> None:
    shutil.copytree(stopped, stopped.parent / "sound")
    damage(stopped)
    answer = fedcm("runs", "--runs-dir", stopped.parent)
    assert answer.code == 0, answer.err
    assert "sound" in answer.out


def test_the_newest_checkpoint_is_the_newest_beyond_a_million_rounds(tmp_path: Path) -> None:
    import torch

    for next_round in (999_998, 999_999, 1_000_000):
        state = checkpoint.Checkpoint(next_round, ServerState(torch.full((2,), float(next_round))), {})
        checkpoint.write(tmp_path, state, keep=2)
    found = checkpoint.newest(tmp_path, ServerState(torch.zeros(2)), lambda _: None, print)
    assert found is not None
    assert found.next_round == 1_000_000


def test_a_checkpoint_under_another_rounds_name_is_not_believed(fedcm: Fedcm, stopped: Path) -> None:
    for file in (stopped / "checkpoints").glob("round-000006.*"):
        file.rename(file.with_stem("round-000005"))
    answer = fedcm("resume", stopped)
    assert "is damaged (it holds the state after 6 rounds)" in answer.err
    assert "goes on at round 4" in answer.err


def test_a_run_in_which_nobody_takes_part_can_be_stopped(experiment: Write, tmp_path: Path) -> None:
    path = experiment(rounds=50, participation={"kind": "independent", "probability": 1e-12})
    rounds = drive(begin(read_experiment(read_table(path)), tmp_path / "runs", "empty", stop_requested=lambda: True))
    with pytest.raises(Stopped):
        for _ in rounds:
            pass


def test_a_run_that_another_process_finished_meanwhile_stays_finished(experiment: Write, tmp_path: Path) -> None:
    first = drive(begin(read_experiment(read_table(experiment())), tmp_path / "runs", "one"))
    for _ in range(6):
        next(first)
    with pytest.raises(UserError, match="in progress"):
        resume(tmp_path / "runs" / "one")  # no state is read before the lock is held
    for _ in first:
        pass
    before = lines_of(tmp_path / "runs" / "one")
    for _ in drive(resume(tmp_path / "runs" / "one")):
        raise AssertionError("nothing is left to run")
    assert lines_of(tmp_path / "runs" / "one") == before


def test_a_disk_that_is_full_is_said_in_a_sentence(
    run: Fedcm, experiment: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    monkeypatch.setattr(checkpoint, "save_file", full)
    answer = run(experiment())
    assert answer.code == 1
    assert "No space left on device" in answer.err.splitlines()[-1]
    assert answer.err.splitlines()[-1].startswith("fedcm: ")
