"""Eligibility: all GPU workers of one role run on one GPU type.

Sites, host states, acceptable types and card memory are static: `classes.reduce` gives no slot where they forbid one.
"""

from __future__ import annotations

from ortools.sat.python.cp_model import CpModel

from ..classes import Instance
from ..variables import Variables


def add(model: CpModel, instance: Instance, variables: Variables) -> None:
    """Lets each role choose one type.

    For every GPU role r with more than one type t in reach:
        sum over t of uses_type(r, t)                 ==  started
        sum over slots of type t of workers_at(r, .)  ==  r.count * uses_type(r, t)      [workers]
    """
    for gang in variables.placed:
        for workers in gang.workers:
            uses = {t: variables.uses_type(workers, t) for t in workers.gpu_types}
            chosen = {gpu_type: use for gpu_type, use in uses.items() if use is not None}
            if len(chosen) < 2:
                continue
            model.add(sum(chosen.values()) == variables.started(gang))
            for gpu_type, use in chosen.items():
                on_type = sum(
                    variables.workers_at(workers, slot)
                    for slot in workers.slots
                    if slot.kind is not None and slot.kind.gpu_type == gpu_type
                )
                model.add(on_type == workers.role.count * use)
