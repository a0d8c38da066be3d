"""When workers may be forks of rank 0."""

from typing import Any

import pytest

from fedcm.config.experiment import read_experiment
from fedcm.runs.workers.connection import can_fork

BUNDLED = {
    "data": {"source": "digits"},
    "split": {"kind": "iid", "clients": 4},
    "model": {"name": "linear"},
    "algorithm": {"name": "fedcm"},
    "client": {"epochs": 1, "batch_size": 10, "lr": 0.1},
    "engine": {"compile": "off"},
}


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test runner may have threads of its own."""
    monkeypatch.setattr("threading.active_count", lambda: 1)


def make(**changes: Any) -> Any:
    return read_experiment({"name": "e", "rounds": 1, **BUNDLED, **changes})


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"model": {"name": "torch.nn:Linear", "in_features": 64, "out_features": 10}},
        {"algorithm": {"name": "fedcm.algorithms:FedCM"}},
    ],
)
def test_workers_with_bundled_data_are_forks(changes: dict[str, Any]) -> None:
    assert can_fork(make(**changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"engine": {"compile": "off", "device": "cuda"}},
        {"engine": {"compile": "on"}},
        {"data": {"source": "my_data:load"}},
        {"data": {"source": "digits", "augment": ["fedcm.data.augmentation.images:flip"]}},
    ],
)
def test_cuda_compiled_models_and_own_data_need_new_processes(changes: dict[str, Any]) -> None:
    assert not can_fork(make(**changes))


def test_a_process_with_other_threads_is_not_forked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("threading.active_count", lambda: 2)
    assert not can_fork(make())


def test_a_process_is_not_forked_on_macos(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "darwin")
    assert not can_fork(make())
