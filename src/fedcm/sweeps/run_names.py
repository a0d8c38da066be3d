"""The names of runs and of their folders: experiment, variants and swept settings, algorithm, seed.

A swept setting has its path and its value in the name: `demo-algorithm.alpha=0.03-fedcm-seed1`. The numbers of a list
are joined by `+`, and a single one is followed by it: `64+32`, `128+`. Text that a folder name cannot hold is replaced
by a few digits of its checksum, so that two values or two settings never give the same name.
"""

import hashlib
import re
from collections.abc import Iterable
from typing import Any

from fedcm.config.toml_values import write_value
from fedcm.system.formatting import slugify

_LONGEST = 180  # bytes; a name may have 200, and a number may be added
_VALUE = 40  # letters of one value


def make_run_name(experiment: str, parts: Iterable[str], algorithm: str, seed: int) -> str:
    """Return the name of a run.

    >>> parts = [make_variant_part("II"), make_setting_part("algorithm.option", "II")]
    >>> make_run_name("Demo", parts, "my_module:Mine", 1)
    'demo-ii-algorithm.option=II-my_module-mine-seed1'
    """
    name = "-".join([make_variant_part(experiment), *parts, make_variant_part(algorithm), f"seed{seed}"]).strip("-.")
    if len(name.encode()) <= _LONGEST:
        return name
    tail = f"-{_shorten_hash(name)}-seed{seed}"
    return name.encode()[: _LONGEST - len(tail)].decode(errors="ignore") + tail


def make_sweep_title(experiment: str, over: Iterable[str]) -> str:
    """Return the name of a sweep's picture and report.

    >>> make_sweep_title("demo", ["algorithm.alpha=0.03,0.1", "client.lr=0.1,0.3"])
    'demo-sweep-algorithm.alpha-client.lr'
    """
    title = "-".join([slugify(experiment), "sweep", *(slugify(one.partition("=")[0].strip()) for one in over)])
    return title if len(title) <= _LONGEST else f"{title[: _LONGEST - 9]}-{_shorten_hash(title)}"


def make_selection_title(title: str, part: str) -> str:
    """Return the title of a report about some runs of a sweep, so that it does not replace the report about all.

    Args:
        title: The title of the whole sweep.
        part: The part of their names by which the runs were selected; empty if all were.

    >>> make_selection_title("demo", "ii FedCM"), make_selection_title("demo", "")
    ('demo-ii-fedcm', 'demo')
    """
    return slugify(f"{title}-{part}").lower() if part else title


def make_variant_part(name: str) -> str:
    """Return the part of a run's name for a variant of an axis."""
    return slugify(name.lower())


def make_setting_part(path: str, value: Any) -> str:
    """Return the part of a run's name for a swept setting.

    >>> make_setting_part("client.lr", 0.1), make_setting_part("model.hidden", [64, 32])
    ('client.lr=0.1', 'model.hidden=64+32')
    >>> make_setting_part("data.source", "cifar10")
    'data.source=cifar10'
    """
    text = _join_numbers(value) or write_value(value)
    ambiguous = isinstance(value, str) and ("+" in text or "=" in text)  # looks like a list or a second setting
    if re.fullmatch(r"[\w.]+", path) and re.fullmatch(r"[\w.+=-]+", text) and len(text) <= _VALUE and not ambiguous:
        return f"{path}={text}"
    readable = slugify(text.rsplit("/", 1)[-1])[:_VALUE].strip("-.")
    return f"{slugify(path)}={readable}-{_shorten_hash(f'{path}={write_value(value)}')}"


def _join_numbers(value: Any) -> str:
    """Join a list of numbers by `+`; empty if one of them contains a `+` (1e+20)."""
    if not isinstance(value, list | tuple) or not all(isinstance(one, int | float) for one in value):
        return ""
    texts = [write_value(one) for one in value]
    if any("+" in text for text in texts):
        return ""
    return f"{texts[0]}+" if len(texts) == 1 else "+".join(texts)


def _shorten_hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]
