"""Run pfl: its simulated backend on in-memory tensors, in one process or in several that add up their sums.

Its tensor dataset makes a client's batches once and repeats them in every epoch, which is its fastest option. Its
use_torch_compile would change nothing: torch compiles a module's forward, and pfl calls its loss.
"""

import os
import socket
import subprocess
import sys
import time

from adapter import parse_task, print_times

TASK = parse_task(sys.argv[1:])


def start_workers() -> None:
    """In rank 0, set the addresses and start the other workers; importing pfl then connects them."""
    if TASK.processes == 1 or "PFL_WORKER_RANK" in os.environ:
        return
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    os.environ["PFL_WORKER_ADDRESSES"] = ",".join(f"127.0.0.1:{port + rank}" for rank in range(TASK.processes))
    for rank in range(1, TASK.processes):
        subprocess.Popen([sys.executable, *sys.argv], env=os.environ | {"PFL_WORKER_RANK": str(rank)})
    os.environ["PFL_WORKER_RANK"] = "0"


start_workers()

import numpy as np  # noqa: E402
import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from pfl.aggregate.simulate import SimulatedBackend  # noqa: E402
from pfl.algorithm.base import NNAlgorithmParams  # noqa: E402
from pfl.algorithm.federated_averaging import FederatedAveraging  # noqa: E402
from pfl.callback.base import TrainingProcessCallback  # noqa: E402
from pfl.data.federated_dataset import FederatedDataset  # noqa: E402
from pfl.data.pytorch import PyTorchTensorDataset  # noqa: E402
from pfl.data.sampling import get_user_sampler  # noqa: E402
from pfl.hyperparam import NNTrainHyperParams  # noqa: E402
from pfl.metrics import Metrics, Weighted  # noqa: E402
from pfl.model.pytorch import PyTorchModel  # noqa: E402
from plain_models import build_plain_model  # noqa: E402


class Model(torch.nn.Module):
    """The model with the loss that pfl calls."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.inner = build_plain_model(name)

    def loss(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(self.inner(x), y)

    @torch.no_grad()
    def metrics(self, x: torch.Tensor, y: torch.Tensor) -> dict[str, Weighted]:
        return {"loss": Weighted(self.loss(x, y).item() * len(y), len(y))}  # only used in the first round


class RoundTimer(TrainingProcessCallback):
    """Records when each round starts and ends."""

    def __init__(self) -> None:
        self.moments: list[float] = []

    def on_train_begin(self, *, model: PyTorchModel) -> Metrics:
        self.moments.append(time.time())
        return Metrics()

    def after_central_iteration(
        self, aggregate_metrics: Metrics, model: PyTorchModel, *, central_iteration: int
    ) -> tuple[bool, Metrics]:
        self.moments.append(time.time())
        return False, Metrics()


def main() -> None:
    torch.set_num_threads(TASK.threads)
    np.random.seed(0)  # noqa: NPY002 pfl's samplers in all processes use this generator
    work, timer = TASK.work, RoundTimer()
    users = [PyTorchTensorDataset((torch.from_numpy(x), torch.from_numpy(y))) for x, y in TASK.clients]
    data = FederatedDataset(users.__getitem__, get_user_sampler("random", range(work.clients)))
    model = Model(TASK.name)
    FederatedAveraging().run(
        algorithm_params=NNAlgorithmParams(
            central_num_iterations=TASK.rounds,
            evaluation_frequency=10**6,
            train_cohort_size=work.cohort_size,
            val_cohort_size=0,
        ),
        backend=SimulatedBackend(training_data=data, val_data=None),
        model=PyTorchModel(model, torch.optim.SGD, torch.optim.SGD(model.parameters(), lr=1.0)),
        model_train_params=NNTrainHyperParams(
            local_num_epochs=work.epochs, local_learning_rate=work.lr, local_batch_size=work.batch
        ),
        callbacks=[timer],
        send_metrics_to_platform=False,
    )
    if os.environ.get("PFL_WORKER_RANK", "0") == "0":
        print_times(timer.moments)
    if torch.distributed.is_initialized():  # pfl leaves it open, and gloo then aborts some processes at their exit
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
