"""Rounds of pfl: its simulated backend on in-memory tensors, in one process or in several that reduce their sums.

Its tensor dataset cuts a client's batches once and gives the same ones every epoch: that is its fastest, so be it. Its
use_torch_compile would change nothing: torch compiles a module's forward, and pfl calls its loss.
"""

import os
import socket
import subprocess
import sys
import time

from adapter import asked, tell

ASKED = asked(sys.argv[1:])


def start_others() -> None:
    """The first process sets the addresses of all and starts the others, before pfl is imported: it joins them then."""
    if ASKED.processes == 1 or "PFL_WORKER_RANK" in os.environ:
        return
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    os.environ["PFL_WORKER_ADDRESSES"] = ",".join(f"127.0.0.1:{port + rank}" for rank in range(ASKED.processes))
    for rank in range(1, ASKED.processes):
        subprocess.Popen([sys.executable, *sys.argv], env=os.environ | {"PFL_WORKER_RANK": str(rank)})
    os.environ["PFL_WORKER_RANK"] = "0"


start_others()

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
from usual_models import usual_model  # noqa: E402


class Model(torch.nn.Module):
    def __init__(self, name: str) -> None:
        super().__init__()
        self.inner = usual_model(name)

    def loss(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(self.inner(x), y)

    @torch.no_grad()
    def metrics(self, x: torch.Tensor, y: torch.Tensor) -> dict[str, Weighted]:
        return {"loss": Weighted(self.loss(x, y).item() * len(y), len(y))}  # asked for in the first round alone


class Watch(TrainingProcessCallback):
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
    torch.set_num_threads(ASKED.threads)
    np.random.seed(0)  # noqa: NPY002 pfl's samplers of all processes draw from it alike
    work, watch = ASKED.work, Watch()
    users = [PyTorchTensorDataset((torch.from_numpy(x), torch.from_numpy(y))) for x, y in ASKED.clients]
    data = FederatedDataset(users.__getitem__, get_user_sampler("random", range(work.clients)))
    model = Model(ASKED.name)
    FederatedAveraging().run(
        algorithm_params=NNAlgorithmParams(
            central_num_iterations=ASKED.rounds,
            evaluation_frequency=10**6,
            train_cohort_size=work.cohort,
            val_cohort_size=0,
        ),
        backend=SimulatedBackend(training_data=data, val_data=None),
        model=PyTorchModel(model, torch.optim.SGD, torch.optim.SGD(model.parameters(), lr=1.0)),
        model_train_params=NNTrainHyperParams(
            local_num_epochs=work.epochs, local_learning_rate=work.lr, local_batch_size=work.batch
        ),
        callbacks=[watch],
        send_metrics_to_platform=False,
    )
    if os.environ.get("PFL_WORKER_RANK", "0") == "0":
        tell(watch.moments)


if __name__ == "__main__":
    main()
