"""Settings by their paths, and the settings in which runs differ."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from fedcm.reports.digest import Digest
from fedcm.system.formatting import flatten_table

# names, the seed and how the machine was used: they do not belong to the method
_OTHER_SETTINGS = ("name", "seed", "cell.", "checkpoints.", "engine.", "evaluation.", "federation.")
_ROUNDING = ("federation.downlink", "federation.momentum", "federation.uplink")  # "exact" by default


def format_settings(table: Mapping[str, Any]) -> dict[str, str]:
    """Return the settings of a nested table as texts by dotted path.

    >>> format_settings({"client": {"lr": 0.1, "clip": None}, "rounds": 3})
    {'client.lr': '0.1', 'client.clip': 'null', 'rounds': '3'}
    """
    return {
        path: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
        for path, value in flatten_table(table).items()
    }


def list_method_settings(digest: Digest) -> dict[str, str]:
    """Return the settings that make two runs replicates if they are equal, whatever the seeds."""
    return {
        path: text
        for path, text in format_settings(digest.experiment).items()
        if not path.startswith(_OTHER_SETTINGS) or _changes_numbers(path, text)
    }


def _changes_numbers(path: str, text: str) -> bool:
    """Return whether a setting of a federation changes the results of its runs."""
    return path in _ROUNDING and text != "exact"


def list_differing_settings(settings: Iterable[Mapping[str, str]]) -> list[str]:
    """Return the paths whose texts are not the same in all tables, in their order.

    >>> list_differing_settings([{"a": "1", "b": "2"}, {"a": "1", "b": "3"}, {"a": "1", "b": "2", "c": "4"}])
    ['b', 'c']
    """
    tables = list(settings)
    paths = dict.fromkeys(path for table in tables for path in table)
    return [path for path in paths if len({table.get(path) for table in tables}) > 1]


def format_setting(path: str, text: str | None) -> str:
    """Format a setting for a label.

    >>> format_setting("algorithm.alpha", "0.1"), format_setting("client.lr", None)
    ('alpha = 0.1', 'client.lr unset')
    """
    name = path.removeprefix("algorithm.")
    return f"{name} unset" if text is None else f"{name} = {text}"
