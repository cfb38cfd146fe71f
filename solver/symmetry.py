"""Alike gangs start in queue order: cuts that no goal can lose by, and that spare the search every permutation."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise

from ortools.sat.python.cp_model import CpModel, IntVar

from ..model.ids import JobId
from ..model.snapshot import JobRecord
from .classes import Gang, Instance
from .order import order
from .variables import Variables


def add(model: CpModel, instance: Instance, variables: Variables) -> None:
    """started(g) >= started(h) for gangs alike in all that rules and goals see, where g stands before h in the queue.

    Elastic gangs are alike in all their sizes, and start at any. In any decision that starts h and not g, g can take
    h's place: its weight is at least h's (it waited at least as
    long), and only `order` changes, for the better. Named gangs have goals of their own, and where hosts are reserved
    it matters when a gang is surely over.
    """
    numbers = order(instance.snapshot, instance.policy)
    place = numbers.place
    plans = variables.plans
    named = {record.id for record in plans.named}
    sizes: dict[JobId, list[IntVar]] = defaultdict(list)
    traits: dict[JobId, list[object]] = defaultdict(list)
    for gang in instance.gangs:
        for record, started in variables.starts(gang):
            if record.id not in named:
                sizes[record.id].append(started)
                traits[record.id].append(_traits(gang, record))
    alike: dict[object, list[JobId]] = defaultdict(list)
    for job, found in traits.items():
        # Weight goes by the size asked, though of that size nothing may be left to start.
        alike[tuple(found), numbers.milli[job], plans.over.get(job)].append(job)
    for jobs in alike.values():
        jobs.sort(key=lambda job: place[job])
        for before, behind in pairwise(jobs):
            for started in sizes[behind]:
                model.add_bool_or(~started, *sizes[before])


def _traits(gang: Gang, record: JobRecord) -> object:
    if gang.members:
        return gang.id, record.job.team
    job = record.job
    slots = tuple(workers.slots for workers in gang.workers)
    traits = (job.team, record.level, job.roles, gang.confinement, job.anti_affinity, job.dataset, slots)
    return (*traits, gang.only_inside)
