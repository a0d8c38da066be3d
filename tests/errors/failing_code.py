"""A user's module whose parts fail, and the check that an error names the failing line."""

from pathlib import Path

# the failing lines are marked by a comment; they fail inside the standard library or torch
MODULE = """
import json
import torch
import numpy as np
from torch import nn
from torch.utils.data import Dataset
import fedcm

def fail():
    json.loads("{")  # here

class Model(nn.Linear):
    def __init__(self): super().__init__(6, 4)
    def forward(self, x):
        return super().forward(x[:, :5])  # in the model

class Later(nn.Linear):
    def __init__(self, after):
        super().__init__(6, 4)
        self.calls, self.after = 0, after
    def forward(self, x):
        self.calls += 1
        if self.calls > self.after: fail()
        return super().forward(x)

class InEvaluation(nn.Linear):
    def __init__(self, above=0):
        super().__init__(6, 4)
        self.above = above
    def forward(self, x):
        if not self.training and len(x) > self.above: fail()
        return super().forward(x)

class Backward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x): return x.clone()
    @staticmethod
    def backward(ctx, g): fail()

class WithBackward(nn.Linear):
    def __init__(self): super().__init__(6, 4)
    def forward(self, x): return Backward.apply(super().forward(x))

def factory(): fail()

def data(): fail()

class Items(Dataset):
    def __len__(self): return 20
    def __getitem__(self, index):
        return np.ones(6) if index == 7 and fail() else (np.ones(6, np.float32), index % 4)

def items(): return Items()

def create(number):
    if number == 11: fail()
    return np.full((3, 6), number, np.float32), np.arange(3) % 4

def on_demand(): return fedcm.ClientsOnDemand(population=13, client=create, size=3, classes=4)

def last_fails(): return fedcm.ClientsOnDemand(population=12, client=create, size=3, classes=4)

def first(number): fail()

def first_fails(): return fedcm.ClientsOnDemand(population=12, client=first, size=3, classes=4)
"""
OWN_ALGORITHM = """
@dataclass(frozen=True)
class Own(Algorithm[ServerState, Broadcast, Nothing, Report]):
    where: str = "nowhere"
    def __post_init__(self): self.maybe("post_init", 7)
    def maybe(self, where, params):
        if where == self.where and (isinstance(params, int) or params.shape[-1] > 7): fail()
    def init_server(self, params):
        self.maybe("init_server", params)
        return ServerState(params)
    def init_client(self, params): return Nothing()
    def broadcast(self, server): return Broadcast(server.params)
    def direction(self, gradient, params, sent, kept):
        self.maybe("direction", params)
        slope = gradient(params)
        if slope.any(): self.maybe("moving", params)
        return slope
    def report(self, run, sent, kept): return Report(run.moved), kept
    def update(self, server, mean, round):
        self.maybe("update", server.params)
        return ServerState(server.params - mean.moved)
"""


def find_line(file: Path, mark: str) -> int:
    """Return the number of the first line that contains the mark."""
    return next(number for number, line in enumerate(file.read_text().splitlines(), 1) if mark in line)


def check_error(err: str, name: str, tmp_path: Path, mark: str = "# here") -> str:
    """Check that the last line of stderr is one sentence that names the marked line of the user's file; return it."""
    file = tmp_path / f"{name}.py"
    sentence = err.splitlines()[-1]
    assert sentence.startswith("fedcm: ")
    assert "Traceback" not in err
    assert f"({file}, line {find_line(file, mark)})" in sentence
    return sentence
