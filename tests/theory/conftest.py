"""Make the plain modules of this folder (random_problems, second_moments) importable in any import mode."""

import sys
from pathlib import Path

if (here := str(Path(__file__).parent)) not in sys.path:
    sys.path.insert(0, here)
