"""Runs on disk: the files of their folder; a resumed run has the bits of one that was not stopped."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from safetensors.torch import load_file
from scenes import Answer, load_summary, read_lines, resume_run, run_and_stop_after, run_to_end

from fedcm.config.experiment import read_experiment
from fedcm.config.overrides import read_table
from fedcm.errors import UserError
from fedcm.runs.folder import RunFolder, list_runs
from fedcm.runs.session import Session

ALGORITHMS = ["fedavg", "fedcm", "fedadam", "scaffold", "feddyn"]


def test_a_run_writes_all_its_files(experiment: Callable[..., Path], tmp_path: Path) -> None:
    folder = run_to_end(experiment(), tmp_path / "runs")
    assert read_experiment(read_table(folder / "experiment.toml")).rounds == 12
    provenance = json.loads((folder / "provenance.json").read_text())
    assert {"python", "torch", "fedcm", "numpy"} <= set(provenance["versions"])
    assert {"train_features", "train_labels", "test_features", "split"} <= set(provenance["data_sha256"])
    lines = read_lines(folder)
    assert [line["round"] for line in lines] == list(range(12))
    assert {"loss", "cohort", "steps", "client_lr", "update_norm", "momentum_norm", "bytes_down", "bytes_up"} <= set(
        lines[0]
    )
    assert sorted(p.name for p in (folder / "checkpoints").glob("*.json")) == [
        f"round-0000{n}.json" for n in ("08", "10", "12")
    ]
    summary = load_summary(folder)
    assert summary["outcome"] == "finished"
    accuracies = [line["test_accuracy"] for line in lines if "test_accuracy" in line]
    assert summary["accuracy"]["last"] == accuracies[-1]
    assert summary["accuracy"]["best"] == max(accuracies)
    assert (
        summary["accuracy"]["mean_last"] == accuracies[-1]
    )  # of its 12 rounds the last two, of which one is evaluated
    assert (summary["accuracy"]["mean_last_rounds"], summary["accuracy"]["mean_last_evaluations"]) == (2, 1)
    assert summary["bytes_up"] == sum(line["bytes_up"] for line in lines)
    assert set(load_file(folder / "model.safetensors")) == {"1.weight", "1.bias", "3.weight", "3.bias"}


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("rounds", [0, 1, 5, 11])
def test_a_stopped_run_resumes_to_the_same_bits(
    experiment: Callable[..., Path], tmp_path: Path, algorithm: str, rounds: int
) -> None:
    path = experiment(algorithm={"name": algorithm}, participation={"kind": "fixed", "clients": 4})
    reference = run_to_end(path, tmp_path / "runs")
    folder = run_and_stop_after(rounds, path, tmp_path / "runs", "stopped")
    assert len(read_lines(folder)) == rounds
    resume_run(folder)
    assert read_lines(folder) == read_lines(reference)
    assert load_summary(folder)["params_sha256"] == load_summary(reference)["params_sha256"]


def test_the_same_experiment_gives_the_same_bits_and_another_seed_does_not(
    experiment: Callable[..., Path], tmp_path: Path
) -> None:
    path = experiment()
    once, again = (run_to_end(path, tmp_path / "runs", name) for name in ("once", "again"))
    assert read_lines(once) == read_lines(again)
    other = run_to_end(experiment(seed=4), tmp_path / "runs", "other")
    assert load_summary(other)["params_sha256"] != load_summary(once)["params_sha256"]


def test_a_resolved_experiment_runs_to_the_same_bits(experiment: Callable[..., Path], tmp_path: Path) -> None:
    first = run_to_end(experiment(), tmp_path / "runs", "first")
    second = run_to_end(first / "experiment.toml", tmp_path / "runs", "second")
    assert read_lines(first) == read_lines(second)


@pytest.mark.parametrize("damage", ["flipped", "cut", "no tensors", "no json", "not json", "wrong format"])
def test_a_damaged_checkpoint_is_skipped_and_reported_in_one_line(
    experiment: Callable[..., Path], tmp_path: Path, damage: str
) -> None:
    path = experiment(algorithm={"name": "scaffold"})
    reference = run_to_end(path, tmp_path / "runs")
    folder = run_and_stop_after(9, path, tmp_path / "runs", "stopped")
    newest = sorted((folder / "checkpoints").glob("*.safetensors"))[-1]
    note = newest.with_suffix(".json")
    match damage:
        case "flipped":
            raw = bytearray(newest.read_bytes())
            raw[-3] ^= 1
            newest.write_bytes(raw)
        case "cut":
            newest.write_bytes(newest.read_bytes()[:-10])
        case "no tensors":
            newest.unlink()
        case "no json":
            note.unlink()
        case "not json":
            note.write_text("{")
        case "wrong format":
            note.write_text(json.dumps(json.loads(note.read_text()) | {"format": 99}))
    notices: list[str] = []
    resume_run(folder, notices.append)
    assert read_lines(folder) == read_lines(reference)
    if damage != "no json":
        assert len(notices) == 1
        assert "is damaged" in notices[0]


def test_if_no_checkpoint_is_complete_nothing_is_overwritten(experiment: Callable[..., Path], tmp_path: Path) -> None:
    folder = run_and_stop_after(5, experiment(), tmp_path / "runs", "stopped")
    for tensors in (folder / "checkpoints").glob("*.safetensors"):
        tensors.write_bytes(b"junk")
    before = (folder / "metrics.jsonl").read_text()
    with pytest.raises(UserError, match=r"no checkpoint of .* is complete"):
        Session.resume(folder)
    assert (folder / "metrics.jsonl").read_text() == before


def test_leftovers_of_a_killed_process_are_removed(experiment: Callable[..., Path], tmp_path: Path) -> None:
    folder = run_and_stop_after(5, experiment(), tmp_path / "runs", "stopped")
    leftover = folder / "checkpoints" / ".round-000006.abcdef.safetensors"
    leftover.write_bytes(b"half")
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"round": 5, "lo')
    resume_run(folder)
    assert not leftover.exists()
    assert [line["round"] for line in read_lines(folder)] == list(range(12))


def test_a_run_cannot_be_in_progress_twice(experiment: Callable[..., Path], tmp_path: Path) -> None:
    with Session.start(read_experiment(read_table(experiment())), tmp_path / "runs", "one") as session:
        next(session.rounds())
        with pytest.raises(UserError, match="in progress in another process"):
            Session.resume(tmp_path / "runs" / "one")
        assert RunFolder(tmp_path / "runs" / "one").is_locked()
    assert not RunFolder(tmp_path / "runs" / "one").is_locked()


def test_a_resume_with_changed_data_is_rejected(experiment: Callable[..., Path], tmp_path: Path, npz: Path) -> None:
    import numpy as np

    folder = run_and_stop_after(5, experiment(), tmp_path / "runs", "stopped")
    arrays = dict(np.load(npz))
    arrays["x_train"][3, 1] += 1
    np.savez(npz, **arrays)
    with pytest.raises(UserError, match="another checksum"):
        Session.resume(folder)


def test_divergence_stops_the_run_and_keeps_the_last_checkpoint(
    experiment: Callable[..., Path], fedcm: Callable[..., Answer], tmp_path: Path
) -> None:
    path = experiment(client={"lr": 1e5, "weight_decay": 10.0}, rounds=50, checkpoints={"every": 1})
    answer = fedcm("run", path, "--runs-dir", tmp_path / "runs", "--name", "wild")
    assert answer.code == 1
    assert "diverged" in answer.err
    assert "client" in answer.err
    assert "round" in answer.err
    assert "Traceback" not in answer.err
    summary = load_summary(tmp_path / "runs" / "wild")
    assert summary["outcome"] == "diverged"
    assert "round" in summary["reason"]


def test_the_command_line_runs_resumes_and_lists(
    experiment: Callable[..., Path], fedcm: Callable[..., Answer], tmp_path: Path
) -> None:
    runs = tmp_path / "runs"
    answer = fedcm("run", experiment(), "--runs-dir", runs, "--json", "--seed", 5, "--set", "rounds=4")
    assert answer.code == 0, answer.err
    summary = json.loads(answer.out)
    assert summary["seed"] == 5
    assert summary["rounds"] == 4
    assert summary["name"] == "small-fedcm-seed5"
    again = fedcm("resume", runs / "small-fedcm-seed5", "--json")
    assert json.loads(again.out) == summary
    assert "finished already" in again.err
    second = fedcm("run", experiment(), "--runs-dir", runs, "--seed", 5, "--set", "rounds=4")
    assert second.code == 0
    listed = json.loads(fedcm("runs", "--runs-dir", runs, "--json").out)
    assert [(run["name"], run["state"], run["done"]) for run in listed] == [
        ("small-fedcm-seed5", "finished", 4),
        ("small-fedcm-seed5-2", "finished", 4),
    ]
    assert "small-fedcm-seed5-2" in fedcm("runs", "--runs-dir", runs).out


def test_a_finished_run_can_be_extended(
    experiment: Callable[..., Path], fedcm: Callable[..., Answer], tmp_path: Path
) -> None:
    reference = run_to_end(experiment(evaluation={"every": 4}), tmp_path / "runs")
    short = run_to_end(experiment(rounds=8, evaluation={"every": 4}), tmp_path / "runs", "short")
    assert fedcm("resume", "short", "--set", "rounds=12", "--runs-dir", tmp_path / "runs").code == 0
    assert read_lines(short) == read_lines(reference)


@pytest.mark.slow
def test_a_diverged_run_still_prints_its_summary_as_json(
    experiment: Callable[..., Path], fedcm: Callable[..., Answer], tmp_path: Path
) -> None:
    path = experiment(client={"lr": 1e5, "weight_decay": 10.0}, rounds=50)
    answer = fedcm("run", path, "--runs-dir", tmp_path / "runs", "--json")
    assert answer.code == 1
    assert json.loads(answer.out)["outcome"] == "diverged"
    compared = fedcm("compare", path, "--algorithms", "fedavg,fedcm", "--runs-dir", tmp_path / "both")
    assert compared.code == 1
    assert compared.out.count("diverged (round ") == 2
    assert "%" not in compared.out.split("accuracy:")[0], "no accuracy of a model that is gone"


@pytest.mark.slow
def test_a_stopped_comparison_resumes(
    experiment: Callable[..., Path], fedcm: Callable[..., Answer], tmp_path: Path
) -> None:
    path = experiment()
    reference = run_to_end(path, tmp_path / "runs")
    folder = run_and_stop_after(5, path, tmp_path / "both", "small-fedcm-seed3")
    assert fedcm("compare", path, "--algorithms", "fedcm", "--runs-dir", tmp_path / "both").code == 0
    assert read_lines(folder) == read_lines(reference)


def test_the_split_is_summarised_and_drawn(
    experiment: Callable[..., Path], fedcm: Callable[..., Answer], tmp_path: Path
) -> None:
    picture = tmp_path / "mix.png"
    answer = fedcm("data", "split", experiment(), "--output", picture, "--json")
    summary = json.loads(answer.out)
    assert summary["clients"] == 12
    assert summary["examples"] == 240
    assert summary["unused_examples"] == 0
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["algorithms"], ALGORITHMS),
        (["models"], ["linear", "mlp", "lenet", "lenet-wide", "cnn", "resnet8", "resnet18", "resnet18-imagenet-stem"]),
        (["check", "fedcm", "--set", "alpha=0.3"], ["fedcm", "✓"]),
    ],
)
def test_algorithms_models_and_checks_are_printed(
    fedcm: Callable[..., Answer], words: list[str], named: list[str]
) -> None:
    answer = fedcm(*words)
    assert answer.code == 0
    assert all(re.search(rf"(^|\s){name}(\s|$|\()", answer.out) for name in named), answer.out


def test_nested_runs_are_listed_if_requested(tmp_path: Path) -> None:
    for name in ("one", "sweep/two"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "experiment.toml").write_text("")
    assert [run.name for run in list_runs(tmp_path)] == ["one"]
    assert sorted(run.name for run in list_runs(tmp_path, nested=True)) == ["one", "two"]


def test_a_dangling_link_with_the_runs_name_is_kept(experiment: Callable[..., Path], tmp_path: Path) -> None:
    link = tmp_path / "runs" / "small-fedcm-seed3"
    link.parent.mkdir()
    link.symlink_to(tmp_path / "gone")
    with Session.start(read_experiment(read_table(experiment())), link.parent) as session:
        assert session.folder.name == "small-fedcm-seed3-2"
    assert link.is_symlink()


def test_a_session_prints_nothing(
    experiment: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = run_and_stop_after(5, experiment(), tmp_path / "runs", "stopped")
    max((folder / "checkpoints").glob("*.json")).write_text("{")
    Session.resume(folder).close()
    assert capsys.readouterr() == ("", "")


def test_an_edited_experiment_cannot_be_resumed(experiment: Callable[..., Path], tmp_path: Path) -> None:
    folder = run_and_stop_after(5, experiment(), tmp_path / "runs", "stopped")
    with pytest.raises(UserError, match=r"^client.clip, client.lr must not change after the run began; a resume"):
        Session.resume(folder, overrides=["client.lr=0.3", "client.clip=1.0", "rounds=20"])
    path = folder / "experiment.toml"
    path.write_text(path.read_text().replace("lr = 0.1", "lr = 0.3"))
    with pytest.raises(UserError, match=r"^the settings in '.*experiment.toml' must not change after the run began"):
        Session.resume(folder)
