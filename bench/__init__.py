"""Measuring: `phalanx-bench`."""

from __future__ import annotations

import sys


def main() -> None:
    """Runs `phalanx-bench` with the arguments of this process, and exits."""
    from ..api.cli.root import guarded
    from .dataplane import dataplane_command
    from .deadline import deadline_command
    from .families import families_command
    from .growth import growth_command
    from .parts import parts_command
    from .round import bench
    from .saturate import saturate_command
    from .simulate import simulate_command
    from .standard import standard_command
    from .why import why_command

    commands = (
        *(dataplane_command, deadline_command, families_command, growth_command),
        *(parts_command, simulate_command, saturate_command, standard_command, why_command),
    )
    for command in commands:
        bench.add_command(command)
    sys.exit(guarded(bench, sys.argv[1:], "phalanx-bench"))
