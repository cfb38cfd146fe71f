"""The named gangs of a round as the encoder sees them: where each could be planned, and when (drains, RULES 5).

A plan is a gang of its own beside the one that may start now: its worker classes have slots on what hosts come to have
by its latest candidate start.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from ..model.host import Gpu
from ..model.ids import HostId, JobId
from ..model.job import Role
from ..model.snapshot import JobRecord
from .classes import Instance, WorkerClass
from .confinements import confinements
from .demand import CardKind, Confinement, allowed_sites, card_takes, ends_before, placeable, surely_over_s
from .drain_starts import candidate_starts
from .drains import Clear, Promise, named, promises
from .held import HostClass
from .slots import Slot

RESOURCES = ("cpu_milli", "memory_mib", "network_mbps")
"""What a host has beside cards, in the order of amounts here."""


@dataclass(frozen=True, slots=True)
class Stay:
    """What one running job holds of one host: milli-cores, MiB, Mbit/s, and its cards; whether it may leave now."""

    record: JobRecord
    may_leave: bool
    amounts: tuple[int, int, int]
    cards: frozenset[int]


@dataclass(frozen=True, slots=True, eq=False)
class LaterGang:
    """The plan of one named gang: `starts` are its candidate starts, rising.

    `barred`: on hosts with maintenance windows, the positions of the candidate starts at which it may not be there.
    """

    record: JobRecord
    confinement: Confinement
    workers: tuple[WorkerClass, ...]
    starts: tuple[int, ...]
    promise: Promise | None
    barred: dict[HostId, tuple[int, ...]]

    @property
    def id(self) -> JobId:
        """A name of its own: no job's name has an @."""
        return later_id(self.record)


def later_id(record: JobRecord) -> JobId:
    """What the gang's plan is called among the gangs of the model."""
    return JobId(f"{record.id}@later")


@dataclass(frozen=True, slots=True, eq=False)
class Plans:
    """The named gangs and the promises, all plans that could be made, and what they meet on the hosts.

    `known` remembers when what is on a host is clear of a level's way.
    `over` gives for each job that may start or return now when it has surely left its hosts [s]. `tried`: the candidate
    starts of each gang that could be planned, also where `gangs` has fewer.
    """

    named: tuple[JobRecord, ...]
    promises: tuple[Promise, ...]
    gangs: tuple[LaterGang, ...]
    stays: dict[HostId, tuple[Stay, ...]]
    clear: Clear | None
    over: dict[JobId, int]
    tried: dict[JobId, tuple[int, ...]] = field(default_factory=dict)
    known: dict[tuple[HostId, int], list[tuple[int, Stay]]] = field(default_factory=dict)

    @property
    def columns(self) -> int:
        """Number of (worker class, slot) pairs and candidate starts."""
        return sum(len(gang.starts) + sum(len(workers.slots) for workers in gang.workers) for gang in self.gangs)

    def staying(self, host: HostId, gang: LaterGang, start_s: int) -> list[Stay]:
        """The running work on the host that is not clear of the gang's way by then, unless it leaves now."""
        key = (host, gang.record.level)
        if key not in self.known:
            stays = self.stays.get(host, ())
            self.known[key] = [(self.clear(stay.record, gang.record), stay) for stay in stays] if self.clear else []
        return [stay for clear_s, stay in self.known[key] if clear_s > start_s]


NO_PLANS = Plans((), (), (), {}, None, {})
"""A round in which nobody is named."""


def plans(instance: Instance) -> Plans:
    """What the round could plan; gangs without enough slots for some role by any candidate start are left out."""
    snapshot, policy = instance.snapshot, instance.policy
    starving = named(snapshot, policy)
    if not starving:
        return NO_PLANS
    promised = promises(snapshot, policy)
    earlier = {promise.record.id: promise for promise in promised}
    stays = _stays(instance)
    clear = Clear(snapshot, policy)
    confinement = confinements(snapshot, policy)
    hosts = tuple(instance.hosts.values())
    found = []
    for record in starving:
        starts = candidate_starts(record, snapshot, policy)
        barred, where = _barred(record, instance, starts), confinement(record.job)
        workers = []
        for role in record.job.roles:
            slots = _slots(record, role, instance, stays, clear, starts, barred, hosts)
            usable = instance.domains.confined(slots, role, where.required)
            workers.append(WorkerClass(later_id(record), role, usable))
        if starts and all(each.enough for each in workers):
            found.append(LaterGang(record, where, tuple(workers), starts, earlier.get(record.id), barred))
    over = {gang.record.id: surely_over_s(gang.record, snapshot, policy) for gang in instance.coming}
    tried = {gang.record.id: gang.starts for gang in found}
    return Plans(starving, promised, tuple(found), stays, clear, over, tried)


