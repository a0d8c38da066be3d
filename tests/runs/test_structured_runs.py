"""Runs from TOML whose data are structures: resumed, and on workers, with the same bits."""

import json
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from scenes import load_summary, read_lines, resume_run, run_and_stop_after, run_to_end, small_experiment
from structured_code import write_structured_code

import fedcm
from fedcm.config.experiment import read_experiment
from fedcm.errors import UserError
from fedcm.runs.build import build

MODULE = "structured_run_code"
VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {"data": {"source": f"{MODULE}:make_all"}},
    "own functions": {
        "data": {
            "source": f"{MODULE}:make_all",
            "augment": [f"{MODULE}:add_noise"],
            "collate": f"{MODULE}:pad_to_five",
        },
        "model": {"name": f"{MODULE}:make_model", "loss": f"{MODULE}:sharpen"},
    },
    "fresh": {"data": {"source": f"{MODULE}:make_noisy", "fresh": True}},
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_structured_code(tmp_path, MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def write_experiment(folder: Path, variant: str, **changes: Any) -> Path:
    base = {"split": {"kind": "natural"}, "participation": {"kind": "everyone"}, "rounds": 6}
    table = small_experiment("", **base | {"model": {"name": f"{MODULE}:make_model"}} | VARIANTS[variant] | changes)
    path = folder / "small.toml"
    path.write_text(tomli_w.dumps(table))
    return path


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_resumed_run_has_the_same_bits(variant: str, folder: Path) -> None:
    path = write_experiment(folder, variant)
    whole = run_to_end(path, folder / "runs")
    stopped = run_and_stop_after(3, path, folder / "runs", "stopped")
    resume_run(stopped)
    assert read_lines(stopped) == read_lines(whole)
    assert load_summary(stopped)["params_sha256"] == load_summary(whole)["params_sha256"]


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS)
def test_workers_have_the_same_bits(variant: str, folder: Path) -> None:
    path = write_experiment(folder, variant)
    whole = run_to_end(path, folder / "runs")
    shared = fedcm.run(path, runs_dir=folder / "runs", name="shared", workers=2)
    assert load_summary(shared.path)["params_sha256"] == load_summary(whole)["params_sha256"]


def test_variants_train_differently(folder: Path) -> None:
    digests = set()
    for number, variant in enumerate(VARIANTS):
        run = run_to_end(write_experiment(folder, variant), folder / "runs", f"run-{number}")
        digests.add(load_summary(run)["params_sha256"])
    assert len(digests) == len(VARIANTS)


def test_a_resume_with_another_loss_is_rejected(folder: Path) -> None:
    path = write_experiment(folder, "plain")
    stopped = run_and_stop_after(2, path, folder / "runs", "stopped")
    text = (stopped / "experiment.toml").read_text()
    (stopped / "experiment.toml").write_text(text.replace("[model]\n", f'[model]\nloss = "{MODULE}:sharpen"\n'))
    with pytest.raises(UserError):
        resume_run(stopped)


def test_reading_anew_is_timed(folder: Path) -> None:
    said: list[str] = []
    run = fedcm.run(write_experiment(folder, "fresh"), runs_dir=folder / "runs", notify=said.append)
    assert any(line.startswith("reading one batch anew takes") for line in said)
    assert "reading one batch anew" in json.loads((run.path / "provenance.json").read_text())["milliseconds_a_step"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"engine": {"stack": 4}}, "cannot be stacked, got engine.stack = 4; set it to 1"),
        ({"engine": {"compile": "on"}}, "a compiled model needs batches of one shape"),
        ({"split": {"kind": "dirichlet", "clients": 3}}, "a split by label needs one label per example"),
        ({"data": {"source": f"{MODULE}:make_all", "fresh": True}}, "data.fresh needs data that are read item by item"),
        ({"data": {"source": f"{MODULE}:make_all", "augment": ["crop"]}}, "'crop' needs images"),
        ({"data": {"source": f"{MODULE}:make_all", "augment": ["crp"]}}, "did you mean 'crop'"),
        ({"data": {"source": f"{MODULE}:make_all", "collate": f"{MODULE}:sharpen"}}, "data.collate failed on 2 exam"),
        ({"model": {"name": f"{MODULE}:make_model", "loss": "sum"}}, "there is no loss 'sum'"),
    ],
)
def test_what_cannot_work_is_rejected_before_the_run_has_a_folder(
    changes: dict[str, Any], message: str, folder: Path
) -> None:
    with pytest.raises(UserError, match=message):
        run_to_end(write_experiment(folder, "plain", **changes), folder / "runs")
    assert not (folder / "runs").exists()


def test_compilation_is_not_chosen_for_unequal_lengths(folder: Path) -> None:
    path = write_experiment(folder, "plain", engine={"stack": "auto", "compile": "auto"}, rounds=1000)
    engine = build(fedcm.load_experiment(path)).experiment.engine
    assert (engine.stack, engine.compile) == (1, "off")


def test_several_yes_or_no_labels_need_as_many_outputs_of_a_bundled_model() -> None:
    table = small_experiment("digits", model={"name": "linear", "loss": "binary_cross_entropy"}, rounds=1)
    assert build(read_experiment(table)).problem.size == 64 + 1
    assert build(read_experiment(table | {"model": {"name": "linear"}})).problem.size == 10 * (64 + 1)


@pytest.mark.parametrize(
    "changed",
    [{"data.collate": "torch.utils.data:default_collate"}, {"data.fresh": True}, {"data.validation": 0.2}],
)
def test_a_resume_rejects_other_batches(tmp_path: Path, changed: dict[str, Any]) -> None:
    """What happens to the data between the source and the model is part of a run, as the source's checksums are."""
    run = fedcm.run("demo", overrides={"rounds": 3}, runs_dir=tmp_path, callbacks=[lambda metrics: metrics.round == 0])
    (path,) = changed
    with pytest.raises(UserError, match=rf"{path} must not change after the run began"):
        fedcm.resume(run.path, overrides=changed)
