"""Which device a process computes on. Of several CUDA devices the processes of a machine take one each, in turn."""

import os

import torch

from fedcm.errors import UserError
from fedcm.system.threads import count_physical_cores


def resolve_device(name: str) -> torch.device:
    """`name` is cpu, cuda or cuda:N."""
    if name == "cpu":
        return torch.device("cpu")
    there = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if not there:
        raise UserError(f'engine.device must be "cpu" here, because torch sees no CUDA device, got {name!r}')
    rank = int(os.environ.get("LOCAL_RANK") or os.environ.get("FEDCM_RANK") or 0)
    number = int(name.partition(":")[2] or rank % there)
    if number >= there:
        raise UserError(f"engine.device must be one of the {there} CUDA devices here, counted from 0, got {name!r}")
    return torch.device("cuda", number)


def count_default_workers(name: str) -> int:
    """How many processes keep this machine busy: one for each core, or for each CUDA device that may be used."""
    if name == "cpu":
        return count_physical_cores()
    return 1 if ":" in name else max(torch.cuda.device_count(), 1)
