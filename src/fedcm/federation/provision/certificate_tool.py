"""The engine's own tool for certificates and kits, as a process of its own; what it refuses is told in a sentence."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fedcm.errors import UserError

_SECONDS = 120  # it takes one


def reject_without_engine() -> None:
    if find_spec("nvflare") is None:
        raise UserError("a federation needs NVIDIA FLARE: install it with `pip install 'fedcm[federation]'`")


def run_tool(*words: str | Path, home: Path) -> None:
    """`home` is a private folder: there it keeps its records and temporary files, instead of in the user's own."""
    reject_without_engine()
    environment = {**os.environ, "HOME": str(home), "TMPDIR": str(home)}
    command = [sys.executable, "-P", "-m", "nvflare.cli", "--format", "json", *map(str, words)]
    try:
        done = subprocess.run(
            command,
            cwd=home,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=_SECONDS,
            umask=0o077,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise UserError(f"{_named(words)} did not end within {_SECONDS} s; try again") from None
    answer = _answer(done.stdout)
    if done.returncode != 0 or answer.get("status") != "ok":
        raise UserError(f"{_named(words)} refused: {_reason(answer) or _last_line(done.stderr) or done.returncode}")


def _named(words: tuple[str | Path, ...]) -> str:
    return f"the engine's certificate tool ({' '.join(str(word) for word in words[:2] if isinstance(word, str))})"


def _answer(output: str) -> dict[str, Any]:
    for line in reversed(output.splitlines()):
        try:
            answer = json.loads(line)
        except ValueError:
            continue
        if isinstance(answer, dict):
            return answer
    return {}


def _reason(answer: dict[str, Any]) -> str:
    said = [str(answer.get(key) or "").strip().rstrip(".") for key in ("message", "hint")]
    return "; ".join(part for part in said if part)


def _last_line(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return lines[-1] if lines else ""
