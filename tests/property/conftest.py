"""Property tests share the generators of strategies.py; in this import mode no test folder is on the path by itself."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
