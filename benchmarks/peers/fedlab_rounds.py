"""Rounds of FedLab: its standalone pipeline in one process, or its server and so many serial trainers, a process each.

FedLab imports torchvision for its ready-made data sets, which this work does not touch; PyPI's builds of torchvision do
not load beside a CPU build of torch, so an empty module stands in for it.
"""

import logging
import multiprocessing
import random
import socket
import sys
import time
import types

from adapter import Asked, asked, tell

torchvision = types.ModuleType("torchvision")
torchvision.transforms = types.ModuleType("torchvision.transforms")
sys.modules |= {"torchvision": torchvision, "torchvision.transforms": torchvision.transforms}

import torch  # noqa: E402
from fedlab.contrib.algorithm.fedavg import FedAvgSerialClientTrainer, FedAvgServerHandler  # noqa: E402
from fedlab.contrib.dataset.basic_dataset import FedDataset  # noqa: E402
from fedlab.core.client.manager import PassiveClientManager  # noqa: E402
from fedlab.core.network import DistNetwork  # noqa: E402
from fedlab.core.server.manager import SynchronousServerManager  # noqa: E402
from fedlab.core.standalone import StandalonePipeline  # noqa: E402
from torch_client import Batches  # noqa: E402
from usual_models import usual_model  # noqa: E402


class Data(FedDataset):
    """The clients of one process, numbered from 0."""

    def __init__(self, work: Asked, share: range) -> None:
        super().__init__()
        self.clients = [work.clients[client] for client in share]

    def get_dataloader(self, id: int, batch_size: int, type: str = "train") -> Batches:
        return Batches(*self.clients[id], batch_size)


class Handler(FedAvgServerHandler):
    """The server, with a watch; it asks as many clients of each process, so that none waits for another."""

    def __init__(self, work: Asked) -> None:
        super().__init__(usual_model(work.name), work.rounds, work.work.cohort / work.work.clients)
        self.shares, self.moments = shares(work), []

    def sample_clients(self) -> list[int]:
        self.moments.append(time.time())
        each = self.num_clients_per_round // len(self.shares)
        return sorted(client for share in self.shares for client in random.sample(share, each))

    def global_update(self, buffer: list[list[torch.Tensor]]) -> None:
        super().global_update(buffer)
        self.ended = time.time()


class Pipeline(StandalonePipeline):
    def evaluate(self) -> None:
        """Nothing: rounds alone are timed."""


def shares(work: Asked) -> list[range]:
    each = work.work.clients // work.processes
    return [range(first, first + each) for first in range(0, work.work.clients, each)]


def trainer(work: Asked, share: range) -> FedAvgSerialClientTrainer:
    made = FedAvgSerialClientTrainer(usual_model(work.name), len(share))
    made.setup_dataset(Data(work, share))
    made.setup_optim(work.work.epochs, work.work.batch, work.work.lr)
    return made


def serve_clients(work: Asked, rank: int, port: int) -> None:
    torch.set_num_threads(work.threads)
    logging.getLogger().setLevel(logging.WARNING)
    network = DistNetwork(("127.0.0.1", port), work.processes + 1, rank)
    PassiveClientManager(network, trainer(work, shares(work)[rank - 1])).run()


def main() -> None:
    work = asked(sys.argv[1:])
    torch.set_num_threads(work.threads)
    handler = Handler(work)
    if work.processes == 1:
        Pipeline(handler, trainer(work, shares(work)[0])).main()
    else:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        context = multiprocessing.get_context("spawn")
        crew = [context.Process(target=serve_clients, args=(work, rank + 1, port)) for rank in range(work.processes)]
        for process in crew:
            process.start()
        SynchronousServerManager(DistNetwork(("127.0.0.1", port), work.processes + 1, 0), handler).run()
        for process in crew:
            process.join()
    tell([*handler.moments, handler.ended])


if __name__ == "__main__":
    main()
