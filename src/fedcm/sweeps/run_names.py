"""The names of runs, which are those of their folders: experiment, variants and swept settings, algorithm, seed.

A swept setting stands there with its path and its value: `demo-algorithm.alpha=0.03-fedcm-seed1`. The numbers of a list
are joined by `+`, and one alone is followed by it: `64+32`, `128+`. What does not fit into a folder's name is left out,
and a few digits of its checksum stand for it: no two values, and no two settings, give the same name.
"""

import hashlib
import re
from collections.abc import Iterable
from typing import Any

from fedcm.config.toml_values import write_value

_LONGEST = 180  # bytes; a name may have 200, and some are given a number
_VALUE = 40  # letters of one value


def run_name(experiment: str, parts: Iterable[str], algorithm: str, seed: int) -> str:
    """
    >>> run_name("Demo", [variant_part("II"), swept_part("algorithm.option", "II")], "my_module:Mine", 1)
    'demo-ii-algorithm.option=II-my_module-mine-seed1'
    """
    name = "-".join([variant_part(experiment), *parts, variant_part(algorithm), f"seed{seed}"]).strip("-.")
    if len(name.encode()) <= _LONGEST:
        return name
    tail = f"-{_checksum(name)}-seed{seed}"
    return name.encode()[: _LONGEST - len(tail)].decode(errors="ignore") + tail


def sweep_title(experiment: str, over: Iterable[str]) -> str:
    """What a sweep's picture and report are called.

    >>> sweep_title("demo", ["algorithm.alpha=0.03,0.1", "client.lr=0.1,0.3"])
    'demo-sweep-algorithm.alpha-client.lr'
    """
    title = "-".join([plain(experiment), "sweep", *(plain(one.partition("=")[0].strip()) for one in over)])
    return title if len(title) <= _LONGEST else f"{title[: _LONGEST - 9]}-{_checksum(title)}"


def variant_part(name: str) -> str:
    return plain(name.lower())  # some capitals have small letters that are two


def swept_part(path: str, value: Any) -> str:
    """
    >>> swept_part("client.lr", 0.1), swept_part("model.hidden", [64, 32]), swept_part("data.source", "cifar10")
    ('client.lr=0.1', 'model.hidden=64+32', 'data.source=cifar10')
    """
    text = _numbers(value) or write_value(value)
    taken = isinstance(value, str) and ("+" in text or "=" in text)  # as another value or a second setting would look
    if re.fullmatch(r"[\w.]+", path) and re.fullmatch(r"[\w.+=-]+", text) and len(text) <= _VALUE and not taken:
        return f"{path}={text}"
    readable = plain(text.rsplit("/", 1)[-1])[:_VALUE].strip("-.")
    return f"{plain(path)}={readable}-{_checksum(f'{path}={write_value(value)}')}"


def plain(text: str) -> str:
    """With nothing but what a folder's name may have."""
    return re.sub(r"[^\w.+=-]+", "-", text)


def _numbers(value: Any) -> str:
    """A list of numbers, unless one of them has a `+` of its own (1e+20)."""
    if not isinstance(value, list | tuple) or not all(isinstance(one, int | float) for one in value):
        return ""
    texts = [write_value(one) for one in value]
    if any("+" in text for text in texts):
        return ""
    return f"{texts[0]}+" if len(texts) == 1 else "+".join(texts)


def _checksum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]
