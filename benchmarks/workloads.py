"""The workloads of the benchmarks: clients, data and rounds."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Workload:
    """A model, the clients' data and the work of a round."""

    model: str
    shape: tuple[int, ...]
    clients: int
    examples: int  # per client
    cohort_size: int
    epochs: int
    batch: int
    stack: int = 1
    target: float = 1.0  # the largest accepted time relative to the bare loop
    lr: float = 0.01


IMAGES = {"shape": (3, 32, 32), "clients": 500, "examples": 100, "cohort_size": 10, "epochs": 5, "batch": 50}
WORKLOADS = {
    "lenet": Workload("lenet", **IMAGES, target=0.70),
    "cnn": Workload("cnn", **IMAGES, target=0.80),
    "resnet8": Workload("resnet8", **IMAGES, target=0.80),
    "linear": Workload("linear", (784,), 1000, 50, 100, 1, 10, stack=50, target=0.25),
}
