"""Resuming a damaged run is rejected and changes nothing; stops, concurrent processes and full disks lose nothing."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_errors import Fedcm, Write, assert_rejected, make_params, read_files
from safetensors import SafetensorError
from scenes import finish_session, read_lines

from fedcm.algorithms.averaging.fedavg import ServerState
from fedcm.config.experiment import read_experiment
from fedcm.config.overrides import read_table
from fedcm.errors import Stopped, UserError
from fedcm.runs.checkpoint import Checkpoint, read_newest_checkpoint, write_checkpoint
from fedcm.runs.session import Session, SessionOptions

ROUNDS_MISSING = "must hold the rounds before the checkpoint, 0 to 5"


def test_the_stopped_run_of_these_tests_can_be_resumed(fedcm: Fedcm, stopped: Path) -> None:
    assert fedcm("resume", stopped).code == 0
    assert len((stopped / "metrics.jsonl").read_text().splitlines()) == 12


def make_replacement(name: str, content: bytes) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        (folder / name).write_bytes(content)

    return change


def make_checkpoint_damage(content: bytes, suffix: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        for file in (folder / "checkpoints").glob(f"*{suffix}"):
            file.write_bytes(content)

    return change


def make_rewording(name: str, old: str, new: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        text = (folder / name).read_text()
        assert old in text
        (folder / name).write_text(text.replace(old, new))

    return change


def truncate_metrics(folder: Path) -> None:
    file = folder / "metrics.jsonl"
    file.write_text("".join(file.read_text().splitlines(keepends=True)[:3]))


def rename_checkpoint_far_ahead(folder: Path) -> None:
    note = max((folder / "checkpoints").glob("*.json"))
    for file in (note, note.with_suffix(".safetensors")):
        file.rename(file.with_stem(f"round-{10**15}"))
    for other in (folder / "checkpoints").glob("round-0*.json"):
        other.unlink()


def change_data(folder: Path) -> None:
    npz = folder.parent.parent / "made.npz"
    changed = dict(np.load(npz))
    changed["x_train"][3, 1] += 1
    np.savez(npz, **changed)


def delete_data(folder: Path) -> None:
    (folder.parent.parent / "made.npz").unlink()


ROUNDS_AS_LISTS = b"[0]\n[1]\n[2]\n[3]\n[4]\n[5]\n"


@pytest.mark.parametrize(
    ("damage", "message"),
    make_params(
        ("experiment not TOML", make_replacement("experiment.toml", b"rounds = = 3"), "is not valid TOML"),
        ("experiment empty", make_replacement("experiment.toml", b""), "must be given"),
        ("experiment not UTF-8", make_replacement("experiment.toml", b"\xff\xfe"), "cannot be read"),
        ("experiment with a typo", make_rewording("experiment.toml", "rounds", "round"), "did you mean 'rounds'?"),
        ("no experiment", lambda folder: (folder / "experiment.toml").unlink(), "there is no run"),
        ("no provenance", lambda folder: (folder / "provenance.json").unlink(), "start a new run"),
        ("provenance not JSON", make_replacement("provenance.json", b"{"), "provenance.json' cannot be read"),
        ("provenance not UTF-8", make_replacement("provenance.json", b"\xff\xfe"), "provenance.json' cannot be read"),
        ("provenance a list", make_replacement("provenance.json", b"[1]"), "provenance.json"),
        ("provenance without data", make_replacement("provenance.json", b"{}"), "provenance.json"),
        ("provenance with other data", make_replacement("provenance.json", b'{"data_sha256": [1]}'), "provenance.json"),
        (
            "no metrics",
            lambda folder: (folder / "metrics.jsonl").unlink(),
            ROUNDS_MISSING,
        ),
        ("metrics not JSON", make_replacement("metrics.jsonl", b"{}\nwhat\n"), "metrics.jsonl' is damaged"),
        ("metrics not UTF-8", make_replacement("metrics.jsonl", b"\xff\xfe\n"), "metrics.jsonl' is damaged"),
        ("metrics of other things", make_replacement("metrics.jsonl", ROUNDS_AS_LISTS), "metrics.jsonl"),
        ("metrics cut short", truncate_metrics, ROUNDS_MISSING),
        ("all tensors junk", make_checkpoint_damage(b"junk", ".safetensors"), "no checkpoint of"),
        ("all tensors empty", make_checkpoint_damage(b"", ".safetensors"), "start a new run with `fedcm run"),
        ("all notes junk", make_checkpoint_damage(b"\xff", ".json"), "no checkpoint of"),
        ("a note far ahead", rename_checkpoint_far_ahead, "no checkpoint of"),
        (
            "another model",
            make_rewording("experiment.toml", "    8,\n", "    9,\n"),
            "experiment.toml' must not change",
        ),
        ("data changed", change_data, "has another checksum; restore the old data or start a new run"),
        ("data gone", delete_data, "there must be an .npz file"),
        (
            "another seed",
            make_rewording("experiment.toml", "seed = 3", "seed = 4"),
            "experiment.toml' must not change",
        ),
    ),
)
def test_resuming_a_damaged_run_is_rejected_and_leaves_it_unchanged(
    fedcm: Fedcm, stopped: Path, damage: Callable[[Path], None], message: str
) -> None:
    damage(stopped)
    before = read_files(stopped)
    assert_rejected(
        fedcm("resume", stopped), message, other_lines=r"checkpoint round-\d+ is damaged|run .* resumes at round"
    )
    assert read_files(stopped) == before


@pytest.mark.parametrize(
    "summary", make_params(("a list", "[1]"), ("without a name", '{"outcome": "finished"}'), ("a text", '"finished"'))
)
def test_a_damaged_summary_gives_no_traceback(fedcm: Fedcm, stopped: Path, summary: str) -> None:
    (stopped / "summary.json").write_text(summary)
    assert fedcm("runs", "--runs-dir", stopped.parent).code == 0
    answer = fedcm("resume", stopped)
    assert answer.code == 0, answer.err
    assert json.loads((stopped / "summary.json").read_text())["rounds"] == 12, "it is written again"


@pytest.mark.parametrize(
    ("path", "message"),
    make_params(
        ("missing", "runs/stoped", "there is no run 'runs/stoped'; did you mean 'runs/stopped'?"),
        ("a name in the folder of runs", "stoped", "there is no run 'runs/stoped'; did you mean 'runs/stopped'?"),
        ("nowhere at all", "no/such/place", "there is no run 'no/such/place'"),
        ("a folder that is no run", "runs", "there is no run 'runs'"),
        ("a file", "small.toml", "there is no run 'small.toml'"),
        ("a path too long for a file", "x" * 300, "there is no run"),
    ),
)
def test_resuming_something_that_is_no_run_is_rejected(fedcm: Fedcm, stopped: Path, path: str, message: str) -> None:
    assert_rejected(fedcm("resume", path), message)


@pytest.mark.parametrize(
    "damage",
    make_params(
        ("experiment not TOML", make_replacement("experiment.toml", b"rounds = = 3")),
        ("algorithm a text", make_replacement("experiment.toml", b'rounds = 3\nalgorithm = "fedcm"\n')),
        ("algorithm a number", make_replacement("experiment.toml", b"rounds = 3\nalgorithm.name = 3\n")),
        ("metrics not JSON", make_replacement("metrics.jsonl", b"{}\nwhat\n")),
        ("metrics not UTF-8", make_replacement("metrics.jsonl", b"\xff\xfe\n")),
        ("metrics of other things", make_replacement("metrics.jsonl", ROUNDS_AS_LISTS)),
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
        state = Checkpoint(next_round, ServerState(torch.full((2,), float(next_round))), {})
        write_checkpoint(tmp_path, state, keep=2)
    found = read_newest_checkpoint(tmp_path, ServerState(torch.zeros(2)), lambda _: None, print)
    assert found is not None
    assert found.next_round == 1_000_000


def test_a_checkpoint_under_the_name_of_another_round_is_ignored(fedcm: Fedcm, stopped: Path) -> None:
    for file in (stopped / "checkpoints").glob("round-000006.*"):
        file.rename(file.with_stem("round-000005"))
    answer = fedcm("resume", stopped)
    assert "is damaged (it holds the state after 6 rounds)" in answer.err
    assert "resumes at round 4" in answer.err


def test_a_run_with_empty_cohorts_can_be_stopped(experiment: Write, tmp_path: Path) -> None:
    path = experiment(rounds=50, participation={"kind": "independent", "probability": 1e-12})
    experiment_read = read_experiment(read_table(path))
    with pytest.raises(Stopped):
        finish_session(
            Session.start(
                experiment_read, tmp_path / "runs", "empty", options=SessionOptions(stop_requested=lambda: True)
            )
        )


def test_a_run_that_another_process_finished_meanwhile_stays_finished(experiment: Write, tmp_path: Path) -> None:
    session = Session.start(read_experiment(read_table(experiment())), tmp_path / "runs", "one")
    rounds = session.rounds()
    for _ in range(6):
        next(rounds)
    with pytest.raises(UserError, match="in progress"):
        Session.resume(tmp_path / "runs" / "one")  # no state is read before the lock is held
    for _ in rounds:
        pass
    session.close()
    before = read_lines(tmp_path / "runs" / "one")
    assert not finish_session(Session.resume(tmp_path / "runs" / "one"))
    assert read_lines(tmp_path / "runs" / "one") == before


def test_a_full_disk_is_reported_in_one_sentence(
    run: Fedcm, experiment: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    monkeypatch.setattr("fedcm.system.storage.tensor_files.save_file", full)
    answer = run(experiment())
    assert answer.code == 1
    assert "No space left on device" in answer.err.splitlines()[-1]
    assert answer.err.splitlines()[-1].startswith("fedcm: ")
