"""How long Ray and the hosts may take before the executor draws a conclusion."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Waits:
    """All in seconds.

    `reserve_s` for a group, `answer_s` for an answer, `launch_s` for the runners of a gang to come up. After `silent_s`
    without an answer a runner's machine is asked instead. `settle_s` is how long Ray's books may differ from ours.
    `overdue_s` beyond its grace, ranks that are still there are killed by force.
    """

    reserve_s: float = 5.0
    answer_s: float = 3.0
    launch_s: float = 60.0
    silent_s: float = 60.0
    settle_s: float = 3.0
    overdue_s: float = 30.0
