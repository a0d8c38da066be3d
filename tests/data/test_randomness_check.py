"""A dataset with random items is read once: fedcm warns, and nothing else changes."""

import os
import random
import subprocess
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from processes import make_command
from scenes import Answer
from torch import nn
from torch.utils.data import Dataset as TorchDataset
from torch.utils.data import TensorDataset

import fedcm
from fedcm.data import Normalisation
from fedcm.data.on_demand import OnDemandData
from fedcm.data.user_data import convert_clients_to_dataset, convert_to_dataset

SIZE = 40
GENERATOR = np.random.default_rng(0)
IMAGES = GENERATOR.integers(0, 256, (SIZE, 8, 8, 3), dtype=np.uint8)
Item = Callable[[int], Any]


@pytest.fixture(autouse=True)
def seeded() -> None:
    """Seed everything, because a random flip could leave all ten probes unchanged."""
    torch.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002
    random.seed(0)


def flip_at_random(x: np.ndarray) -> np.ndarray:
    return x[:, ::-1].copy() if torch.rand(()) < 0.5 else x


# the random items draw from the generators of torch, NumPy and Python
ITEMS: dict[str, tuple[Item, Item]] = {  # kind -> (constant, random)
    "tensor": (
        lambda k: torch.from_numpy(IMAGES[k]).permute(2, 0, 1).float(),
        lambda k: torch.from_numpy(flip_at_random(IMAGES[k])).permute(2, 0, 1).float(),
    ),
    "array": (lambda k: IMAGES[k], lambda k: np.roll(IMAGES[k], np.random.randint(8), 0)),  # noqa: NPY002
    "image": (
        lambda k: Image.fromarray(IMAGES[k]),
        lambda k: Image.fromarray(IMAGES[k]).rotate(random.choice([0, 90, 180, 270])),
    ),
    "number": (lambda k: float(k), lambda k: k + random.random()),
}


class FunctionDataset(TorchDataset):
    def __init__(self, item: Item, size: int = SIZE, label: Item = lambda k: k % 2) -> None:
        self.item, self.size, self.label, self.reads = item, size, label, 0

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        self.reads += 1
        return self.item(index), self.label(index)


def catch_warnings(read: Callable[[], Any]) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        read()
    return [str(each.message) for each in caught if issubclass(each.category, fedcm.RandomDataWarning)]


@pytest.mark.parametrize("kind", ITEMS)
def test_random_items_give_a_warning_and_others_do_not(kind: str) -> None:
    constant, changing = ITEMS[kind]
    assert catch_warnings(lambda: convert_to_dataset(FunctionDataset(constant), name="mine")) == []
    (message,) = catch_warnings(lambda: convert_to_dataset(FunctionDataset(changing), name="mine"))
    assert message.startswith("mine: the items are random")
    assert "was drawn once and is the same in every pass" in message
    assert "\n" not in message


def test_random_labels_give_a_warning() -> None:
    data = FunctionDataset(ITEMS["tensor"][0], label=lambda k: random.randrange(1000))
    assert len(catch_warnings(lambda: convert_to_dataset(data))) == 1


def test_random_items_of_several_clients_give_one_warning() -> None:
    constant, changing = ITEMS["tensor"]
    clients = [
        FunctionDataset(constant),
        (torch.zeros(3, 3, 8, 8), torch.zeros(3).long()),
        FunctionDataset(changing),
        FunctionDataset(changing),
    ]
    assert len(catch_warnings(lambda: convert_clients_to_dataset(clients))) == 1


def test_a_random_test_set_gives_its_own_warning() -> None:
    constant, changing = ITEMS["array"]
    (message,) = catch_warnings(
        lambda: convert_to_dataset((FunctionDataset(constant), FunctionDataset(changing)), name="mine")
    )
    assert message.startswith("mine, the test set: the items are random")
    assert "the same in every evaluation" in message
    on_demand = fedcm.ClientsOnDemand(
        population=3,
        client=lambda k: FunctionDataset(constant),
        size=SIZE,
        classes=2,
        test=FunctionDataset(changing),
        normalisation=Normalisation((0.5,), (0.5,)),
    )
    (message,) = catch_warnings(lambda: OnDemandData(on_demand, "made"))
    assert message.startswith("made, the test set: the items are random")


