"""Comparisons for the API and the page, one or two at a time."""

from __future__ import annotations

import threading

from ..model.change import Change
from ..model.policy import Policy
from ..model.snapshot import Snapshot
from ..solver.walltimes import Learned
from ..solver.whatif import Comparison, what_if
from .engine import decide
from .problems import Problem

PATIENCE_S = 30.0
# More at once would only slow each other, and the rest of the API, down.
_SEATS = threading.BoundedSemaphore(2)


def compare(snapshot: Snapshot, change: Change, policy: Policy, learned: Learned | None = None) -> Comparison:
    """As `what_if`. Raises Problem 503 while others have all seats."""
    if not _SEATS.acquire(timeout=PATIENCE_S):
        raise Problem(503, "other comparisons are being made; try again later", headers={"Retry-After": "10"})
    try:
        return what_if(snapshot, change, policy, decide=decide, learned=learned)
    finally:
        _SEATS.release()
