"""Run Flower: its simulation runtime on Ray, with the given number of actors and threads per actor.

Data and model stay in the actor from one client to the next; only the weights are sent.
"""

import functools
import os
import sys
import time

os.environ |= {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0", "RAY_DEDUP_LOGS": "0"}

import torch
import torch.nn.functional as F
from adapter import PeerTask, parse_task, print_times
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from plain_models import build_plain_model
from torch_client import Batches

CLIENT, SERVER = ClientApp(), ServerApp()


@functools.cache
def get_task() -> PeerTask:
    return parse_task(os.environ["PEER_WORK"].split("\n"))


@functools.cache
def get_model() -> torch.nn.Module:
    torch.set_num_threads(get_task().threads)
    return build_plain_model(get_task().name)


@CLIENT.train()
def train(message: Message, context: Context) -> Message:
    setting, net = get_task().work, get_model()
    net.load_state_dict(message.content["arrays"].to_torch_state_dict())
    optimiser = torch.optim.SGD(net.parameters(), lr=setting.lr)
    batches = Batches(*get_task().clients[context.node_config["partition-id"]], setting.batch)
    for _ in range(setting.epochs):
        for x, y in batches:
            optimiser.zero_grad()
            F.cross_entropy(net(x), y).backward()
            optimiser.step()
    content = {"arrays": ArrayRecord(net.state_dict()), "metrics": MetricRecord({"num-examples": setting.examples})}
    return Message(content=RecordDict(content), reply_to=message)


class TimedFedAvg(FedAvg):
    """FedAvg that records when each round starts."""

    moments: list[float] = []  # noqa: RUF012 one strategy per process

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> list[Message]:
        self.moments.append(time.time())
        return list(super().configure_train(server_round, arrays, config, grid))


@SERVER.main()
def serve(grid: Grid, context: Context) -> None:
    setting = get_task().work
    strategy = TimedFedAvg(
        fraction_train=setting.cohort_size / setting.clients,
        fraction_evaluate=0.0,
        min_train_nodes=setting.cohort_size,
        min_available_nodes=setting.clients,
    )
    strategy.start(grid, ArrayRecord(build_plain_model(get_task().name).state_dict()), num_rounds=get_task().rounds)
    print_times([*strategy.moments, time.time()])


def main() -> None:
    os.environ["PEER_WORK"] = "\n".join(sys.argv[1:])  # the actors inherit it
    cores = get_task().processes * get_task().threads
    run_simulation(
        SERVER,
        CLIENT,
        num_supernodes=get_task().work.clients,
        backend_config={
            "init_args": {"num_cpus": cores, "log_to_driver": False},
            "client_resources": {"num_cpus": get_task().threads, "num_gpus": 0.0},
        },
    )


if __name__ == "__main__":
    import flower_rounds  # so that actors import the apps once instead of unpickling them every time

    flower_rounds.main()
