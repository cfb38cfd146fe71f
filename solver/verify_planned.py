"""The verifier's half about room at planned starts: what plans ask for beside what is still there then."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from ..model.decision import Resize, RuleFamily, Start
from ..model.host import Host
from ..model.ids import HostId, JobId
from ..model.placement import Placement
from ..model.policy import Policy
from ..model.reservation import Reservation
from ..model.snapshot import JobRecord, Snapshot
from .demand import CardKind, surely_over_s
from .drains import Clear
from .verify_allowed import Allowed, allowances
from .verify_hosts import Part, parts_by_host
from .verify_rights import returning
from .violation import Violation

RESOURCES = (("CPU", "milli-cores"), ("memory", "MiB"), ("network", "Mbit/s"))


@dataclass(frozen=True, slots=True)
class Planned:
    """A gang that is to start there at that time (s)."""

    record: JobRecord
    placement: Placement
    at_s: int


Placed = tuple[JobRecord, Placement]


class Board:
    """What is on the hosts of some plans from now on: running work, this round's starts, and the plans themselves.

    `gone` are jobs that leave in this round, `coming` its starts.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        policy: Policy,
        plans: Sequence[Planned],
        coming: Iterable[Placed],
        gone: Collection[JobId],
    ) -> None:
        coming = list(coming)
        names = {name for plan in plans for name in plan.placement.hosts}
        self.hosts = {host.id: host for host in snapshot.hosts if host.id in names}
        staying = ((r, r.placement) for r in snapshot.jobs if r.placement is not None and r.id not in gone)
        self._clear = Clear(snapshot, policy)
        self._work = parts_by_host(staying, self.hosts)
        self._coming = parts_by_host(coming, self.hosts)
        self._over = {record.id: surely_over_s(record, snapshot, policy) for record, _ in coming}
        self._allowed = Allowed(allowances(snapshot, policy), plans, coming, gone, self._clear, self._over)
        self._plans: dict[HostId, list[tuple[Planned, list[Part]]]] = defaultdict(list)
        for plan in plans:
            for name, parts in parts_by_host([(plan.record, plan.placement)], self.hosts).items():
                if parts:
                    self._plans[name].append((plan, parts))

    def overfull(self, plan: Planned) -> Iterator[Violation]:
        """What plans and work still there need beyond what the plan's hosts have, and limits allow, at its start."""
        for name in plan.placement.hosts:
            if name in self.hosts:
                yield from self._amounts(plan, self.hosts[name])
        for (what, whose, gpu_type), over in self._allowed.over(plan):
            most = f"team {whose} may hold" if what == "limit" else f"its reserved pool leaves to level 1 at {whose}"
            text = (
                f"when job {plan.record.id} is planned to start, plans and the work still there need {over} milli-GPU "
                f"of {gpu_type} more than {most}"
            )
            yield reservation_fault(plan.record.id, over, "milli-GPU", text)

    def contested(self, plan: Planned) -> Iterator[Violation]:
        """Which cards of the plan are not its alone at its start."""
        for name in plan.placement.hosts:
            if name in self.hosts:
                yield from self._cards(plan, self.hosts[name])

    def forbids(self, record: JobRecord) -> bool:
        """Whether a plan would no longer fit if that stopped job still ran."""
        if record.placement is None or not self._plans:
            return False
        if self._allowed.forbids(record):
            return True
        back = parts_by_host([(record, record.placement)], self.hosts)
        for name, parts in back.items():
            for plan, planned in self._plans.get(name, ()) if parts else ():
                if self._clear(record, plan.record) > plan.at_s:
                    cards = {index for part in planned for index in part.gpus}
                    if any(cards.intersection(part.gpus) for part in parts):
                        return True
                    if any(self._amounts(plan, self.hosts[name], parts, without=record.id)):
                        return True
        return False

    def put_back(self, record: JobRecord) -> None:
        """The job that stopped, or returned, still runs where it was."""
        self._allowed.put_back(record)
        for name, parts in self._coming.items():
            self._coming[name] = [part for part in parts if part.record.id != record.id]
        for name, parts in parts_by_host([(record, record.placement)], self.hosts).items():
            self._work[name].extend(parts)

    def later(self, plan: Planned) -> list[Planned]:
        """The other plans on hosts of the plan, or under its limits, that start later, or with it."""
        beside = [other for name in plan.placement.hosts for other, _ in self._plans.get(name, ())]
        found = {
            other.record.id: other
            for other in (*beside, *self._allowed.sharing(plan))
            if other is not plan and other.at_s >= plan.at_s
        }
        return list(found.values())

    def free_cards(self, plan: Planned, name: HostId) -> dict[CardKind, list[int]]:
        """The healthy cards of a host of the plan, by kind, that nobody else holds or has reserved at its start."""
        taken = {index for part in self._there(plan, name) for index in part.gpus}
        taken |= {i for other, ps in self._plans[name] if other is not plan for part in ps for i in part.gpus}
        free: dict[CardKind, list[int]] = {}
        for gpu in self.hosts[name].gpus:
            if gpu.healthy and gpu.index not in taken:
                free.setdefault(CardKind.of(gpu), []).append(gpu.index)
        return free

    def lacks_cards(self, plan: Planned) -> bool:
        """Whether a host of the plan has fewer cards of a kind for it than it asks, whichever it takes."""
        for name in plan.placement.hosts:
            if name in self.hosts:
                free = self.free_cards(plan, name)
                asked = [index for worker in plan.placement.workers if worker.host == name for index in worker.gpus]
                kinds = Counter(CardKind.of(gpu) for gpu in map(self.hosts[name].gpu, asked) if gpu is not None)
                if any(len(free.get(kind, ())) < number for kind, number in kinds.items()):
                    return True
        return False

    def _there(self, plan: Planned, name: HostId) -> list[Part]:
        """What is still on the host when the plan starts, other plans aside."""
        work = [part for part in self._work[name] if self._clear(part.record, plan.record) > plan.at_s]
        coming = [part for part in self._coming[name] if self._over[part.record.id] > plan.at_s]
        return [*work, *coming]

    def _amounts(self, plan: Planned, host: Host, back: Sequence[Part] = (), without: str = "") -> Iterator[Violation]:
        """`back` is there besides; the job `without`, which would return elsewhere, is not."""
        others = (part for part in self._there(plan, host.id) if part.record.id != without)
        there = [_asked(part) for part in (*others, *back)]
        planned = [_asked(p) for other, parts in self._plans[host.id] if other.at_s <= plan.at_s for p in parts]
        own = [_asked(p) for other, parts in self._plans[host.id] if other is plan for p in parts]
        limits = (host.cpu_milli, host.memory_mib, host.network_mbps)
        for number, (limit, (what, unit)) in enumerate(zip(limits, RESOURCES, strict=True)):
            over = sum(amounts[number] for amounts in (*planned, *there)) - limit
            if over > 0 and any(amounts[number] for amounts in own):
                text = (
                    f"when job {plan.record.id} is planned to start on {host.id}, plans and the work still there need "
                    f"{over} {unit} of {what} more than the host has"
                )
                yield reservation_fault(plan.record.id, over, unit, text)

    def _cards(self, plan: Planned, host: Host) -> Iterator[Violation]:
        own = Counter(i for w in plan.placement.workers if w.host == host.id for i in w.gpus)
        for index, number in sorted(own.items()):
            where = f"GPU {index} of {host.id}"
            if number > 1:
                text = f"{where} is reserved {number} times for job {plan.record.id}"
                yield reservation_fault(f"{host.id}/{index}", number - 1, "workers", text)
            others = [other for other, ps in self._plans[host.id] if other is not plan for p in ps if index in p.gpus]
            if others:
                text = f"{where} is reserved for the jobs {plan.record.id} and {others[0].record.id}"
                yield reservation_fault(f"{host.id}/{index}", len(others), "plans", text)
            holding = [part for part in self._there(plan, host.id) if index in part.gpus]
            if holding:
                first = holding[0].record.id
                text = f"{where} is reserved for job {plan.record.id}, but job {first} may still hold it then"
                yield reservation_fault(f"{host.id}/{index}", len(holding), "workers", text)


def board(
    snapshot: Snapshot,
    policy: Policy,
    starts: Sequence[Start],
    stopped: Collection[JobId],
    reservations: Sequence[Reservation],
    resizes: Sequence[Resize] = (),
) -> Board:
    """The board of a decision; what it says of jobs that do not exist is left out."""
    records = {record.id: record for record in snapshot.jobs} if reservations else {}
    plans = [Planned(records[r.job], r.placement, r.planned_start_s) for r in reservations if r.job in records]
    coming = [(records[act.job], act.placement) for act in (*starts, *returning(resizes)) if act.job in records]
    return Board(snapshot, policy, plans, coming, {*stopped, *(act.job for act in resizes)})


def _asked(part: Part) -> tuple[int, int, int]:
    return part.request.cpu_milli, part.request.memory_mib, part.request.network_mbps


def reservation_fault(subject: str, amount: int, unit: str, message: str) -> Violation:
    """A breach of the rules of reservations."""
    return Violation(family=RuleFamily.RESERVATION, subject=subject, amount=amount, unit=unit, message=message)