@pytest.mark.parametrize("own_generator", [True, False])
def test_the_first_value_of_each_random_item_is_used(own_generator: bool) -> None:
    """Even if all clients share one generator."""

    def clients() -> list[FunctionDataset]:
        generator = torch.Generator().manual_seed(7) if own_generator else None
        return [FunctionDataset(lambda k: torch.rand(4, generator=generator), 12) for _ in range(3)]

    torch.manual_seed(7)
    with pytest.warns(fedcm.RandomDataWarning):
        read = convert_clients_to_dataset(clients()).train.features
    torch.manual_seed(7)
    expected = [client[k][0] for client in clients() for k in range(12)]
    assert torch.equal(read, torch.stack(expected))


def test_probing_leaves_the_global_generators_alone() -> None:
    def draw() -> list[float]:
        return [torch.rand(()).item(), np.random.rand(), random.random()]  # noqa: NPY002

    def item(k: int) -> torch.Tensor:
        return torch.rand(3) + np.random.rand() + random.random()  # noqa: NPY002

    def seed() -> None:
        torch.manual_seed(1)
        np.random.seed(1)  # noqa: NPY002
        random.seed(1)

    seed()
    with pytest.warns(fedcm.RandomDataWarning):
        convert_to_dataset(FunctionDataset(item))
    after_reading = draw()
    seed()
    for k in range(SIZE):
        item(k)
    assert draw() == after_reading


def test_only_a_few_items_are_read_twice() -> None:
    data = FunctionDataset(ITEMS["number"][0], 1000)
    convert_to_dataset(data)
    assert 1000 < data.reads <= 1020


def test_a_dataset_that_can_be_read_only_once_gives_no_warning() -> None:
    unread = set(range(SIZE))

    def item(k: int) -> torch.Tensor:
        unread.remove(k)
        return torch.ones(3)

    assert catch_warnings(lambda: convert_to_dataset(FunctionDataset(item))) == []


def test_a_transform_in_a_subclass_of_a_tensor_dataset_is_used() -> None:
    class Doubled(TensorDataset):
        def __getitem__(self, index: int) -> tuple[torch.Tensor, ...]:
            x, y = super().__getitem__(index)
            return 2 * x, y

    data = convert_to_dataset(Doubled(torch.ones(4, 3), torch.arange(4)))
    assert torch.equal(data.train.features, torch.full((4, 3), 2.0))


def test_training_warns_at_the_line_that_called_it() -> None:
    clients = [FunctionDataset(lambda k: torch.rand(3), 6) for _ in range(2)]
    with pytest.warns(fedcm.RandomDataWarning) as caught:
        _, history = fedcm.train(nn.Linear(3, 2), clients, fedcm.FedAvg(), rounds=1)
    assert [warning.filename for warning in caught] == [__file__]
    assert len(history) == 1


RANDOM = """
import os
from pathlib import Path

import torch
from torch.utils.data import Dataset

class Augmented(Dataset):
    def __len__(self):
        return 60

    def __getitem__(self, index):
        return torch.randn(6), index % 4

def data():
    return Augmented()

def seeded_data():
    Path(f"read-by-{os.getpid()}").touch()
    torch.manual_seed(0)  # each worker draws the same
    return Augmented()
"""


@pytest.fixture
def augmented(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "augmented_items.py").write_text(RANDOM)
    return "augmented_items:data"


def test_the_command_line_prints_the_warning_in_one_line_on_stderr(
    fedcm: Callable[..., Answer], experiment: Callable[..., Path], augmented: str
) -> None:
    path = experiment(data={"source": augmented}, split={"kind": "iid", "clients": 3}, rounds=1)
    answer = fedcm("run", path, "--runs-dir", "runs", "--json")
    assert answer.code == 0, answer.err
    (line,) = [line for line in answer.err.splitlines() if "random" in line]
    assert line.startswith("fedcm: warning: augmented_items:data: the items are random")
    assert "random" not in answer.out


@pytest.mark.slow
@pytest.mark.parametrize("shared", [True, False])
def test_workers_do_not_repeat_the_warning(
    experiment: Callable[..., Path], augmented: str, tmp_path: Path, shared: bool
) -> None:
    """Neither if they share the data nor if each worker reads them."""
    experiment(data={"source": "augmented_items:seeded_data"}, split={"kind": "iid", "clients": 3}, rounds=1)
    words = make_command("run", "small.toml", "--runs-dir", tmp_path / "runs", "--workers", 2)
    if not shared:
        (tmp_path / "sitecustomize.py").write_text("import os\ndel os.memfd_create\n")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    environment = os.environ | {"PYTHONPATH": path}
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert len(list(tmp_path.glob("read-by-*"))) == (1 if shared else 2)
    assert done.stderr.count("the items are random") == 1
