"""Comparisons and figures that cannot work are rejected before anything is run, drawn or deleted."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from cli_errors import ALGORITHM, Fedcm, Write, assert_rejected, make_arrays, make_params, read_files


@pytest.mark.parametrize(
    ("words", "message"),
    make_params(
        ("an unknown one", ["--algorithms", "fedavg,fedmc"], "no algorithm 'fedmc'; did you mean 'fedcm'?"),
        ("one that is not importable", ["--algorithms", "no.such:Thing"], "there is no module"),
        ("a bad setting", ["--set", "client.lr=0"], "client.lr must be greater than 0"),
    ),
)
def test_an_invalid_comparison_is_rejected_before_the_first_run(
    fedcm: Fedcm, experiment: Write, tmp_path: Path, words: list[str], message: str
) -> None:
    assert_rejected(fedcm("compare", experiment(rounds=1), "--runs-dir", "runs", *words), message)
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
def test_a_fresh_comparison_that_cannot_start_deletes_nothing(
    fedcm: Fedcm, experiment: Write, tmp_path: Path, npz: Path
) -> None:
    path = experiment(rounds=1)
    words = ["compare", path, "--algorithms", "fedavg,fedcm", "--runs-dir", "runs"]
    assert fedcm(*words).code == 0
    before = read_files(tmp_path / "runs")
    npz.rename(tmp_path / "gone.npz")
    assert_rejected(fedcm(*words, "--fresh"), "there must be an .npz file")
    assert read_files(tmp_path / "runs") == before
    with np.load(tmp_path / "gone.npz") as old:
        np.savez(npz, **(dict(old) | {"x_train": old["x_train"] + 1}))
    assert fedcm(*words).code == 0, "nothing is trained, so changed data do not matter"
    more = ["compare", path, "--algorithms", "fedavg,fedadam", "--runs-dir", "runs"]
    assert_rejected(fedcm(*more), "the runs of a comparison must have the same data, but train_features")
    assert not (tmp_path / "runs" / "small-fedadam-seed3").exists()


@pytest.mark.slow
def test_two_algorithms_with_the_same_class_name_are_distinguished(
    fedcm: Fedcm, experiment: Write, module: Callable[[str], str]
) -> None:
    code = (
        ALGORITHM
        + """
@dataclass(frozen=True)
class Same(Algorithm[ServerState, Broadcast, Nothing, Report]):
    def init_server(self, params): return ServerState(params)
    def init_client(self, params): return Nothing()
    def broadcast(self, server): return Broadcast(server.params)
    def direction(self, gradient, params, sent, kept): return {} * gradient(params)
    def report(self, run, sent, kept): return Report(run.moved), kept
    def update(self, server, mean, round): return ServerState(server.params - mean.moved)
"""
    )
    names = ",".join(f"{module(code.format(factor))}:Same" for factor in ("1.0", "0.5"))
    answer = fedcm("compare", experiment(rounds=2), "--algorithms", names, "--runs-dir", "runs", "--json")
    assert answer.code == 0, answer.err
    one, two = json.loads(answer.out).values()
    assert one["params_sha256"] != two["params_sha256"]


@pytest.mark.parametrize("name", ["../up", "/tmp/break-fedcm-outside", "a/b", "nul\u0000", "cost in $ and $x_$"])
def test_an_experiments_name_cannot_escape_the_folder(
    fedcm: Fedcm, experiment: Write, tmp_path: Path, name: str
) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    path = experiment(rounds=1, name=name)
    os.chdir(inner)
    try:
        for words in (["compare", path, "--algorithms", "fedavg", "--runs-dir", "runs"], ["data", "split", path]):
            assert_rejected(fedcm(*words), "name")
        outside = {*tmp_path.glob("*.png"), *Path("/tmp").glob("break-fedcm-outside*.png")}
        assert not outside
    finally:
        os.chdir(tmp_path)
        for file in Path("/tmp").glob("break-fedcm-outside*.png"):
            file.unlink()


@pytest.mark.parametrize("output", ["figure", "figure.xyz", "folder"])
def test_an_invalid_output_file_for_a_figure_is_rejected(
    fedcm: Fedcm, experiment: Write, tmp_path: Path, output: str
) -> None:
    (tmp_path / "folder").mkdir()
    assert_rejected(fedcm("data", "split", experiment(), "--output", output), output)


def test_the_label_mix_of_a_regression_is_rejected(fedcm: Fedcm, experiment: Write, tmp_path: Path) -> None:
    np.savez(tmp_path / "mine.npz", **make_arrays(y_train=np.zeros(40), y_test=np.zeros(8)))
    path = experiment(data={"source": "mine.npz"}, split={"kind": "iid", "clients": 2})
    assert_rejected(fedcm("data", "split", path), "the labels must be classes")


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("participation.clients=5,5000", "participation must be at most 12 clients, the whole population, got 5000"),
        ("engine.device=cpu,cuda:99", "engine.device must be "),
    ],
)
def test_a_later_run_that_cannot_work_is_rejected_before_the_first_run(
    fedcm: Fedcm, experiment: Write, tmp_path: Path, setting: str, message: str
) -> None:
    path = experiment(rounds=1, participation={"kind": "fixed", "clients": 5})
    assert_rejected(fedcm("sweep", path, "--over", setting, "--runs-dir", "runs"), message)
    assert not (tmp_path / "runs").exists()
