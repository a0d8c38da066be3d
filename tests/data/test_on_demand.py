"""Clients made when asked for: the same every time, checked one by one, and only those who take part."""

import contextlib
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w
import torch
from scenes import Answer, go_on, lines_of, small_experiment, stopped_after, summary_of, whole

import fedcm as library
from fedcm.data import ClientsOnDemand, Examples, Normalisation, find, load
from fedcm.data.imported import from_clients
from fedcm.data.on_demand import OnDemandData
from fedcm.errors import UserError

POPULATION = 10**6
SOURCE = """
import numpy as np
import fedcm

def client(number):
    draw = np.random.default_rng((5, number))
    x = draw.normal(size=(3 + number % 4, 6)).astype(np.float32)
    return x, x[:, :4].argmax(1)

def size(number):
    return 3 + number % 4

def clients():
    return fedcm.ClientsOnDemand(VERSION population=10**6, client=client, size=size, classes=4, test=client(2**32))
"""


def client(number: int) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng((5, number))
    x = draw.normal(size=(3 + number % 4, 6)).astype(np.float32)
    return x, x[:, :4].argmax(1)


def crowd(**changes: Any) -> ClientsOnDemand:
    given = {"population": POPULATION, "client": client, "size": lambda number: 3 + number % 4, "classes": 4}
    return ClientsOnDemand(**(given | changes))


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module in the folder that the test runs in, with a name of its own, because Python keeps modules."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    module = f"crowd_{tmp_path.parent.name.replace('-', '_')}_{tmp_path.name}"
    (tmp_path / f"{module}.py").write_text(SOURCE.replace("VERSION", ""))
    return f"{module}:clients"


def written(source: str, folder: Path, **changes: Any) -> Path:
    table = small_experiment(source, participation={"kind": "fixed", "clients": 5}, **changes)
    if "split" not in changes:
        del table["split"]
    path = folder / "crowd.toml"
    path.write_text(tomli_w.dumps(table))
    return path


def test_a_client_is_what_the_function_makes_and_its_size_is_known_before() -> None:
    data = OnDemandData(crowd(test=client(2**32)))
    for number in (0, 1, 999_999):
        x, y = client(number)
        made = data.client(number)
        assert np.array_equal(made.features.numpy(), x)
        assert made.labels.tolist() == y.tolist()
    assert data.sizes(np.array([2, 999_999])).tolist() == [5, 6]
    assert (data.population, data.input_shape, data.test_size) == (POPULATION, (6,), 3)


def test_only_those_who_take_part_are_made() -> None:
    made = set()

    def noted(number: int) -> tuple[np.ndarray, np.ndarray]:
        made.add(number)
        return client(number)

    _, history = library.train(
        torch.nn.Linear(6, 4), crowd(client=noted), library.FedCM(0.1), rounds=3, participation=4, test=client(5)
    )
    assert made == {0}.union(*[line["clients"] for line in history])
    assert "test_accuracy" in history[-1]


def test_they_train_to_the_same_bits_as_if_they_were_held() -> None:
    few, model = 8, torch.nn.Linear(6, 4)
    settings: dict[str, Any] = {"rounds": 3, "participation": 3, "batch_size": 2, "seed": 4}
    made = library.train(model, crowd(population=few), library.Scaffold(), **settings)
    held = library.train(model, [client(k) for k in range(few)], library.Scaffold(), **settings)
    assert from_clients([client(k) for k in range(few)]).classes == 4
    assert torch.equal(made.model.weight, held.model.weight)  # pyright: ignore[reportArgumentType]