def up_to(instance: Instance, plans: Plans, latest: Mapping[JobId, int], staying: frozenset[JobId]) -> Plans:
    """The same plans up to the latest start of each gang [s], and where they can be while these jobs stay."""
    if not plans.gangs:
        return plans
    stays = {
        host: tuple(replace(each, may_leave=False) if each.record.id in staying else each for each in there)
        for host, there in plans.stays.items()
    }
    clear = Clear(instance.snapshot, instance.policy)
    found = []
    for gang in plans.gangs:
        starts = tuple(start_s for start_s in gang.starts if start_s <= latest[gang.record.id])
        barred = {host: tuple(i for i in at if i < len(starts)) for host, at in gang.barred.items()}
        workers = []
        for each in gang.workers if starts else ():
            among = [instance.hosts[host] for host in dict.fromkeys(slot.host for slot in each.slots)]
            slots = _slots(gang.record, each.role, instance, stays, clear, starts, barred, among)
            workers.append(replace(each, slots=instance.domains.confined(slots, each.role, gang.confinement.required)))
        if workers and all(each.enough for each in workers):
            found.append(replace(gang, workers=tuple(workers), starts=starts, barred=barred))
    return replace(plans, gangs=tuple(found), stays=stays, known={})


def _stays(instance: Instance) -> dict[HostId, tuple[Stay, ...]]:
    found: dict[HostId, list[Stay]] = defaultdict(list)
    for record in instance.snapshot.jobs:
        if record.placement is None:
            continue
        requests = {role.name: role.request for role in record.job.roles}
        amounts: dict[HostId, list[int]] = defaultdict(lambda: [0, 0, 0])
        cards: dict[HostId, set[int]] = defaultdict(set)
        for worker in record.placement.workers:
            for number, resource in enumerate(RESOURCES):
                amounts[worker.host][number] += getattr(requests[worker.role], resource)
            cards[worker.host].update(worker.gpus)
        for host, (cpu, memory, network) in amounts.items():
            found[host].append(Stay(record, record.id in instance.ways, (cpu, memory, network), frozenset(cards[host])))
    return {host: tuple(stays) for host, stays in found.items()}


def _barred(record: JobRecord, instance: Instance, starts: tuple[int, ...]) -> dict[HostId, tuple[int, ...]]:
    """For each host with windows the positions of the candidate starts from which the gang would run into one."""
    now_s = instance.snapshot.now_s
    length_s = surely_over_s(record, instance.snapshot, instance.policy) - now_s
    return {
        host.id: tuple(i for i, start_s in enumerate(starts) if not ends_before(host.host, start_s, start_s + length_s))
        for host in instance.hosts.values()
        if host.host.windows
    }


def _slots(
    record: JobRecord,
    role: Role,
    instance: Instance,
    stays: dict[HostId, tuple[Stay, ...]],
    clear: Clear,
    starts: tuple[int, ...],
    barred: dict[HostId, tuple[int, ...]],
    among: Iterable[HostClass],
) -> tuple[Slot, ...]:
    """The places among these hosts that workers of the role could have by the latest start, possible victims gone."""
    sites = allowed_sites(record.job, instance.snapshot, instance.policy)
    slots = []
    for host in among:
        # Spares, and hosts held for gangs that lost one, are a matter of now.
        if not placeable(host.host) or host.host.path.site not in sites or len(barred.get(host.id, ())) == len(starts):
            continue
        kept = [s for s in stays.get(host.id, ()) if not s.may_leave and clear(s.record, record) > starts[-1]]
        beside_cards = _most_beside_cards(role, host, kept)
        if beside_cards == 0:
            continue
        if not role.request.gpu_milli:
            slots.append(Slot(host.id, None, beside_cards))
            continue
        for kind, cards in sorted(usable_cards(host).items()):
            if role.throughput_milli(kind.gpu_type) is None or not card_takes(role.request, kind.memory_mib):
                continue
            free = sum(not any(card.index in stay.cards for stay in kept) for card in cards)
            most = min(beside_cards, free // role.request.whole_gpus)
            if most:
                slots.append(Slot(host.id, kind, most))
    return tuple(slots)


def _most_beside_cards(role: Role, host: HostClass, kept: Iterable[Stay]) -> int:
    most = role.count
    for number, resource in enumerate(RESOURCES):
        asked = getattr(role.request, resource)
        if asked:
            left = getattr(host.host, resource) - sum(stay.amounts[number] for stay in kept)
            most = min(most, max(0, left) // asked)
    return most


def usable_cards(host: HostClass) -> dict[CardKind, list[Gpu]]:
    """The host's healthy cards by kind, whoever holds them now."""
    cards: dict[CardKind, list[Gpu]] = defaultdict(list)
    for gpu in host.host.gpus:
        if gpu.healthy:
            cards[CardKind.of(gpu)].append(gpu)
    return cards
