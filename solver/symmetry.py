"""Alike gangs start in queue order: cuts that no goal can lose by, and that spare the search every permutation."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise

from ortools.sat.python.cp_model import CpModel

from .classes import Gang, Instance
from .order import order
from .variables import Variables


def add(model: CpModel, instance: Instance, variables: Variables) -> None:
    """started(g) >= started(h) for gangs alike in all that rules and goals see, where g stands before h in the queue.

    In any decision that starts h and not g, g can take h's place: its weight is at least h's (it waited at least as
    long), and only `order` changes, for the better. Named gangs have goals of their own, and where hosts are reserved
    it matters when a gang is surely over.
    """
    place = order(instance.snapshot, instance.policy).place
    plans = variables.plans
    named = {record.id for record in plans.named}
    alike: dict[object, list[Gang]] = defaultdict(list)
    for gang in instance.gangs:
        if gang.id not in named:
            alike[_traits(gang), plans.over.get(gang.id)].append(gang)
    for gangs in alike.values():
        gangs.sort(key=lambda gang: place[gang.id])
        for before, behind in pairwise(gangs):
            model.add_implication(variables.started(behind), variables.started(before))


def _traits(gang: Gang) -> object:
    job = gang.record.job
    slots = tuple(workers.slots for workers in gang.workers)
    traits = (job.team, gang.record.level, job.roles, gang.confinement, job.anti_affinity, job.dataset, slots)
    return (*traits, gang.only_inside)
