"""A finished run is evidence: a changed file is found, and nothing reads it silently."""

import html
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scenes import Answer, forget_manifest, run_and_stop_after, run_to_end, write_npz
from scenes import small_experiment as make_table
from tomli_w import dumps

import fedcm as library
from fedcm.errors import UserError
from fedcm.reports.collect import RunCollection
from fedcm.reports.write import write_report
from fedcm.runs.evidence.manifest import EVIDENCE, DamagedRunError, write_manifest
from fedcm.runs.evidence.verification import verify_run
from fedcm.runs.folder import RunFolder, list_runs
from fedcm.runs.overview import make_overview
from fedcm.system.checksum import compute_file_sha256

Fedcm = Callable[..., Answer]
Write = Callable[..., Path]
LISTED = tuple(name for name in EVIDENCE if name != "federation.json")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run with every file that a run can have, except a federation's."""
    folder = tmp_path_factory.mktemp("evidence")
    table = make_table(
        write_npz(folder / "made.npz"),
        rounds=3,
        data={"source": str(folder / "made.npz"), "validation": 0.2},
        evaluation={"every": 1, "clients": 0.3},
    )
    (folder / "small.toml").write_text(dumps(table))
    return run_to_end(folder / "small.toml", folder / "runs")


@pytest.fixture(scope="module")
def copy(whole: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Path]:
    """A function that returns the run, undamaged again, in a folder of its own."""
    place = tmp_path_factory.mktemp("copied") / "runs" / whole.name

    def restore() -> Path:
        shutil.rmtree(place, ignore_errors=True)
        return Path(shutil.copytree(whole, place))

    return restore


def test_the_manifest_has_every_file_of_the_run(whole: Path) -> None:
    table = json.loads((whole / "manifest.json").read_text())
    assert set(table["files"]) == set(LISTED)
    for name, record in table["files"].items():
        assert record == {"size": (whole / name).stat().st_size, "sha256": compute_file_sha256(whole / name)}


def change(content: bytes, how: str, place: int, value: int) -> bytes:
    """Flip bits of one byte, cut the end off, or add a byte."""
    k = place % len(content)
    match how:
        case "flip":
            return content[:k] + bytes([content[k] ^ value]) + content[k + 1 :]
        case "cut":
            return content[:k]
        case _:
            return content[:k] + bytes([value]) + content[k:]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    name=st.sampled_from(LISTED),
    how=st.sampled_from(["flip", "cut", "insert"]),
    place=st.integers(0, 10**6),
    value=st.integers(1, 255),
)
def test_any_change_of_any_file_is_found_and_never_used(
    copy: Callable[[], Path], name: str, how: str, place: int, value: int
) -> None:
    run = copy()
    (run / name).write_bytes(change((run / name).read_bytes(), how, place, value))
    assert_damage_is_reported(run, name)


@pytest.mark.parametrize("name", LISTED)
def test_a_missing_file_is_found_and_never_used(copy: Callable[[], Path], name: str) -> None:
    run = copy()
    (run / name).unlink()
    found = verify_run(RunFolder(run))
    assert (found.state, found.damage) == ("damaged", (f"{name} is missing",))
    if name != "experiment.toml":  # without it the folder is no run
        assert_damage_is_reported(run, name)


