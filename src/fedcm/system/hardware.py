"""The hardware that fedcm computes on: CPU cores, CUDA devices and the number of threads.

A worker computes on one thread, because sums inside torch depend on the number of threads. To use all cores, start one
worker per core.
"""

import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from fedcm.errors import UserError

_CPUINFO = Path("/proc/cpuinfo")
_BFLOAT16_FLAGS = {"avx512_bf16", "amx_bf16", "bf16"}  # of x86 and ARM


@contextmanager
def use_one_thread() -> Iterator[None]:
    """Run torch on one thread inside the block, and restore the number of threads afterwards."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def count_physical_cores() -> int:
    """Return the number of physical cores that this process may use; hyper-threads of one core count once."""
    allowed = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))
    siblings = set()
    for cpu in allowed:
        try:
            siblings.add(Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list").read_text())
        except OSError:
            return len(allowed)
    return max(len(siblings), 1)


def count_default_workers(device: str) -> int:
    """Return how many workers keep this machine busy: one per physical core, or one per usable CUDA device."""
    if device == "cpu":
        return count_physical_cores()
    return 1 if ":" in device else max(torch.cuda.device_count(), 1)


def resolve_device(name: str) -> torch.device:
    """Return the torch device for `engine.device`; with "cuda", the workers of a machine take the devices in turn.

    Args:
        name: "cpu", "cuda" or "cuda:N".

    Raises:
        UserError: If torch sees no such device.
    """
    if name == "cpu":
        return torch.device("cpu")
    available = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if not available:
        raise UserError(f'engine.device must be "cpu" here, because torch sees no CUDA device, got {name!r}')
    rank = int(os.environ.get("LOCAL_RANK") or os.environ.get("FEDCM_RANK") or 0)
    index = int(name.partition(":")[2] or rank % available)
    if index >= available:
        raise UserError(f"engine.device must be one of the {available} CUDA devices here, counted from 0, got {name!r}")
    return torch.device("cuda", index)


def describe_cpu(cpuinfo: Path = _CPUINFO) -> dict[str, str]:
    """Return the CPU's model and the instruction set that torch uses on it.

    A run records both, because another kind of CPU adds in another order and gives other last bits.
    """
    return {"model": _read_cpu_model(cpuinfo), "capability": torch.backends.cpu.get_cpu_capability()}


def has_bfloat16_instructions(cpuinfo: Path = _CPUINFO) -> bool | None:
    """Return whether the CPU multiplies in bfloat16 (AVX512-BF16, AMX, or ARM's BF16); None if that is unknown."""
    fields = _read_cpu_fields(cpuinfo)
    flags = fields.get("flags", fields.get("Features"))
    return None if flags is None else not _BFLOAT16_FLAGS.isdisjoint(flags.split())


def _read_cpu_fields(cpuinfo: Path) -> dict[str, str]:
    """Return what the system says about the first CPU; nothing if it has no such file."""
    try:
        lines = cpuinfo.read_text(encoding="utf-8", errors="replace").split("\n\n")[0].splitlines()
    except OSError:
        lines = []
    return {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}


def _read_cpu_model(cpuinfo: Path) -> str:
    """Return the model's name with its family and model number, because virtual machines often shorten the name."""
    fields = _read_cpu_fields(cpuinfo)
    name = fields.get("model name") or platform.processor() or platform.machine() or "unknown"
    numbers = [f"{word} {fields[key]}" for word, key in (("family", "cpu family"), ("model", "model")) if key in fields]
    return ", ".join([name, *numbers])
