"""The greedy with preemption: what does not fit may start where running work of lower levels leaves for it."""

from __future__ import annotations

from ..model.policy import Policy
from ..model.snapshot import Snapshot
from .greedy import greedy
from .plan import Plan, assemble


def greedy_plan(snapshot: Snapshot, policy: Policy) -> Plan:
    """A plan that keeps every rule and is never worse, by the goals in order, than `greedy` alone."""
    return assemble(snapshot, policy, greedy(snapshot, policy), ())
