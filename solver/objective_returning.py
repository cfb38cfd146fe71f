"""What returns add to the goals as integer terms: GPUs given up, losses, and places left (docs/rounds.md)."""

from __future__ import annotations

from ortools.sat.python.cp_model import IntVar

from .order import value_milli
from .returning import return_loss
from .spread_now import spread_now
from .variables import Variables

Terms = list[tuple[int, IntVar]]


def given_up(level: int, variables: Variables) -> Terms:
    """- milli-GPU that jobs of the level inside a guarantee give up when they return smaller."""
    inside = variables.instance.rights.inside
    return [
        (gang.record.job.gpu_milli - gang.back.job.gpu_milli, variables.started(gang))
        for gang in variables.instance.returns
        if gang.back is not None and gang.record.level == level and gang.record.id in inside and not gang.moved
    ]


def shrinks(level: int, variables: Variables) -> Terms:
    """What jobs of the level cost that return smaller: the GPUs given up over the horizon, and their losses."""
    policy, terms = variables.instance.policy, Terms()
    for gang in variables.instance.returns:
        if gang.back is not None and gang.record.level == level and not gang.moved:
            given = value_milli(gang.back, policy) - value_milli(gang.record, policy)
            lost = return_loss(gang.back, variables.instance.snapshot, policy)
            terms.append((-(policy.objective.horizon_s * given + lost), variables.started(gang)))
    return terms


def moves(variables: Variables) -> Terms:
    """What gangs lose that are moved."""
    instance = variables.instance
    return [
        (-return_loss(gang.back, instance.snapshot, instance.policy), variables.started(gang))
        for gang in instance.returns
        if gang.back is not None and gang.moved
    ]


def together(variables: Variables) -> Terms:
    """What gangs that return pay no longer for the domains and the pipelines that they spread over now."""
    instance = variables.instance
    found: Terms = []
    for gang in instance.returns:
        paid = spread_now(gang.back, instance.snapshot, instance.policy) if gang.back is not None else 0
        if paid:
            found.append((paid, variables.started(gang)))
    return found
