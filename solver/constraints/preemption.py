"""Preemption: nobody leaves unless a gang starts that may evict it.

Who may leave, and for whom, is static (`demand.victims`, `access`); who may use what it frees stands in the rows of
capacity, quota and affinity. That no victim is needless follows from the goals, for each victim costs; this family only
spares the search the victims of nobody.
"""

from __future__ import annotations

from ortools.sat.python.cp_model import CpModel

from ..classes import Instance
from ..variables import Variables


def add(model: CpModel, instance: Instance, variables: Variables) -> None:
    """evicted(v) <= sum of started(g), or of inside(g), over the gangs g that may evict v so.   [gangs]"""
    for victim in instance.victims:
        above = []
        for gang in instance.gangs:
            inside = variables.inside(gang)
            if victim.id in gang.reach:
                above.append(variables.started(gang))
            elif victim.id in gang.widest_reach and inside is not None:
                above.append(inside)
        model.add(variables.evicted(victim.id) <= sum(above))
