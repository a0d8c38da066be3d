"""The works that the benchmarks measure: how many clients with what data, and what a round of them is."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Work:
    model: str
    shape: tuple[int, ...]
    clients: int
    examples: int  # a client
    cohort: int
    epochs: int
    batch: int
    stack: int = 1
    target: float = 1.0  # time against the bare loop, at most
    lr: float = 0.01


IMAGES = {"shape": (3, 32, 32), "clients": 500, "examples": 100, "cohort": 10, "epochs": 5, "batch": 50}
WORKS = {
    "lenet": Work("lenet", **IMAGES, target=0.70),
    "cnn": Work("cnn", **IMAGES, target=0.80),
    "resnet8": Work("resnet8", **IMAGES, target=0.80),
    "linear": Work("linear", (784,), 1000, 50, 100, 1, 10, stack=50, target=0.25),
}
