"""Run FedLab: its standalone pipeline in one process, or its server and several serial trainers in a process each.

FedLab imports torchvision for its data sets, which are not used here. PyPI's builds of torchvision do not load with a
CPU build of torch, so an empty module replaces it.
"""

import logging
import multiprocessing
import random
import socket
import sys
import time
import types

from adapter import PeerTask, parse_task, print_times

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
from plain_models import build_plain_model  # noqa: E402
from torch_client import Batches  # noqa: E402


class ClientData(FedDataset):
    """The clients of one process, numbered from 0."""

    def __init__(self, work: PeerTask, share: range) -> None:
        super().__init__()
        self.clients = [work.clients[client] for client in share]

    def get_dataloader(self, id: int, batch_size: int, type: str = "train") -> Batches:
        return Batches(*self.clients[id], batch_size)


class TimedHandler(FedAvgServerHandler):
    """The server with timing; it samples equally many clients per process, so that none waits for another."""

    def __init__(self, work: PeerTask) -> None:
        super().__init__(build_plain_model(work.name), work.rounds, work.work.cohort_size / work.work.clients)
        self.shares, self.moments = split_clients(work), []

    def sample_clients(self) -> list[int]:
        self.moments.append(time.time())
        each = self.num_clients_per_round // len(self.shares)
        return sorted(client for share in self.shares for client in random.sample(share, each))

    def global_update(self, buffer: list[list[torch.Tensor]]) -> None:
        super().global_update(buffer)
        self.ended = time.time()


class Pipeline(StandalonePipeline):
    """The standalone pipeline without evaluation."""

    def evaluate(self) -> None:
        """Do nothing; only rounds are timed."""


def split_clients(work: PeerTask) -> list[range]:
    each = work.work.clients // work.processes
    return [range(first, first + each) for first in range(0, work.work.clients, each)]


def build_trainer(work: PeerTask, share: range) -> FedAvgSerialClientTrainer:
    trainer = FedAvgSerialClientTrainer(build_plain_model(work.name), len(share))
    trainer.setup_dataset(ClientData(work, share))
    trainer.setup_optim(work.work.epochs, work.work.batch, work.work.lr)
    return trainer


def serve_clients(work: PeerTask, rank: int, port: int) -> None:
    torch.set_num_threads(work.threads)
    logging.getLogger().setLevel(logging.WARNING)
    network = DistNetwork(("127.0.0.1", port), work.processes + 1, rank)
    PassiveClientManager(network, build_trainer(work, split_clients(work)[rank - 1])).run()


def main() -> None:
    work = parse_task(sys.argv[1:])
    torch.set_num_threads(work.threads)
    handler = TimedHandler(work)
    if work.processes == 1:
        Pipeline(handler, build_trainer(work, split_clients(work)[0])).main()
    else:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        context = multiprocessing.get_context("spawn")
        workers = [context.Process(target=serve_clients, args=(work, rank + 1, port)) for rank in range(work.processes)]
        for process in workers:
            process.start()
        SynchronousServerManager(DistNetwork(("127.0.0.1", port), work.processes + 1, 0), handler).run()
        for process in workers:
            process.join()
    print_times([*handler.moments, handler.ended])


if __name__ == "__main__":
    main()
