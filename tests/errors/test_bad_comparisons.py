"""Comparisons and pictures that cannot work are refused before anything is run, drawn or lost."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from answers import ALGORITHM, Fedcm, Write, arrays, cases, contents, refused


@pytest.mark.parametrize(
    ("words", "said"),
    cases(
        ("an unknown one", ["--algorithms", "fedavg,fedmc"], "no algorithm 'fedmc'; did you mean 'fedcm'?"),
        ("one that is not importable", ["--algorithms", "no.such:Thing"], "there is no module"),
        ("a bad setting", ["--set", "client.lr=0"], "client.lr must be greater than 0"),
    ),
)
def test_a_comparison_that_cannot_work_is_refused_before_the_first_run(
    fedcm: Fedcm, experiment: Write, tmp_path: Path, words: list[str], said: str
) -> None:
    refused(fedcm("compare", experiment(rounds=1), "--runs-dir", "runs", *words), said)
    assert not (tmp_path / "runs").exists()


def test_a_fresh_comparison_that_cannot_start_loses_nothing(
    fedcm: Fedcm, experiment: Write, tmp_path: Path, npz: Path
) -> None:
    path = experiment(rounds=1)
    words = ["compare", path, "--algorithms", "fedavg,fedcm", "--runs-dir", "runs"]
    assert fedcm(*words).code == 0
    before = contents(tmp_path / "runs")
    npz.rename(tmp_path / "gone.npz")
    refused(fedcm(*words, "--fresh"), "there must be an .npz file")
    assert contents(tmp_path / "runs") == before
    with np.load(tmp_path / "gone.npz") as old:
        np.savez(npz, **(dict(old) | {"x_train": old["x_train"] + 1}))
    assert fedcm(*words).code == 0, "nothing is trained, so nothing is mixed"
    more = ["compare", path, "--algorithms", "fedavg,fedadam", "--runs-dir", "runs"]
    refused(fedcm(*more), "the runs of a comparison must have the same data, and train_features")
    assert not (tmp_path / "runs" / "small-fedadam-seed3").exists()


def test_two_algorithms_of_one_name_are_not_taken_for_each_other(
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
def test_an_experiments_name_cannot_lead_out_of_the_folder(
    fedcm: Fedcm, experiment: Write, tmp_path: Path, name: str
) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    path = experiment(rounds=1, name=name)
    os.chdir(inner)
    try:
        for words in (["compare", path, "--algorithms", "fedavg", "--runs-dir", "runs"], ["data", "split", path]):
            refused(fedcm(*words), "name")
        outside = {*tmp_path.glob("*.png"), *Path("/tmp").glob("break-fedcm-outside*.png")}
        assert not outside
    finally:
        os.chdir(tmp_path)
        for file in Path("/tmp").glob("break-fedcm-outside*.png"):
            file.unlink()


@pytest.mark.parametrize("output", ["picture", "picture.xyz", "folder"])
def test_a_picture_that_cannot_be_drawn_there_is_refused(
    fedcm: Fedcm, experiment: Write, tmp_path: Path, output: str
) -> None:
    (tmp_path / "folder").mkdir()
    refused(fedcm("data", "split", experiment(), "--output", output), output)


def test_the_label_mix_of_a_regression_is_refused(fedcm: Fedcm, experiment: Write, tmp_path: Path) -> None:
    np.savez(tmp_path / "mine.npz", **arrays(y_train=np.zeros(40), y_test=np.zeros(8)))
    path = experiment(data={"source": "mine.npz"}, split={"kind": "iid", "clients": 2})
    refused(fedcm("data", "split", path), "needs labels that are classes")