def test_bytes_are_normalised_as_given() -> None:
    def bytes_of(number: int) -> tuple[np.ndarray, np.ndarray]:
        return np.full((2, 5, 5, 3), number % 256, np.uint8), np.zeros(2, int)

    data = OnDemandData(crowd(client=bytes_of, size=2, normalisation=Normalisation((0.5,) * 3, (0.25,) * 3)))
    assert data.input_shape == (3, 5, 5)
    torch.testing.assert_close(data.client(255).features, torch.full((2, 3, 5, 5), 2.0))
    with pytest.raises(UserError, match="bytes need a normalisation"):
        OnDemandData(crowd(client=bytes_of, size=2))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"population": 0}, "population must be a whole number of at least 1, got 0"),
        ({"size": 2.5}, "size must be a whole number"),
        ({"classes": True}, "classes must be a whole number"),
        ({"client": [client(0)]}, "client must be a function"),
        ({"version": 3}, "version must be a text"),
        ({"size": 7}, "client 0 must hold the 7 examples of its size, got 3"),
        ({"size": lambda number: 0}, "at least one example, got size\\(0\\) = 0"),
        ({"classes": 2}, "less than classes = 2"),
        ({"classes": None}, "got integers in client 0 and classes = None"),
        ({"client": lambda number: np.zeros(3)}, "client 0 must be a torch dataset"),
        ({"client": lambda number: 1 / 0}, "client 0 could not be made: ZeroDivisionError"),
        ({"client": lambda number: (np.random.rand(3, 6), np.zeros(3, int))}, "client 0 was not; draw from"),  # noqa: NPY002
        ({"test": (np.zeros((2, 9), np.float32), np.zeros(2, int))}, "client 0 and the test set must have features"),
        ({"test": (np.zeros((2, 6), np.float32), np.array([0, 9]))}, "got 9 in the test set"),
    ],
)
def test_what_cannot_work_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=said):
        OnDemandData(crowd(**changes))


def test_a_client_unlike_the_first_is_refused_when_it_is_made() -> None:
    data = OnDemandData(crowd(client=lambda number: (np.zeros((3, 6 + number), np.float32), np.zeros(3, int)), size=3))
    with pytest.raises(UserError, match="client 0 and client 2 must have features of one shape"):
        data.client(2)


def test_another_split_than_their_own_is_refused(fedcm: Callable[..., Answer], source: str, tmp_path: Path) -> None:
    path = written(source, tmp_path, split={"kind": "iid", "clients": 10})
    answer = fedcm("run", path)
    assert answer.code == 2
    assert "split.kind must be 'natural', got IID; leave [split] out" in answer.err
    picture = fedcm("data", "split", written(source, tmp_path))
    assert picture.code == 2
    assert "made one at a time" in picture.err


def test_a_source_of_clients_on_demand_is_found_but_is_no_whole(source: str) -> None:
    assert isinstance(find(source), ClientsOnDemand)
    with pytest.raises(UserError, match="as a whole"):
        load(source)


@pytest.mark.parametrize("algorithm", [pytest.param("fedcm", marks=pytest.mark.slow), "scaffold"])
def test_two_workers_and_a_resume_give_the_same_bits(source: str, tmp_path: Path, algorithm: str) -> None:
    path = written(source, tmp_path, algorithm={"name": algorithm})
    reference = whole(path, tmp_path / "runs")
    words = ["run", str(path), "--runs-dir", "runs", "--name", "shared", "--workers", "2"]
    subprocess.run([sys.executable, "-m", "fedcm", *words], cwd=tmp_path, check=True, capture_output=True, timeout=120)
    stopped = stopped_after(5, path, tmp_path / "runs", "stopped")
    go_on(stopped)
    for folder in (tmp_path / "runs" / "shared", stopped):
        assert lines_of(folder) == lines_of(reference)
        assert summary_of(folder)["params_sha256"] == summary_of(reference)["params_sha256"]


def test_a_resume_with_another_version_of_the_data_is_refused(source: str, tmp_path: Path) -> None:
    path = written(source, tmp_path)
    stopped = stopped_after(5, path, tmp_path / "runs", "stopped")
    module = source.removesuffix(":clients")
    (tmp_path / f"{module}.py").write_text(SOURCE.replace("VERSION", "version='2',"))
    with contextlib.suppress(KeyError):
        del sys.modules[module]
    with pytest.raises(UserError, match="'clients' has another checksum"):
        go_on(stopped)


def test_the_checksum_stands_for_the_first_and_the_last_client() -> None:
    def changed(which: int) -> Callable[[int], Any]:
        return lambda number: (client(number)[0] + (number == which), client(number)[1])

    sums = [OnDemandData(crowd(client=changed(which))).checksums() for which in (-1, 0, 17, POPULATION - 1)]
    assert sums[0] == sums[2]
    assert sums[0]["clients"] not in (sums[1]["clients"], sums[3]["clients"])


def test_examples_of_torch_datasets_will_do_too() -> None:
    data = OnDemandData(
        crowd(client=lambda number: Examples(torch.ones(3, 6), torch.zeros(3, dtype=torch.int64)), size=3)
    )
    assert data.client(4).size == 3
