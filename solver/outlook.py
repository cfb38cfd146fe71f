"""How a fleet stands after the round of now, and what its queue may expect: one side of a what-if."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ..model.decision import Resize, Start
from ..model.host import MILLI
from ..model.ids import JobId
from ..model.job_state import JobState
from ..model.policy import Policy, StandardGang
from ..model.snapshot import JobRecord, Snapshot
from .appetite import appetite
from .books import Books
from .demand import placeable
from .forecast import Acts, Chosen, Decide, Forecast, forecast, unpack
from .goals import fleet_types
from .walltimes import Learned


@dataclass(frozen=True, slots=True, kw_only=True)
class Waits:
    """Expected waits from submission to start, in seconds, of the waiting jobs whose start is told (`jobs`).

    `untold` jobs wait without a start in sight.
    """

    jobs: int
    untold: int
    mean_s: int
    p50_s: int
    p90_s: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeUse:
    """GPUs of one type: healthy, and free on hosts that take work, both in milli-GPU."""

    gpu_type: str
    gpu_milli: int
    idle_milli: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GangRoom:
    """How many gangs of a standard shape could start at once on one GPU type, each counted alone.

    A card counts where its host has CPU, memory and network left for it, as a quarter of the demand asks it with a GPU.
    """

    gang: StandardGang
    gpu_type: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """One side of the comparison, after the starts of now.

    `held_milli` of `capacity_milli` healthy milli-GPU are held by jobs. Costs are thousandths of a currency unit per
    hour, of all healthy GPUs and of those held; None without prices.
    """

    hosts: int
    capacity_milli: int
    held_milli: int
    starting: int
    types: tuple[TypeUse, ...]
    room: tuple[GangRoom, ...]
    waits: Waits
    cost_milli: int | None = None
    held_cost_milli: int | None = None

    @property
    def allocation_milli(self) -> int:
        """Thousandths of the capacity that jobs hold."""
        return self.held_milli * MILLI // self.capacity_milli if self.capacity_milli else 0


def look(
    snapshot: Snapshot,
    policy: Policy,
    *,
    decide: Decide,
    horizon_s: int,
    learned: Learned | None,
    prices: Mapping[str, int],
) -> tuple[Outlook, dict[JobId, Forecast]]:
    """The outlook of a world, and the forecast of every waiting job. Prices in thousandths per GPU-hour by type."""
    chosen = decide(snapshot, policy)

    def remembering(world: Snapshot, rules: Policy) -> Chosen | Sequence[Start]:
        return chosen if world == snapshot else decide(world, rules)

    entries = forecast(snapshot, policy, decide=remembering, horizon_s=horizon_s, learned=learned, bounds=False)
    told = {entry.job: entry for entry in entries}
    acts = unpack(chosen)
    after = _after(snapshot, acts)
    count, held = fleet_types(snapshot), _held(after)
    types = sorted(count)
    idle = _idle(after)
    costs: tuple[int | None, int | None] = (None, None)
    if prices:
        costs = (
            sum(count[name] * prices.get(name, 0) for name in types),
            sum(held[name] * prices.get(name, 0) for name in types) // MILLI,
        )
    outlook = Outlook(
        hosts=len(snapshot.hosts),
        capacity_milli=MILLI * sum(count.values()),
        held_milli=sum(held.values()),
        starting=len(acts.starts),
        types=tuple(TypeUse(gpu_type=name, gpu_milli=MILLI * count[name], idle_milli=idle[name]) for name in types),
        room=_room(after, policy),
        waits=_waits(snapshot, told),
        cost_milli=costs[0],
        held_cost_milli=costs[1],
    )
    return outlook, told


def _after(snapshot: Snapshot, acts: Acts) -> Snapshot:
    """The world once the starts and returns of now have their hosts and the victims of now have left theirs."""
    starts: dict[JobId, Start | Resize] = {act.job: act for act in acts.starts}
    starts.update({act.job: act for act in acts.resizes})
    victims = {preemption.job for preemption in acts.preemptions}
    records: list[JobRecord] = []
    for record in snapshot.jobs:
        if record.id in starts:
            start = starts[record.id]
            record = replace(record, state=JobState.PLANNED, attempt=start.attempt, placement=start.placement)
        elif record.id in victims:
            record = replace(record, state=JobState.QUEUED, placement=None)
        records.append(record)
    return replace(snapshot, jobs=tuple(records))


def _held(snapshot: Snapshot) -> Counter[str]:
    """milli-GPU that jobs hold, by type."""
    types = {(host.id, gpu.index): gpu.gpu_type for host in snapshot.hosts for gpu in host.gpus if gpu.healthy}
    held: Counter[str] = Counter()
    for record in snapshot.jobs:
        for worker in record.placement.workers if record.placement else ():
            role = record.job.role(worker.role)
            for index in worker.gpus:
                name = types.get((worker.host, index))
                if name is not None and role is not None:
                    held[name] += min(MILLI, role.request.gpu_milli)
    return held


def _idle(snapshot: Snapshot) -> Counter[str]:
    books, idle = Books(snapshot), Counter[str]()
    for host in snapshot.hosts:
        if placeable(host):
            for card in books.hosts[host.id].cards.values():
                if card.healthy:
                    idle[card.kind.gpu_type] += max(0, card.milli)
    return idle


def _room(snapshot: Snapshot, policy: Policy) -> tuple[GangRoom, ...]:
    books, demand = Books(snapshot), appetite(snapshot)
    found = []
    for gang in policy.objective.standard_gangs:
        slots: dict[str, Counter[str]] = defaultdict(Counter)
        for host in snapshot.hosts:
            if placeable(host):
                book, free = books.hosts[host.id], Counter[str]()
                for kind, cards in book.free.items():
                    free[kind.gpu_type] += len(cards)
                left = (book.cpu_milli, book.memory_mib, book.network_mbps)
                served = demand.served(free.total(), left)
                for name, number in free.items():
                    slots[name][host.path.domain(gang.layer, host.id)] += min(number, served) // gang.gpus
        for name in sorted(slots):
            number = sum(workers // gang.workers for workers in slots[name].values())
            found.append(GangRoom(gang=gang, gpu_type=name, count=number))
    return tuple(found)


def _waits(snapshot: Snapshot, told: Mapping[JobId, Forecast]) -> Waits:
    waits = sorted(
        max(0, told[record.id].start_s - record.submitted_s)  # type: ignore[operator]
        for record in snapshot.jobs
        if record.id in told and told[record.id].start_s is not None
    )
    number = len(waits)
    return Waits(
        jobs=number,
        untold=len(told) - number,
        mean_s=sum(waits) // number if waits else 0,
        p50_s=waits[-(-number // 2) - 1] if waits else 0,
        p90_s=waits[-(-number * 9 // 10) - 1] if waits else 0,
    )
