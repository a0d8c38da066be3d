"""The pinned versions can be installed on every Python that the project supports."""

import re
import tomllib
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path

from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).parents[1]


def test_pinned_versions_accept_the_oldest_supported_python() -> None:
    """A first release, such as 3.11.0, is the oldest; a pin that needs 3.11.5 fails on Debian's 3.11.2."""
    required = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"]
    oldest = f"{required.removeprefix('>=')}.0"
    pins = re.findall(r"^([\w.-]+)==", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    needed = {}
    for name in pins:
        try:
            needed[name] = str(metadata(name).json.get("requires_python", ""))
        except PackageNotFoundError:  # of an extra that is not installed here
            continue
    assert len(needed) > len(pins) / 2
    assert [name for name, python in needed.items() if not SpecifierSet(python).contains(oldest)] == []
