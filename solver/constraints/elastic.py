"""Elastic: a gang starts at one size at most; a running gang stays, leaves, or returns, in one way.

That a return keeps the rules of a start, and who may use what it leaves, stands in the other families: a gang that may
return is one more gang there, whose reach is what it leaves itself.
"""

from __future__ import annotations

from collections import defaultdict

from ortools.sat.python.cp_model import CpModel, IntVar

from ...model.ids import JobId
from ..classes import Instance
from ..moved import moved_id
from ..variables import Variables


def add(model: CpModel, instance: Instance, variables: Variables) -> None:
    """Adds nothing where no gang is elastic and none may return.

    For every job with several sizes:            sum over sizes of started <= 1
    For every job that may return smaller:       left == evicted + sum over sizes of started
    For every one that may also be moved:        gone == left + left(moved)               [jobs]
    """
    sizes: dict[JobId, list[IntVar]] = defaultdict(list)
    for gang in instance.gangs:
        sizes[gang.record.id].append(variables.started(gang))
    for started in sizes.values():
        if len(started) > 1:
            model.add_at_most_one(started)
    smaller: dict[JobId, list[IntVar]] = defaultdict(list)
    for gang in instance.returns:
        if not gang.moved:
            smaller[gang.record.id].append(variables.started(gang))
    for job, started in smaller.items():
        model.add(variables.left(job) == sum(started) + variables.evicted(job))
    for job, ways in instance.ways.items():
        if len(ways) > 1:
            model.add(variables.gone(job) == variables.left(job) + variables.left(moved_id(job)))
