"""Which CPU this is: another one adds in another order, so the last bits of a run are those of a kind of CPU."""

import platform
from pathlib import Path

import torch

_CPUINFO = Path("/proc/cpuinfo")


def describe_cpu(cpuinfo: Path = _CPUINFO) -> dict[str, str]:
    """The CPU's model, and the instructions that torch computes with on it."""
    return {"model": _model(cpuinfo), "capability": torch.backends.cpu.get_cpu_capability()}


def _model(cpuinfo: Path) -> str:
    """With family and number where there are such: a virtual machine's CPU often has half a name."""
    try:
        lines = cpuinfo.read_text(encoding="utf-8", errors="replace").split("\n\n")[0].splitlines()
    except OSError:
        lines = []
    said = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    name = said.get("model name") or platform.processor() or platform.machine() or "unknown"
    numbers = [f"{word} {said[key]}" for word, key in (("family", "cpu family"), ("model", "model")) if key in said]
    return ", ".join([name, *numbers])