def assert_damage_is_reported(run: Path, name: str) -> None:
    """Every reader must report the damage in one sentence; those of one file only if it is the changed one."""
    found = verify_run(RunFolder(run))
    assert found.state == "damaged"
    assert name in found.damage[0]
    (listed,) = make_overview(list_runs(run.parent), run.parent)
    assert (listed["state"], listed["last_accuracy"], name in listed["damage"]) == ("damaged", None, True)
    with pytest.raises(UserError, match=f"is damaged: {name}"):
        library.resume(run, notify=lambda sentence: None)
    with pytest.raises(UserError, match=f"is damaged: {name}"):
        write_report([run], run.parent / "report")
    assert not (run.parent / "report").exists()
    opened = library.Run(run)
    readers: dict[str, Callable[[], Any]] = {
        "experiment.toml": lambda: opened.experiment,
        "metrics.jsonl": lambda: opened.metrics,
        "summary.json": lambda: (opened.summary, opened.outcome),
        "model.safetensors": lambda: opened.model(),
        "best.safetensors": lambda: opened.model("best"),
    }
    if name in readers:
        with pytest.raises(DamagedRunError, match=f"is damaged: {name}"):
            readers[name]()
    if name in ("metrics.jsonl", "summary.json"):
        assert repr(opened) == f"<Run {run.name!r}: damaged>"


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(how=st.sampled_from(["flip", "cut", "insert"]), place=st.integers(0, 10**6), value=st.integers(33, 126))
def test_a_changed_manifest_is_found_or_says_the_same(
    copy: Callable[[], Path], how: str, place: int, value: int
) -> None:
    """A manifest with other spaces is the same table; every other change is damage."""
    run = copy()
    file = run / "manifest.json"
    table = json.loads(file.read_text())
    file.write_bytes(change(file.read_bytes(), how, place, value))
    try:
        same = json.loads(file.read_text()) == table
    except ValueError:
        same = False
    assert verify_run(RunFolder(run)).state == ("intact" if same else "damaged")
    if not same:
        with pytest.raises(DamagedRunError, match=r"manifest\.json is not what the run wrote"):
            library.resume(run, notify=lambda sentence: None)


def test_a_file_that_was_added_is_damage(experiment: Write, tmp_path: Path) -> None:
    run = run_to_end(experiment(rounds=1), tmp_path / "runs")
    shutil.copy(run / "model.safetensors", run / "best.safetensors")
    assert verify_run(RunFolder(run)).damage == ("best.safetensors was added after the run ended",)
    with pytest.raises(DamagedRunError, match="was added"):
        library.Run(run).model("best")


def test_a_longer_run_gets_a_new_manifest(experiment: Write, fedcm: Fedcm, tmp_path: Path) -> None:
    run = run_to_end(experiment(rounds=2), tmp_path / "runs")
    before = (run / "manifest.json").read_bytes()
    assert fedcm("resume", run, "--set", "rounds=4").code == 0
    assert (run / "manifest.json").read_bytes() != before
    assert fedcm("verify", run).out == f"{run}: intact (5 files)\n"
    assert len(library.Run(run).metrics) == 4


def test_a_run_in_progress_has_no_manifest(experiment: Write, tmp_path: Path) -> None:
    run = run_to_end(experiment(rounds=2), tmp_path / "runs")
    seen: list[bool] = []

    def look(metrics: library.RoundMetrics) -> None:
        seen.append((run / "manifest.json").exists())
        assert verify_run(RunFolder(run)).state == "not finished"

    library.resume(run, rounds=4, callbacks=[look], notify=lambda sentence: None)
    assert seen == [False, False]
    assert verify_run(RunFolder(run)).state == "intact"


def test_a_missing_manifest_is_damage(copy: Callable[[], Path], fedcm: Fedcm) -> None:
    run = copy()
    (run / "manifest.json").unlink()
    assert_damage_is_reported(run, "manifest.json")
    assert fedcm("verify", run).code == 1


def test_a_manifest_is_missing_for_every_reader_of_the_other_files(copy: Callable[[], Path]) -> None:
    run = copy()
    (run / "manifest.json").unlink()
    for read in (lambda: library.Run(run).metrics, lambda: library.Run(run).model("best")):
        with pytest.raises(DamagedRunError, match=r"manifest\.json is missing"):
            read()


