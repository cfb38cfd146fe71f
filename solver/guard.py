"""The one impurity of a round: a wall-clock guard from outside, which the solver asks and never makes itself."""

from __future__ import annotations

from typing import Protocol


class Guard(Protocol):
    """Tells how much wall time the round may still use."""

    def remaining_s(self) -> float:
        """Seconds left; 0 or less when the best decision so far must be returned."""


class Unlimited:
    """No deadline: the deterministic budget alone ends the round, and a replay gives the same decision."""

    def remaining_s(self) -> float:
        """For ever."""
        return float("inf")


UNLIMITED = Unlimited()
"""The guard of all who are given none."""
