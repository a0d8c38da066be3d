"""Settings by their paths, and in which of them runs differ."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from fedcm.reports.digest import Digest

# what says nothing about the method: names and places, chance, and how the machine was used
ASIDE = ("name", "seed", "cell.", "checkpoints.", "engine.", "evaluation.", "federation.")
_ROUNDING = ("federation.downlink", "federation.momentum", "federation.uplink")  # of what is sent; exact unless said


def flat(table: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """
    >>> flat({"client": {"lr": 0.1, "clip": None}, "rounds": 3})
    {'client.lr': '0.1', 'client.clip': 'null', 'rounds': '3'}
    """
    found: dict[str, str] = {}
    for key, value in table.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{prefix}{key}.")
        else:
            found[prefix + key] = (
                value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
            )
    return found


def of_method(digest: Digest) -> dict[str, str]:
    """The settings that make two runs replicates where they are equal, whatever their seeds."""
    return {
        path: text
        for path, text in flat(digest.experiment).items()
        if not path.startswith(ASIDE) or _rounds(path, text)
    }


def _rounds(path: str, text: str) -> bool:
    """Does a setting of a federation change the numbers? Runs outside of one have none of these."""
    return path in _ROUNDING and text != "exact"


def differing(settings: Iterable[Mapping[str, str]]) -> list[str]:
    """The paths whose texts are not the same everywhere, in their order.

    >>> differing([{"a": "1", "b": "2"}, {"a": "1", "b": "3"}, {"a": "1", "b": "2", "c": "4"}])
    ['b', 'c']
    """
    tables = list(settings)
    paths = dict.fromkeys(path for table in tables for path in table)
    return [path for path in paths if len({table.get(path) for table in tables}) > 1]


def told(path: str, text: str | None) -> str:
    """
    >>> told("algorithm.alpha", "0.1"), told("client.lr", None)
    ('alpha = 0.1', 'client.lr unset')
    """
    name = path.removeprefix("algorithm.")
    return f"{name} unset" if text is None else f"{name} = {text}"
