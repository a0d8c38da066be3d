"""Rounds of Flower: its simulation runtime on Ray, so many actors of so many threads.

The client's data and model stay in the actor from one client to the next; only the weights travel.
"""

import functools
import os
import sys
import time

os.environ |= {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0", "RAY_DEDUP_LOGS": "0"}

import torch
import torch.nn.functional as F
from adapter import Asked, asked, tell
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from torch_client import Batches
from usual_models import usual_model

CLIENT, SERVER = ClientApp(), ServerApp()


@functools.cache
def work() -> Asked:
    return asked(os.environ["PEER_WORK"].split("\n"))


@functools.cache
def model() -> torch.nn.Module:
    torch.set_num_threads(work().threads)
    return usual_model(work().name)


@CLIENT.train()
def train(message: Message, context: Context) -> Message:
    setting, net = work().work, model()
    net.load_state_dict(message.content["arrays"].to_torch_state_dict())
    optimiser = torch.optim.SGD(net.parameters(), lr=setting.lr)
    batches = Batches(*work().clients[context.node_config["partition-id"]], setting.batch)
    for _ in range(setting.epochs):
        for x, y in batches:
            optimiser.zero_grad()
            F.cross_entropy(net(x), y).backward()
            optimiser.step()
    told = {"arrays": ArrayRecord(net.state_dict()), "metrics": MetricRecord({"num-examples": setting.examples})}
    return Message(content=RecordDict(told), reply_to=message)


class Watched(FedAvg):
    moments: list[float] = []  # noqa: RUF012 one strategy a process

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> list[Message]:
        self.moments.append(time.time())
        return list(super().configure_train(server_round, arrays, config, grid))


@SERVER.main()
def serve(grid: Grid, context: Context) -> None:
    setting = work().work
    strategy = Watched(
        fraction_train=setting.cohort / setting.clients,
        fraction_evaluate=0.0,
        min_train_nodes=setting.cohort,
        min_available_nodes=setting.clients,
    )
    strategy.start(grid, ArrayRecord(usual_model(work().name).state_dict()), num_rounds=work().rounds)
    tell([*strategy.moments, time.time()])


def main() -> None:
    os.environ["PEER_WORK"] = "\n".join(sys.argv[1:])  # the actors inherit it
    cores = work().processes * work().threads
    run_simulation(
        SERVER,
        CLIENT,
        num_supernodes=work().work.clients,
        backend_config={
            "init_args": {"num_cpus": cores, "log_to_driver": False},
            "client_resources": {"num_cpus": work().threads, "num_gpus": 0.0},
        },
    )


if __name__ == "__main__":
    import flower_rounds  # under its own name, so that actors import the apps once instead of unpickling them each time

    flower_rounds.main()
