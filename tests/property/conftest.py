"""Property tests share strategies.py and small_worlds.py; in this import mode no test folder is on the path by itself."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
