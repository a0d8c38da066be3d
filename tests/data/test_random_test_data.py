"""With `fresh`, test data with random transforms are read from seeded generators: the same in every process."""

import pytest
import torch
from torch import Tensor
from torch.utils.data import Dataset

from fedcm.data.structures.tree import list_leaves
from fedcm.data.user_data import convert_to_dataset
from fedcm.system.user_warnings import RandomDataWarning


class Noisy(Dataset[tuple[Tensor, Tensor]]):
    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return torch.randn(3), torch.tensor(index % 2)


@pytest.mark.filterwarnings(f"ignore::{RandomDataWarning.__module__}.{RandomDataWarning.__qualname__}")
@pytest.mark.parametrize("value", [([Noisy(), Noisy()], Noisy()), (Noisy(), Noisy())], ids=["clients", "one set"])
def test_random_test_items_do_not_depend_on_the_process(value: object) -> None:
    read = []
    for seed in (1, 2):
        torch.manual_seed(seed)  # another state of the global generators, as in another process
        dataset = convert_to_dataset(value, fresh=True)
        assert dataset.test is not None
        read.append([*list_leaves(dataset.test.features), *list_leaves(dataset.train.features)])
    for one, other in zip(*read, strict=True):
        assert torch.equal(one, other)
