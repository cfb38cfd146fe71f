"""Gang: a gang runs with all of its workers or with none."""

from __future__ import annotations

from ortools.sat.python.cp_model import CpModel, LinearExpr

from ..classes import Instance
from ..variables import Variables


def add(model: CpModel, instance: Instance, variables: Variables) -> None:
    """Ties the workers placed in all slots to the gang's start.

    For every role r of every gang g:  sum over slots of workers_at(r, slot)  ==  r.count * started(g).   [workers]
    Feasible on its own: started(g) = 0.
    """
    for gang in variables.placed:
        for workers in gang.workers:
            placed = LinearExpr.sum([variables.workers_at(workers, slot) for slot in workers.slots])
            model.add(placed == workers.role.count * variables.started(gang))
