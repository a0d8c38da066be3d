"""Run the engine's command-line tool for certificates and kits, and turn its failures into one sentence."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from fedcm.errors import UserError
from fedcm.federation.engine import require_engine

_TIMEOUT = 120  # seconds; the tool usually needs one


def run_tool(*arguments: str | Path, home: Path) -> None:
    """Run the tool.

    Args:
        arguments: The command and its options.
        home: A private folder, where the tool keeps its records and temporary files instead of in the user's own.

    Raises:
        UserError: If the tool failed or took too long, or the engine is not installed.
    """
    require_engine()
    environment = {**os.environ, "HOME": str(home), "TMPDIR": str(home)}
    command = [sys.executable, "-P", "-m", "nvflare.cli", "--format", "json", *map(str, arguments)]
    try:
        done = subprocess.run(
            command,
            cwd=home,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=_TIMEOUT,
            umask=0o077,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise UserError(f"{_describe_command(arguments)} did not end within {_TIMEOUT} s; try again") from None
    answer = _parse_answer(done.stdout)
    if done.returncode != 0 or answer.get("status") != "ok":
        reason = _get_reason(answer) or _get_last_line(done.stderr) or done.returncode
        raise UserError(f"{_describe_command(arguments)} failed: {reason}")


def _describe_command(arguments: tuple[str | Path, ...]) -> str:
    names = " ".join(argument for argument in arguments[:2] if isinstance(argument, str))
    return f"the engine's certificate tool ({names})"


def _parse_answer(output: str) -> dict[str, Any]:
    for line in reversed(output.splitlines()):
        try:
            answer = json.loads(line)
        except ValueError:
            continue
        if isinstance(answer, dict):
            return answer
    return {}


def _get_reason(answer: dict[str, Any]) -> str:
    parts = [str(answer.get(key) or "").strip().rstrip(".") for key in ("message", "hint")]
    return "; ".join(part for part in parts if part)


def _get_last_line(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return lines[-1] if lines else ""
