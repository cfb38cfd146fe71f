"""Tests of the baselines share the builders of small_worlds.py and the random worlds of the property tests."""

from __future__ import annotations

import sys
from pathlib import Path

TESTS = Path(__file__).parents[3]
sys.path.insert(0, str(TESTS))
sys.path.insert(0, str(TESTS / "property"))
