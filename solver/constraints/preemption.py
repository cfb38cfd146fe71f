"""Preemption: nobody leaves unless a gang starts that may evict it.

Who may leave, and for whom, is static (`demand.victims`, `access`); who may use what it frees stands in the rows of
capacity, quota and affinity. That no victim is needless follows from the goals, for each victim costs; this family only
spares the search the victims of nobody.
"""

from __future__ import annotations

from collections import defaultdict

from ortools.sat.python.cp_model import CpModel, IntVar, LinearExpr

from ..access import Reach
from ..classes import Instance
from ..variables import Variables

_MANY = 16
"""Gangs of one reach from which on their sum stands in a row of its own, not in the row of every victim."""


def add(model: CpModel, instance: Instance, variables: Variables) -> None:
    """evicted(v) <= sum of started(g), or of inside(g), over the gangs g that may evict v so.   [gangs]"""
    starts: dict[Reach, list[IntVar]] = defaultdict(list)
    claims: dict[tuple[Reach, Reach], list[IntVar]] = defaultdict(list)
    for gang in instance.gangs:
        inside = variables.inside(gang)
        starts[gang.reach].append(variables.started(gang))
        if inside is not None and gang.reach != gang.widest_reach:
            claims[gang.reach, gang.widest_reach].append(inside)
    some_start = {reach: _some(model, gangs) for reach, gangs in starts.items()}
    some_claim = {reaches: _some(model, gangs) for reaches, gangs in claims.items()}
    for victim in instance.victims:
        if victim.id in instance.staying:
            continue
        ways = [gang for reach, gangs in some_start.items() if victim.id in reach for gang in gangs]
        for (reach, widest), gangs in some_claim.items():
            if victim.id in widest and victim.id not in reach:
                ways.extend(gangs)
        model.add(variables.evicted(victim.id) <= LinearExpr.sum(ways))


def _some(model: CpModel, gangs: list[IntVar]) -> list[IntVar]:
    """Variables that add up to more than 0 only if one of the gangs starts: theirs, or one for many of them."""
    if len(gangs) < _MANY:
        return gangs
    some = model.new_bool_var("")
    model.add(some <= LinearExpr.sum(gangs))
    return [some]
