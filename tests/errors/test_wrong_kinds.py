"""A folder or a broken link in place of a file ends in one sentence and code 2, and nothing is changed."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_errors import Fedcm, Write, assert_rejected

import fedcm as library
from fedcm.errors import UserError

RUN_FILES = (
    "experiment.toml",
    "metrics.jsonl",
    "summary.json",
    "model.safetensors",
    "provenance.json",
    "manifest.json",
    "client_results.json",
    ".lock",
    "checkpoints/round-000006.safetensors",
    "checkpoints/round-000006.json",
)


def put_folder(path: Path) -> None:
    path.mkdir()
    (path / "inside.txt").write_text("mine")


def put_broken_link(path: Path) -> None:
    path.symlink_to(path.with_name("nowhere"))


WRONG = {"folder": put_folder, "broken link": put_broken_link}
SENTENCES = {"folder": "must be a file, and it is a folder", "broken link": "which does not exist"}


@pytest.fixture(params=WRONG)
def wrong(request: pytest.FixtureRequest) -> str:
    return request.param


def replace(path: Path, wrong: str) -> None:
    path.unlink(missing_ok=True)
    WRONG[wrong](path)


@pytest.mark.parametrize("name", RUN_FILES)
def test_a_file_of_a_run(name: str, wrong: str, fedcm: Fedcm, stopped: Path, tmp_path: Path) -> None:
    replace(stopped / name, wrong)
    before = sorted(stopped.rglob("*"))
    assert_rejected(fedcm("resume", stopped), SENTENCES[wrong])
    assert sorted(stopped.rglob("*")) == before
    assert_rejected(fedcm("report", stopped, "-o", tmp_path / "page"), SENTENCES[wrong])
    with pytest.raises(UserError, match=SENTENCES[wrong]):
        library.Run(stopped)
    listed = fedcm("runs", "--runs-dir", stopped.parent)
    assert listed.code == 0
    assert "Traceback" not in listed.err
    verified = fedcm("verify", stopped.parent)
    assert (verified.code, verified.err) == (1, "")
    assert SENTENCES[wrong] in verified.out


@pytest.mark.parametrize("name", ["checkpoints", "clients"])
def test_a_file_in_place_of_a_folder_of_a_run(name: str, fedcm: Fedcm, stopped: Path) -> None:
    shutil.rmtree(stopped / name, ignore_errors=True)
    (stopped / name).write_text("x")
    assert_rejected(fedcm("resume", stopped), "must be a folder, and it is a file")


@pytest.mark.parametrize(
    "command", ["run", "compare", "advise", "sweep --over client.lr=0.1,0.2", "tune --over client.lr=0.1,0.2"]
)
def test_an_experiment_on_the_command_line(command: str, wrong: str, fedcm: Fedcm, tmp_path: Path) -> None:
    replace(tmp_path / "mine.toml", wrong)
    word, *options = command.split()
    answer = fedcm(word, "mine.toml", *options)
    assert_rejected(answer, SENTENCES[wrong])


def list_inputs() -> list[tuple[str, Callable[[Write, Path], Path]]]:
    """Files that an experiment names."""
    return [
        ("data", lambda experiment, path: experiment(data={"source": str(path)})),
        (
            "weights",
            lambda experiment, path: experiment(model={"name": "mlp", "hidden": [8], "weights": str(path)}),
        ),
    ]


@pytest.mark.parametrize(("what", "make"), list_inputs(), ids=["data", "weights"])
def test_a_file_that_an_experiment_names(
    what: str, make: Callable[[Write, Path], Path], wrong: str, run: Fedcm, experiment: Write, tmp_path: Path
) -> None:
    path = tmp_path / {"data": "named.npz", "weights": "named.safetensors"}[what]
    WRONG[wrong](path)
    answer = run(make(experiment, path))
    sentence = assert_rejected(answer, SENTENCES[wrong])
    assert "named." in sentence
    assert "Errno" not in sentence
    assert not (tmp_path / "runs").exists()


def test_a_broken_link_as_the_folder_of_runs(fedcm: Fedcm, experiment: Write, tmp_path: Path) -> None:
    put_broken_link(tmp_path / "results")
    sentence = assert_rejected(fedcm("run", experiment(rounds=1), "--runs-dir", tmp_path / "results"), "results")
    assert "Errno" not in sentence


def test_a_file_as_the_folder_of_a_report(fedcm: Fedcm, stopped: Path, tmp_path: Path) -> None:
    (tmp_path / "page").write_text("x")
    sentence = assert_rejected(fedcm("report", stopped, "-o", tmp_path / "page"), "page' must be a folder")
    assert "Errno" not in sentence
