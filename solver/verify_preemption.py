"""The verifier's half about preemption: who may be stopped, for whom, and what it frees for them (docs/rounds.md)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from ..model.decision import Preemption, RuleFamily, Start
from ..model.host import MILLI, Gpu, Host
from ..model.ids import HostId, JobId
from ..model.job_state import JobState
from ..model.placement import Placement
from ..model.policy import Policy
from ..model.snapshot import JobRecord, Snapshot
from .demand import card_memory, loss, victims
from .order import value_milli
from .rights import Runner, Starter, never
from .verify_affinity import Labelled
from .verify_hosts import Part, host_within, parts_by_host
from .verify_quota import Holdings
from .verify_rights import Sides, unserved
from .violation import Violation


def preemption(
    snapshot: Snapshot, policy: Policy, starts: Sequence[Start], preemptions: Sequence[Preemption]
) -> Iterator[Violation]:
    """Only legal victims leave, each for the starts that need it; what they free goes to those that may evict them."""
    yield from _victims(snapshot, policy, preemptions)
    yield from _ties(snapshot, starts, preemptions)
    rooms = rooms_left(snapshot, starts, {act.job for act in preemptions})
    for room in rooms.values():
        yield from _withheld(room)
    yield from _needless(snapshot, starts, preemptions, rooms)


def _victims(snapshot: Snapshot, policy: Policy, preemptions: Sequence[Preemption]) -> Iterator[Violation]:
    """Each victim may be evicted now, and is stopped once, as the attempt that runs, at its stated loss."""
    records = {record.id: record for record in snapshot.jobs}
    legal = {record.id for record in victims(snapshot, policy)}
    for name, number in Counter(act.job for act in preemptions).items():
        if number > 1:
            yield _fault(name, number - 1, "preemptions", f"job {name} is preempted {number} times in one round")
    for act in preemptions:
        record = records.get(act.job)
        if record is None:
            yield _fault(act.job, 1, "victims", f"there is no job {act.job}, so it cannot be preempted")
            continue
        if act.job not in legal:
            text = f"job {act.job} may not be preempted: {_standing(record, snapshot.now_s, policy)}"
            yield _fault(act.job, 1, "victims", text)
        if act.attempt != record.attempt:
            text = f"attempt {act.attempt} of job {act.job} is preempted; attempt {record.attempt} runs"
            yield _fault(act.job, abs(act.attempt - record.attempt), "attempts", text)
        milli = value_milli(record, policy)
        lost = -(-loss(record, milli, snapshot.now_s, policy) // MILLI)
        if act.loss_gpu_s != lost:
            text = f"preempting job {act.job} is said to lose {act.loss_gpu_s} GPU-seconds; it loses {lost}"
            yield _fault(act.job, abs(act.loss_gpu_s - lost), "GPU*s", text)


def _standing(record: JobRecord, now_s: int, policy: Policy) -> str:
    limits = policy.eviction
    recent = sum(time > now_s - limits.evictions_window_s for time in record.evictions)
    ran_s = now_s - record.started_s if record.started_s is not None else 0
    if record.state is not JobState.RUNNING:
        return f"it is {record.state}"
    if never(record):
        return "it is preemptible never"
    if ran_s < limits.min_run_s:
        return f"it has run for {ran_s} s of at least {limits.min_run_s} s"
    if recent >= limits.max_evictions:
        return f"it was evicted {recent} times in the last {limits.evictions_window_s} s"
    return f"no job waits that may evict it at its level {record.level}"


def _ties(snapshot: Snapshot, starts: Sequence[Start], preemptions: Sequence[Preemption]) -> Iterator[Violation]:
    """A start waits for the victims in its way that it may evict, and a victim leaves for exactly these starts."""
    records = {record.id: record for record in snapshot.jobs}
    told = {act.job: act.beneficiaries for act in reversed(preemptions)}
    holdings, labelled, sides = Holdings(snapshot, (), ()), Labelled(snapshot, (), ()), Sides(snapshot, starts)

    def place(record: JobRecord, placement: Placement) -> set[object]:
        return {
            *placement.hosts,
            *holdings.held(record.job, placement),
            *labelled.places(record, placement),
        }

    coming: dict[object, set[JobId]] = defaultdict(set)
    near: dict[JobId, set[JobId]] = {start.job: set() for start in starts if start.job in records}
    for start in starts:
        for name in place(records[start.job], start.placement) if start.job in records else ():
            coming[name].add(start.job)
    for record in snapshot.jobs:
        if record.id not in told:
            continue
        beside = {job for name in (place(record, record.placement) if record.placement else ()) for job in coming[name]}
        served = {job for job in beside if sides.may(records[job], record)}
        for job in served:
            near[job].add(record.id)
        yield from _beneficiaries(record.id, told[record.id], _in_order(snapshot, served))
    for start in starts:
        right = _in_order(snapshot, near.get(start.job, set()))
        if start.job in records and start.after != right:
            text = f"job {start.job} is to start after {list(start.after)} have left; {list(right)} leave for it"
            yield _fault(start.job, max(1, len(set(start.after) ^ set(right))), "victims", text)


def _beneficiaries(victim: JobId, told: tuple[JobId, ...], right: tuple[JobId, ...]) -> Iterator[Violation]:
    if not right:
        text = f"job {victim} is preempted, and is in the way of no start that may evict it"
        yield _fault(victim, 1, "beneficiaries", text)
    if told != right:
        text = f"job {victim} is said to leave for {list(told)}; it leaves for {list(right)}"
        yield _fault(victim, max(1, len(set(told) ^ set(right))), "beneficiaries", text)


def _in_order(snapshot: Snapshot, jobs: Collection[JobId]) -> tuple[JobId, ...]:
    """The jobs in the order of the snapshot."""
    return tuple(record.id for record in snapshot.jobs if record.id in jobs) if jobs else ()


@dataclass(frozen=True, slots=True)
class Room:
    """One host that victims leave: what stays there, what leaves, what comes, and who may evict whom."""

    sides: Sides
    host: Host
    staying: tuple[Part, ...]
    leaving: tuple[Part, ...]
    coming: tuple[Part, ...]

    def keeping(self, victim: JobId) -> Room:
        """The host with that victim back where it was."""
        back = tuple(part for part in self.leaving if part.record.id == victim)
        others = tuple(part for part in self.leaving if part.record.id != victim)
        return Room(self.sides, self.host, self.staying + back, others, self.coming)


def rooms_left(snapshot: Snapshot, starts: Sequence[Start], stopped: Collection[JobId]) -> dict[HostId, Room]:
    """Every host that one of the stopped jobs leaves."""
    records = {record.id: record for record in snapshot.jobs}
    sides = Sides(snapshot, starts)
    names = {name for r in snapshot.jobs if r.id in stopped and r.placement for name in r.placement.hosts}
    staying = parts_by_host(((r, r.placement) for r in snapshot.jobs if r.id not in stopped), names)
    leaving = parts_by_host(((r, r.placement) for r in snapshot.jobs if r.id in stopped), names)
    coming = parts_by_host(((records[s.job], s.placement) for s in starts if s.job in records), names)
    return {
        host.id: Room(sides, host, tuple(staying[host.id]), tuple(leaving[host.id]), tuple(coming[host.id]))
        for host in snapshot.hosts
        if host.id in names
    }


def _withheld(room: Room) -> Iterator[Violation]:
    """Starts use what is free, and what victims free that they may evict; never what others free."""
    limits = (room.host.cpu_milli, room.host.memory_mib, room.host.network_mbps)
    units = (("CPU", "milli-cores"), ("memory", "MiB"), ("network", "Mbit/s"))
    for number, (limit, (what, unit)) in enumerate(zip(limits, units, strict=True)):
        over = _beyond(room, limit, partial(_amount, number))
        if over > 0:
            text = f"on host {room.host.id} starts use {over} {unit} of {what} too much: {_others(room)}"
            yield _fault(room.host.id, over, unit, text)
    for index in sorted({index for part in room.coming for index in part.gpus}):
        gpu = room.host.gpu(index)
        if gpu is not None and any(index in part.gpus for part in room.leaving):
            yield from _card_withheld(room, gpu)


def _beyond(room: Room, limit: int, amount: Callable[[Part], int]) -> int:
    """What starts use of an amount beyond what is free or left for them; 0 where they may use all that is left."""
    if not _others(room):
        return 0
    held = sum(amount(part) for part in (*room.staying, *room.leaving))
    freed: Counter[Runner] = Counter()
    asked: Counter[Starter] = Counter()
    for part in room.leaving:
        freed[room.sides.runner(part.record)] += amount(part)
    for part in room.coming:
        asked[room.sides.starter(part.record)] += amount(part)
    return unserved(limit - held, freed, asked)


def _others(room: Room) -> str:
    """Whose leaving is not for one of the starts, in words; "" where all of it is for all."""
    for part in room.coming:
        for other in room.leaving:
            if not room.sides.may(part.record, other.record):
                return (
                    f"what job {other.record.id} of level {other.record.level} frees is not for job {part.record.id} "
                    f"of level {part.record.level}"
                )
    return ""


def _amount(number: int, part: Part) -> int:
    return (part.request.cpu_milli, part.request.memory_mib, part.request.network_mbps)[number]


def _card_withheld(room: Room, gpu: Gpu) -> Iterator[Violation]:
    where, subject = f"GPU {gpu.index} of {room.host.id}", f"{room.host.id}/{gpu.index}"
    leaving = tuple(part for part in room.leaving if gpu.index in part.gpus)
    teams = {part.record.job.team for part in leaving}
    beside: list[Part] = []
    for part in (part for part in room.coming if gpu.index in part.gpus):
        if part.request.fractional and teams == {part.record.job.team}:
            beside.append(part)
            continue
        kept = room.sides.barred(part.record, [other.record for other in leaving])
        if kept:
            text = (
                f"{where} goes to job {part.record.id} of level {part.record.level}, which may not evict job "
                f"{kept[0].id} of level {kept[0].level} from it"
            )
            yield _fault(subject, len(kept), "victims", text)
    card = replace(
        room,
        staying=tuple(part for part in room.staying if gpu.index in part.gpus),
        leaving=leaving,
        coming=tuple(beside),
    )
    for unit, number, limit in (("milli-GPU", 0, MILLI), ("MiB", 1, gpu.memory_mib)):
        over = _beyond(card, limit, partial(_on_card, gpu, number))
        if over > 0:
            text = f"fractions use {over} {unit} too much of {where}: {_others(card)}"
            yield _fault(subject, over, unit, text)


def _on_card(gpu: Gpu, number: int, part: Part) -> int:
    milli = part.request.gpu_milli if part.request.fractional else MILLI
    return (milli, card_memory(part.request, gpu.memory_mib))[number]


def _needless(
    snapshot: Snapshot, starts: Sequence[Start], preemptions: Sequence[Preemption], rooms: Mapping[HostId, Room]
) -> Iterator[Violation]:
    """Putting any single victim back where it was breaks a rule: of its hosts, of a limit, or of a label."""
    stopped = {act.job for act in preemptions}
    holdings, labelled = Holdings(snapshot, starts, stopped), Labelled(snapshot, starts, stopped)
    for record in snapshot.jobs:
        if record.id not in stopped or record.placement is None:
            continue
        held = [rooms[name].keeping(record.id) for name in record.placement.hosts if name in rooms]
        needed = holdings.forbids(record) or labelled.forbids(record) or any(broken(room) for room in held)
        if not needed:
            text = f"job {record.id} is preempted needlessly: with it back where it was, every start still fits"
            yield _fault(record.id, 1, "needless", text)


def broken(room: Room) -> bool:
    """Whether what comes does not fit there, or uses what is not for it."""
    return any(host_within(room.host, room.staying, room.coming)) or any(_withheld(room))


def _fault(subject: str, amount: int, unit: str, message: str) -> Violation:
    return Violation(family=RuleFamily.PREEMPTION, subject=subject, amount=amount, unit=unit, message=message)