def test_a_run_that_was_killed_before_its_manifest_is_not_damaged(
    experiment: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fedcm.runs import recorder

    def die(folder: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as killed:
        killed.setattr(recorder, "write_manifest", die)
        with pytest.raises(KeyboardInterrupt):
            run_to_end(experiment(rounds=1), tmp_path / "runs")
    run = tmp_path / "runs" / "whole"
    assert (run / "summary.json").exists()
    assert verify_run(RunFolder(run)).state == "not finished"
    library.resume(run, notify=lambda sentence: None)
    assert verify_run(RunFolder(run)).state == "intact"


def test_a_diverged_run_is_evidence_too(experiment: Write, fedcm: Fedcm, tmp_path: Path) -> None:
    path = experiment(rounds=5, client={"epochs": 2, "batch_size": 7, "lr": 1e5})
    assert fedcm("run", path, "--name", "lost", "--runs-dir", tmp_path / "runs").code == 1
    run = tmp_path / "runs" / "lost"
    assert fedcm("verify", run).code == 0
    summary = run / "summary.json"
    summary.write_text(summary.read_text().replace('"diverged"', '"finished"'))
    assert fedcm("verify", run).code == 1


def test_verify_prints_a_line_per_run_and_exits_by_the_worst(experiment: Write, fedcm: Fedcm, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    path = experiment(rounds=3)
    good, old, bad = (run_to_end(path, runs, name) for name in ("good", "old", "bad"))
    run_and_stop_after(1, path, runs, "stopped")
    forget_manifest(old)
    answer = fedcm("verify", good, old, runs / "stopped")
    states = ["intact", "no manifest", "not finished"]
    lines = answer.out.splitlines()
    assert answer.code == 0
    assert all(f": {state} (" in line for line, state in zip(lines, states, strict=True))
    (bad / "metrics.jsonl").write_bytes((bad / "metrics.jsonl").read_bytes()[:-1])
    answer = fedcm("verify", runs, "--json")
    assert answer.code == 1
    table = json.loads(answer.out)
    assert table["good"] is False
    assert {Path(run["path"]).name: run["state"] for run in table["runs"]} == {
        **dict(zip(("good", "old", "stopped"), states, strict=True)),
        "bad": "damaged",
    }
    assert fedcm("verify", "bad", "--runs-dir", runs).code == 1
    for missing in (runs / "nowhere", tmp_path / "empty"):
        (tmp_path / "empty").mkdir(exist_ok=True)
        answer = fedcm("verify", missing)
        assert (answer.code, answer.out, answer.err.count("\n")) == (2, "", 1)


def test_the_list_of_runs_marks_damage_and_missing_manifests(experiment: Write, fedcm: Fedcm, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    old, bad = (run_to_end(experiment(rounds=1), runs, name) for name in ("old", "bad"))
    forget_manifest(old)
    with (bad / "model.safetensors").open("ab") as file:
        file.write(b"x")
    answer = fedcm("runs", "--runs-dir", runs)
    assert answer.code == 0
    assert "damaged: bad: model.safetensors has" in answer.out
    assert "no manifest: 1 finished run of an older version" in answer.out


def test_a_report_leaves_damaged_runs_out_with_a_sentence(experiment: Write, fedcm: Fedcm, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    _, bad = (run_to_end(experiment(rounds=1), runs, name) for name in ("kept-run", "damaged-run"))
    (bad / "summary.json").write_text((bad / "summary.json").read_text() + " ")
    answer = fedcm("report", runs, "-o", tmp_path / "page")
    assert answer.code == 0
    assert "damaged-run' is damaged: summary.json has" in answer.err
    assert [digest.name for digest in RunCollection().read_digests([runs])] == ["kept-run"]
    assert "is damaged: summary.json has" in html.unescape((tmp_path / "page" / "index.html").read_text())


def test_a_resume_of_another_process_is_no_damage(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the manifest and the file that it names, another process makes the run longer and ends it."""
    from fedcm.runs.evidence import manifest

    run = Path(shutil.copytree(whole, tmp_path / "run"))
    read = manifest.read_manifest
    calls = 0

    def read_then_change(folder: Path) -> Any:
        nonlocal calls
        calls += 1
        found = read(folder)
        if calls == 1:
            (run / "summary.json").write_text((run / "summary.json").read_text() + "\n")
            write_manifest(run)
        return found

    monkeypatch.setattr(manifest, "read_manifest", read_then_change)
    assert RunFolder(run).read_summary() is not None
    assert calls == 3
