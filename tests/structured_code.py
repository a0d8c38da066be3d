"""A user's module for tests: sequences of unequal lengths by name, a model and functions, written to a folder."""

from pathlib import Path

CODE = """
import torch
from torch import nn
from torch.utils.data import Dataset


def make_client(number, size=9):
    draw = torch.Generator().manual_seed(number)
    lengths = [1 + (number + 2 * k) % 4 for k in range(size)]
    ids = [torch.randint(1, 9, (length,), generator=draw) for length in lengths]
    return {"extra": torch.randn(size, 2, generator=draw), "ids": ids, "labels": [one % 3 for one in ids]}


def make_a():
    return make_client(0)


def make_b():
    return make_client(1, 6)


def make_c():
    return make_client(2, 11)


def make_test():
    return make_client(3, 20)


def make_all():
    return [make_a(), make_b(), make_c()], make_test()


class Noisy(Dataset):
    def __init__(self, number):
        self.whole = make_client(number)

    def __len__(self):
        return len(self.whole["ids"])

    def __getitem__(self, index):
        item = {key: value[index] for key, value in self.whole.items()}
        return item | {"extra": item["extra"] + torch.randn(2)}


def make_noisy():
    return [Noisy(number) for number in range(4)]


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.mix, self.head = nn.Embedding(9, 4), nn.Linear(2, 4), nn.Linear(4, 3)

    def forward(self, ids, extra):
        return self.head(self.embedding(ids) + self.mix(extra)[:, None]).transpose(1, 2)


def make_model():
    return Tagger()


def sharpen(outputs, labels):
    return nn.functional.cross_entropy(2 * outputs, labels)


def add_noise(batch, generator):
    extra = batch.features["extra"]
    return batch.features | {"extra": extra + torch.randn(extra.shape, generator=generator)}, batch.labels


def pad_to_five(examples):
    ids = torch.zeros(len(examples), 5, dtype=torch.int64)
    labels = torch.full((len(examples), 5), -100)
    for row, one in enumerate(examples):
        ids[row, : len(one["ids"])], labels[row, : len(one["labels"])] = one["ids"], one["labels"]
    return {"ids": ids, "extra": torch.stack([one["extra"] for one in examples]), "labels": labels}
"""


def write_structured_code(folder: Path, name: str) -> None:
    """Write the module under a name that no other test uses, because Python imports a name once."""
    (folder / f"{name}.py").write_text(CODE)
