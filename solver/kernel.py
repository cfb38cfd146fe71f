"""The kernel of a round that is too large for the exact model: some hosts for each gang, and who may leave there.

A gang has the hosts where the greedy starts it, or where it runs if it may return, and some that are cheap to free for
it: whole racks where it wants one. All else is as in the exact model, so that any solution is a decision; the kernel
proves nothing about other hosts.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from dataclasses import replace

from ..model.decision import Resize, Start
from ..model.ids import HostId, JobId
from ..model.job import Role
from ..model.policy import Policy
from ..model.snapshot import JobRecord, Snapshot
from ..model.topology import Layer
from .access import Reach
from .classes import Instance, reduce
from .confinements import confinements
from .demand import allowed_sites, candidates, victims
from .goals import victim_cost
from .held import Card, HostClass
from .later import LaterGang, Plans, plans
from .leaving import host_classes, ways_out
from .moved import moved_id
from .places import Places
from .plan import Plan
from .returning import returners
from .sizes import ways

WAITING, STARTED = 24, 16
"""Hosts at most for each gang beside those where the greedy starts it: where it waits, and where it starts."""

_LEVEL = 1 << 48
"""Prices of victims of one level are below this, so that the higher level decides."""


def kernel(snapshot: Snapshot, policy: Policy, plan: Plan, most: int, least: int = 0) -> tuple[Instance, Plans]:
    """The reduced instance around that plan, which fits into it, and the plans that it knows; about `most` slots.

    Gangs of levels below `least` are left out.
    """
    gangs = sum(len(ways(record)) for record in candidates(snapshot) if record.level >= least)
    near = _Near(snapshot, policy, plan, most // max(1, gangs))
    instance = _without(reduce(snapshot, policy, narrow=near, least=least), plan, near.used)
    drains = plans(instance)
    if not drains.gangs:
        return instance, drains
    known = (_known(gang, plan) for gang in drains.gangs)
    return instance, replace(drains, gangs=tuple(gang for gang in known if gang is not None))


class _Near:
    """The hosts of each role: the greedy's own, and a window of those that are cheapest for its like."""

    def __init__(self, snapshot: Snapshot, policy: Policy, plan: Plan, each: int) -> None:
        self._waiting, self._started = min(WAITING, max(1, each)), min(STARTED, max(1, each // 2))
        self._own: dict[JobId, set[HostId]] = defaultdict(set)
        acts: tuple[Start | Resize, ...] = (*plan.starts, *plan.resizes)
        for act in acts:
            self._own[act.job].update(act.placement.hosts)
        returning = returners(snapshot, policy)
        for record in (*returning.shrinkers, *returning.movers):
            self._own[record.id].update(record.placement.hosts if record.placement is not None else ())
        self._snapshot, self._policy = snapshot, policy
        self._confinement = confinements(snapshot, policy)
        self._cost = {v.id: victim_cost(v, snapshot, policy) * _LEVEL**v.level for v in victims(snapshot, policy)}
        self._prices: dict[object, dict[HostId, tuple[int, int]]] = defaultdict(dict)
        self._steps: dict[object, dict[HostId, tuple[list[int], list[int]]]] = defaultdict(dict)
        self._sums: dict[frozenset[JobId], int] = {}
        self._ranked: dict[object, list[HostClass]] = {}
        self._asked: Counter[object] = Counter()
        self._number = {host.id: number for number, host in enumerate(snapshot.hosts)}
        self.used: set[HostId] = set()

    def __call__(self, record: JobRecord, role: Role, reach: Reach, places: Places) -> list[HostClass]:
        """The window moves on from gang to gang of a kind, so that they do not all crowd on the same hosts."""
        required = self._confinement(record.job).required
        sites = allowed_sites(record.job, self._snapshot, self._policy)
        request = role.request
        key = (request.gpu_milli, request.gpu_memory_mib, role.gpu_types, role.count, sites, reach, required)
        if key not in self._ranked:
            there = [host for host in places.among(role, reach) if host.host.path.site in sites]
            self._ranked[key] = self._rank(role, reach, required, there)
        ranked, own = self._ranked[key], self._own.get(record.id)
        size = self._started if own else max(self._waiting, role.count)
        first = self._asked[key] % max(1, len(ranked))
        self._asked[key] += max(1, size // 2)
        window = [*ranked[first : first + size], *ranked[: max(0, first + size - len(ranked))]]
        chosen = {host.id: host for host in window}
        chosen.update((host.id, host) for host in places.among(role, reach) if own and host.id in own)
        self.used.update(chosen)
        return sorted(chosen.values(), key=lambda host: self._number[host.id])

    def _rank(self, role: Role, reach: Reach, required: Layer | None, hosts: list[HostClass]) -> list[HostClass]:
        """Hosts from the cheapest on; for gangs on several hosts domain by domain."""
        priced = zip(self._priced(role, reach, hosts), hosts, strict=True)
        if role.count == 1 or required is Layer.HOST:
            need = role.count if required is Layer.HOST else 1
            able = [(price, self._number[host.id], host) for (price, blocks), host in priced if blocks >= need]
            return [host for _, _, host in sorted(able, key=lambda entry: entry[:2])]
        layer = Layer.NVLINK if required is Layer.NVLINK else Layer.RACK
        by_domain: dict[str, list[tuple[int, int, HostClass]]] = defaultdict(list)
        for (price, blocks), host in priced:
            if blocks:
                by_domain[host.host.path.domain(layer, host.id)].append((price, blocks, host))
        ranked = []
        for domain, members in by_domain.items():
            members.sort(key=lambda entry: (entry[0] // entry[1], self._number[entry[2].id]))
            there = sum(blocks for _, blocks, _ in members)
            ranked.append((there < role.count, sum(price for price, _, _ in members) // there, domain, members))
        return [host for *_, members in sorted(ranked, key=lambda entry: entry[:3]) for _, _, host in members]

    def _priced(self, role: Role, reach: Reach, hosts: list[HostClass]) -> list[tuple[int, int]]:
        """For each host about what must be evicted for one worker, or for all that fit, and how many fit."""
        whole, count = role.request.whole_gpus, role.count
        if not whole:
            return [(0, count)] * len(hosts)
        known = self._prices[reach, role.gpu_types, whole, count]
        steps = self._steps[reach, role.gpu_types]
        for host in hosts:
            if host.id not in known:
                if host.id not in steps:
                    steps[host.id] = self._freed(host, role, reach)
                cards, price = steps[host.id]
                blocks = min(count, cards[-1] // whole)
                known[host.id] = price[bisect_left(cards, blocks * whole)], blocks
        return [known[host.id] for host in hosts]

    def _freed(self, host: HostClass, role: Role, reach: Reach) -> tuple[list[int], list[int]]:
        """Numbers of cards that may come to be empty, rising from 0, those cheapest by card first; and their prices."""
        empty = [c for c in host.cards if c.may_empty(reach) and role.throughput_milli(c.kind.gpu_type) is not None]
        held = Counter(self._cheapest(card, reach) for card in empty)
        order = sorted(held.items(), key=lambda item: (self._sum(item[0]) // item[1], sorted(item[0])))
        cards, price, gone = [0], [0], frozenset[JobId]()
        for jobs, number in order:
            cards.append(cards[-1] + number)
            price.append(price[-1] + self._sum(jobs - gone))
            gone |= jobs
        return cards, price

    def _cheapest(self, card: Card, reach: Reach) -> frozenset[JobId]:
        """Who leaves the card if it comes to be empty for these."""
        ways = [way for way in card.ways if way <= reach]
        return ways[0] if len(ways) == 1 else min(ways, key=lambda way: (self._sum(way), sorted(way)))

    def _sum(self, jobs: frozenset[JobId]) -> int:
        """Those that are moved are no victims of a level, and cost next to nothing."""
        if jobs not in self._sums:
            self._sums[jobs] = sum(self._cost.get(job, 0) for job in jobs)
        return self._sums[jobs]


def _without(instance: Instance, plan: Plan, used: set[HostId]) -> Instance:
    """The instance where nobody leaves but those on the hosts in use, the victims of the plan, and who may return."""
    leaving = {act.job for act in plan.preemptions}
    leaving.update(gang.record.id for gang in instance.returns)
    kept = tuple(
        victim
        for victim in instance.victims
        if victim.id in leaving or (victim.placement is not None and not used.isdisjoint(victim.placement.hosts))
    )
    movers = returners(instance.snapshot, instance.policy).movers
    names = frozenset((*(victim.id for victim in kept), *(moved_id(record.id) for record in movers)))
    out = ways_out(kept, movers)
    known: dict[Reach, Reach] = {}
    # Equal reaches become one object: large sets that are not take long to compare.
    same: dict[Reach, Reach] = {}

    def less(reach: Reach) -> Reach:
        if reach not in known:
            left = reach & names
            known[reach] = same.setdefault(left, left)
        return known[reach]

    gangs = tuple(
        replace(gang, reach=less(gang.reach), widest_reach=less(gang.widest_reach)) for gang in instance.gangs
    )
    return replace(instance, hosts=host_classes(instance.snapshot, out), victims=kept, gangs=gangs, ways=out)


def _known(gang: LaterGang, plan: Plan) -> LaterGang | None:
    """The plan of a gang on the hosts that it has in the plan at hand or had; None where it has none."""
    reservations = [reservation for reservation in plan.reservations if reservation.job == gang.record.id]
    if gang.promise is not None:
        reservations.append(gang.promise.reservation)
    hosts = {worker.host for reservation in reservations for worker in reservation.placement.workers}
    workers = tuple(
        replace(each, slots=tuple(slot for slot in each.slots if slot.host in hosts)) for each in gang.workers
    )
    if all(sum(slot.most for slot in each.slots) >= each.role.count for each in workers):
        return replace(gang, workers=workers)
    return None
