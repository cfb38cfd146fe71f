"""Tests of the solver share the builders of small_worlds.py; no test folder is on the path by itself."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
