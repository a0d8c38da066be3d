"""Clients created on demand: the same every time, checked one by one, and only those of a cohort."""

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
from scenes import Answer, load_summary, read_lines, resume_run, run_and_stop_after, run_to_end, small_experiment

import fedcm as library
from fedcm.data import ClientsOnDemand, Examples, Normalisation, load_dataset, load_source
from fedcm.data.on_demand import OnDemandData
from fedcm.data.user_data import convert_clients_to_dataset
from fedcm.errors import UserError

POPULATION = 10**6
SOURCE = """
import numpy as np
import fedcm

def client(number):
    generator = np.random.default_rng((5, number))
    x = generator.normal(size=(3 + number % 4, 6)).astype(np.float32)
    return x, x[:, :4].argmax(1)

def size(number):
    return 3 + number % 4

def clients():
    return fedcm.ClientsOnDemand(VERSION population=10**6, client=client, size=size, classes=4, test=client(2**32))
"""


def client(number: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng((5, number))
    x = generator.normal(size=(3 + number % 4, 6)).astype(np.float32)
    return x, x[:, :4].argmax(1)


def make_clients(**changes: Any) -> ClientsOnDemand:
    fields = {"population": POPULATION, "client": client, "size": lambda number: 3 + number % 4, "classes": 4}
    return ClientsOnDemand(**(fields | changes))


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module in the current folder; its name is unique, because Python caches imported modules."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    module = f"clients_{tmp_path.parent.name.replace('-', '_')}_{tmp_path.name}"
    (tmp_path / f"{module}.py").write_text(SOURCE.replace("VERSION", ""))
    return f"{module}:clients"


def write_experiment(source: str, folder: Path, **changes: Any) -> Path:
    table = small_experiment(source, participation={"kind": "fixed", "clients": 5}, **changes)
    if "split" not in changes:
        del table["split"]
    path = folder / "clients.toml"
    path.write_text(tomli_w.dumps(table))
    return path


def test_a_client_has_the_functions_data_and_the_stated_size() -> None:
    data = OnDemandData(make_clients(test=client(2**32)))
    for number in (0, 1, 999_999):
        x, y = client(number)
        created = data.client(number)
        assert np.array_equal(created.features.numpy(), x)
        assert created.labels.tolist() == y.tolist()
    assert data.sizes(np.array([2, 999_999])).tolist() == [5, 6]
    assert (data.population, data.input_shape, data.test_size) == (POPULATION, (6,), 3)


def test_only_clients_of_a_cohort_are_created() -> None:
    created = set()

    def record_client(number: int) -> tuple[np.ndarray, np.ndarray]:
        created.add(number)
        return client(number)

    _, history = library.train(
        torch.nn.Linear(6, 4),
        make_clients(client=record_client),
        library.FedCM(0.1),
        rounds=3,
        participation=4,
        test=client(5),
    )
    assert created == {0}.union(*[line["clients"] for line in history])
    assert "test_accuracy" in history[-1]


def test_clients_on_demand_train_to_the_same_bits_as_clients_in_memory() -> None:
    population, model = 8, torch.nn.Linear(6, 4)
    settings: dict[str, Any] = {"rounds": 3, "participation": 3, "batch_size": 2, "seed": 4}
    on_demand = library.train(model, make_clients(population=population), library.Scaffold(), **settings)
    in_memory = library.train(model, [client(k) for k in range(population)], library.Scaffold(), **settings)
    assert convert_clients_to_dataset([client(k) for k in range(population)]).classes == 4
    assert torch.equal(on_demand.model.weight, in_memory.model.weight)  # pyright: ignore[reportArgumentType]


def test_bytes_need_a_normalisation_and_use_it() -> None:
    def make_bytes(number: int) -> tuple[np.ndarray, np.ndarray]:
        return np.full((2, 5, 5, 3), number % 256, np.uint8), np.zeros(2, int)

    data = OnDemandData(make_clients(client=make_bytes, size=2, normalisation=Normalisation((0.5,) * 3, (0.25,) * 3)))
    assert data.input_shape == (3, 5, 5)
    torch.testing.assert_close(data.client(255).features, torch.full((2, 3, 5, 5), 2.0))
    with pytest.raises(UserError, match="bytes need a normalisation"):
        OnDemandData(make_clients(client=make_bytes, size=2))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"population": 0}, "population must be a whole number of at least 1, got 0"),
        ({"size": 2.5}, "size must be a whole number"),
        ({"classes": True}, "classes must be a whole number"),
        ({"client": [client(0)]}, "client must be a function"),
        ({"version": 3}, "version must be a string"),
        ({"size": 7}, "client 0 must have 7 examples, as its size says, got 3"),
        ({"size": lambda number: 0}, "at least one example, got size\\(0\\) = 0"),
        ({"classes": 2}, "less than classes = 2"),
        ({"classes": None}, "got integers in client 0 and classes = None"),
        ({"client": lambda number: np.zeros(3)}, "client 0 must be a torch dataset"),
        ({"client": lambda number: 1 / 0}, "client 0 could not be created: ZeroDivisionError"),
        ({"client": lambda number: (np.random.rand(3, 6), np.zeros(3, int))}, "client 0 did not; draw from"),  # noqa: NPY002
        ({"test": (np.zeros((2, 9), np.float32), np.zeros(2, int))}, "client 0 and the test set must have features"),
        ({"test": (np.zeros((2, 6), np.float32), np.array([0, 9]))}, "got 9 in the test set"),
    ],
)
def test_unusable_clients_are_rejected(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        OnDemandData(make_clients(**changes))


def test_a_client_that_differs_in_shape_from_client_0_is_rejected() -> None:
    data = OnDemandData(
        make_clients(client=lambda number: (np.zeros((3, 6 + number), np.float32), np.zeros(3, int)), size=3)
    )
    with pytest.raises(UserError, match="client 0 and client 2 must have features of one shape"):
        data.client(2)


def test_a_split_other_than_natural_is_rejected(fedcm: Callable[..., Answer], source: str, tmp_path: Path) -> None:
    path = write_experiment(source, tmp_path, split={"kind": "iid", "clients": 10})
    answer = fedcm("run", path)
    assert answer.code == 2
    assert "split.kind must be 'natural', got IID; leave [split] out" in answer.err
    figure = fedcm("data", "split", write_experiment(source, tmp_path))
    assert figure.code == 2
    assert "creates its clients on demand" in figure.err


def test_clients_on_demand_load_as_a_source_but_not_as_a_dataset(source: str) -> None:
    assert isinstance(load_source(source), ClientsOnDemand)
    with pytest.raises(UserError, match="must be a whole dataset here"):
        load_dataset(source)


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["fedcm", "scaffold"])
def test_two_workers_and_a_resume_give_the_same_bits(source: str, tmp_path: Path, algorithm: str) -> None:
    path = write_experiment(source, tmp_path, algorithm={"name": algorithm})
    reference = run_to_end(path, tmp_path / "runs")
    words = ["run", str(path), "--runs-dir", "runs", "--name", "shared", "--workers", "2"]
    subprocess.run([sys.executable, "-m", "fedcm", *words], cwd=tmp_path, check=True, capture_output=True, timeout=120)
    stopped = run_and_stop_after(5, path, tmp_path / "runs", "stopped")
    resume_run(stopped)
    for folder in (tmp_path / "runs" / "shared", stopped):
        assert read_lines(folder) == read_lines(reference)
        assert load_summary(folder)["params_sha256"] == load_summary(reference)["params_sha256"]


def test_resuming_with_another_version_of_the_data_is_rejected(source: str, tmp_path: Path) -> None:
    path = write_experiment(source, tmp_path)
    stopped = run_and_stop_after(5, path, tmp_path / "runs", "stopped")
    module = source.removesuffix(":clients")
    (tmp_path / f"{module}.py").write_text(SOURCE.replace("VERSION", "version='2',"))
    with contextlib.suppress(KeyError):
        del sys.modules[module]
    with pytest.raises(UserError, match="'clients' has another checksum"):
        resume_run(stopped)


def test_the_checksum_covers_the_first_and_the_last_client() -> None:
    def change(changed: int) -> Callable[[int], Any]:
        return lambda number: (client(number)[0] + (number == changed), client(number)[1])

    sums = [OnDemandData(make_clients(client=change(changed))).checksums() for changed in (-1, 0, 17, POPULATION - 1)]
    assert sums[0] == sums[2]
    assert sums[0]["clients"] not in (sums[1]["clients"], sums[3]["clients"])


def test_a_client_may_be_given_as_examples() -> None:
    data = OnDemandData(
        make_clients(client=lambda number: Examples(torch.ones(3, 6), torch.zeros(3, dtype=torch.int64)), size=3)
    )
    assert data.client(4).size == 3
