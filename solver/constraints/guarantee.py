"""Guarantee: what starts inside a team's guarantee is covered by what running work leaves of it.

What inside starts may do stands elsewhere: whose capacity they may use (`access`, `cuts`), and what they are worth.
"""

from __future__ import annotations

from collections import defaultdict

from ortools.sat.python.cp_model import CpModel, IntVar

from ..classes import Gang, Instance, WorkerClass
from ..rights import Key
from ..variables import Variables


def add(model: CpModel, instance: Instance, variables: Variables) -> None:
    """Lets gangs start inside.

    For every gang g that can:  inside(g) <= started(g), and for each GPU role r:
        sum over covered types t of inside_on(r, t)  ==  inside(g),    inside_on(r, t) <= uses_type(r, t)
    For every team with a guarantee on type t:
        sum of r.gpu_milli * inside_on(r, t)  <=  what running work leaves of it   [milli-GPU]
    Gangs that start only inside have inside(g) = started(g).
    """
    claims: dict[Key, list[tuple[int, IntVar]]] = defaultdict(list)
    for gang in instance.gangs:
        inside = variables.inside(gang)
        if inside is None:
            continue
        if not gang.only_inside:
            model.add_implication(inside, variables.started(gang))
        for workers in gang.workers:
            if workers.role.request.gpu_milli:
                _on_types(model, workers, inside, variables)
                for key, claim in _claims(instance, gang, workers, variables):
                    claims[key].append(claim)
    for key, parts in claims.items():
        model.add(sum(milli * variable for milli, variable in parts) <= instance.rights.left[key])


def _on_types(model: CpModel, workers: WorkerClass, inside: IntVar, variables: Variables) -> None:
    """An inside gang has the role on one covered type."""
    if len(workers.gpu_types) == 1:
        return
    on_types = []
    for gpu_type in workers.covered:
        on_type, uses = variables.inside_on(workers, gpu_type), variables.uses_type(workers, gpu_type)
        if on_type is not None and uses is not None:
            on_types.append(on_type)
            model.add_implication(on_type, uses)
    model.add(sum(on_types) == inside)


def _claims(
    instance: Instance, gang: Gang, workers: WorkerClass, variables: Variables
) -> list[tuple[Key, tuple[int, IntVar]]]:
    """What the role claims of which guarantee, if the gang starts inside with it on that type."""
    claims = []
    for gpu_type in workers.covered:
        holder = instance.rights.holder(gang.record.job.team, gpu_type)
        on_type = variables.inside_on(workers, gpu_type)
        if holder is not None and on_type is not None:
            claims.append(((holder, gpu_type), (workers.role.gpu_milli, on_type)))
    return claims
