"""Measuring: `phalanx-bench`."""

from __future__ import annotations

import sys


def main() -> None:
    """Runs `phalanx-bench` with the arguments of this process, and exits."""
    from ..api.cli.root import guarded
    from .round import bench

    sys.exit(guarded(bench, sys.argv[1:], "phalanx-bench"))
