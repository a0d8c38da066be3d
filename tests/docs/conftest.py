"""Make the modules that build the documentation importable."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "docs" / "generate"))
