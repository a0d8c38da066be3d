"""Lets the tests of this folder import its plain modules (made, second_moments) in any import mode."""

import sys
from pathlib import Path

if (here := str(Path(__file__).parent)) not in sys.path:
    sys.path.insert(0, here)
