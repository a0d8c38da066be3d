"""Texts that another party wrote, made fit for a log, an audit log and a terminal."""

import unicodedata
from typing import Any

_CONTROL = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}  # categories of characters that change lines or directions


def clean_text(text: Any, limit: int = 500) -> str:
    """Return a text as one short line without control characters, so that it cannot look like several lines.

    >>> clean_text("first" + chr(10) + "second" + chr(27) + "[2J"), clean_text("ééé", limit=2)
    ('first second?[2J', 'éé…')
    """
    start = str(text)[: limit + 1]
    shown = "".join(" " if c in "\n\r\t" else "?" if unicodedata.category(c) in _CONTROL else c for c in start)
    return shown if len(shown) <= limit else shown[:limit] + "…"
