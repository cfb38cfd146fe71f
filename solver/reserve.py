"""What of a round's time is kept back for ending it, so that a deadline is not passed.

Between two looks at the guard a round does work that cannot be cut: the end of the greedy, writing the reasons left
open, and, when the search is over, the verifier, the packed snapshot and the commit. How long that surely takes is
reckoned from the size of the fleet and of the plan. The constants were measured on an EPYC core and are half as much
again; a slower or busier machine is told by the time that the round's first step takes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from math import isinf

from ..model.policy import Policy
from ..model.snapshot import Snapshot
from .books import Books
from .demand import candidates, victims
from .free_room import free_room
from .guard import Guard
from .order import order
from .plan import Plan

_FIRST_S, _FIRST_EACH_S = 0.01, 16e-6
"""What the first step of a round takes at most on the machine of the constants: of itself, and a host or job."""

_SLOWEST = 4.0
"""More than so many times slower nothing is taken to be: one stall at the beginning would leave no time to decide."""

_STEP_S = 0.01
"""Any step, of itself."""

_START_S = 0.0013
"""Ending a round for each start in its plan: judged, verified, written to the store."""


class Step(Enum):
    """A part of a round that cannot be cut; the value is what it takes at most [s], for each host and job."""

    END = 105e-6
    """Reasons left open, the verifier, packing and the commit, beside what these take for each start."""
    PLAN = 40e-6
    """A pass of the greedy ended: victims put back, goals reckoned."""
    DECODE = 50e-6
    """A solution made a plan and verified."""
    REDUCE = 120e-6
    """The round reduced to what could start where."""
    BOUNDS = 250e-6
    """The linear programs written and solved."""


@dataclass(frozen=True, slots=True)
class Kept:
    """A guard less `kept_s` seconds; `each_s` is what a step takes, by its value, `pace` how much slower things go."""

    guard: Guard
    objects: int
    pace: float
    kept_s: float = 0.0

    def remaining_s(self) -> float:
        """Seconds left beside what is kept back."""
        return self.guard.remaining_s() - self.kept_s

    def takes_s(self, step: Step) -> float:
        """Seconds in which the step is surely done."""
        return self.pace * (_STEP_S + self.objects * step.value)


def timed(guard: Guard, snapshot: Snapshot, policy: Policy) -> Guard:
    """The guard less what ending the round takes; as it is where there is no deadline.

    Does the first step of the round, which all others build upon, to see how long it takes here.
    """
    before_s = guard.remaining_s()
    if isinf(before_s):
        return guard
    candidates(snapshot)
    victims(snapshot, policy)
    order(snapshot, policy)
    free_room(snapshot, policy.objective)
    Books(snapshot, policy.reserved)
    objects = _size(snapshot)
    took_s = before_s - guard.remaining_s()
    pace = min(max(1.0, took_s / (_FIRST_S + _FIRST_EACH_S * objects)), _SLOWEST)
    return keeping(Kept(guard, objects, pace), Step.END)


def _size(snapshot: Snapshot) -> int:
    return len(snapshot.hosts) + len(snapshot.jobs)


def keeping(guard: Guard, *steps: Step) -> Guard:
    """The guard less what these steps take, which come after what it is for."""
    if not isinstance(guard, Kept):
        return guard
    more_s = sum(guard.takes_s(step) for step in steps)
    return replace(guard, kept_s=guard.kept_s + more_s)


def allows(guard: Guard, *steps: Step) -> bool:
    """Whether there is time for all of these steps."""
    return keeping(guard, *steps).remaining_s() > 0


def beside(guard: Guard, plan: Plan) -> Guard:
    """The guard less what the plan's own acts add to the end of the round."""
    if not isinstance(guard, Kept):
        return guard
    acts = len(plan.starts) + len(plan.preemptions) + len(plan.resizes)
    return replace(guard, kept_s=guard.kept_s + guard.pace * acts * _START_S)


def spare_s(guard: Guard, starts: int) -> float:
    """Seconds left for more, beside what so many starts add to the end of the round."""
    pace = guard.pace if isinstance(guard, Kept) else 0.0
    return guard.remaining_s() - pace * starts * _START_S
