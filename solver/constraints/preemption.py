"""Preemption: nobody leaves unless a gang of a higher level starts.

Who may leave is static (`demand.victims`); who may use what it frees stands in the rows of capacity, quota and
affinity. That no victim is needless follows from the goals, for each victim costs; this family only spares the search
the victims of nobody.
"""

from __future__ import annotations

from ortools.sat.python.cp_model import CpModel

from ..classes import Instance
from ..variables import Variables


def add(model: CpModel, instance: Instance, variables: Variables) -> None:
    """evicted(v) <= sum of started(g) over the gangs g of a higher level.   [gangs]"""
    for victim in instance.victims:
        above = [variables.started(gang) for gang in instance.gangs if gang.record.level > victim.level]
        model.add(variables.evicted(victim.id) <= sum(above))
