"""The verifier's half about preemption: who may be stopped, for whom, and what it frees for them (docs/rounds.md)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ..model.decision import Preemption, RuleFamily, Start
from ..model.host import MILLI, Gpu, Host
from ..model.ids import HostId, JobId
from ..model.job import Preemptible
from ..model.job_state import JobState
from ..model.placement import Placement
from ..model.policy import Policy
from ..model.snapshot import JobRecord, Snapshot
from .demand import card_memory, loss, victims
from .order import value_milli
from .verify_affinity import Labelled
from .verify_hosts import Part, host_within, parts_by_host
from .verify_quota import Holdings
from .violation import Violation


def preemption(
    snapshot: Snapshot, policy: Policy, starts: Sequence[Start], preemptions: Sequence[Preemption]
) -> Iterator[Violation]:
    """Only legal victims leave, each for the starts that need it; what they free goes to higher levels alone."""
    yield from _victims(snapshot, policy, preemptions)
    yield from _ties(snapshot, starts, preemptions)
    rooms = rooms_left(snapshot, starts, {act.job for act in preemptions})
    for room in rooms.values():
        yield from _withheld(room)


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
    if record.job.preemptible is Preemptible.NEVER:
        return "it is preemptible never"
    if ran_s < limits.min_run_s:
        return f"it has run for {ran_s} s of at least {limits.min_run_s} s"
    if recent >= limits.max_evictions:
        return f"it was evicted {recent} times in the last {limits.evictions_window_s} s"
    return f"no job waits of a level above its level {record.level}"


def _ties(snapshot: Snapshot, starts: Sequence[Start], preemptions: Sequence[Preemption]) -> Iterator[Violation]:
    """A start waits for the victims of lower levels in its way, and a victim leaves for exactly these starts."""
    records = {record.id: record for record in snapshot.jobs}
    told = {act.job: act.beneficiaries for act in reversed(preemptions)}
    holdings, labelled = Holdings(snapshot, (), ()), Labelled(snapshot, (), ())

    def place(record: JobRecord, placement: Placement) -> set[object]:
        return {
            *placement.hosts,
            *holdings.held(record.job, placement),
            *labelled.places(record, placement),
        }

    coming: dict[object, set[JobId]] = defaultdict(set)
    near: dict[JobId, set[JobId]] = {start.job: set() for start in starts if start.job in records}
    position = {record.id: number for number, record in enumerate(snapshot.jobs)}
    for start in starts:
        for name in place(records[start.job], start.placement) if start.job in records else ():
            coming[name].add(start.job)
    for record in snapshot.jobs:
        if record.id not in told:
            continue
        beside = {job for name in (place(record, record.placement) if record.placement else ()) for job in coming[name]}
        served = {job for job in beside if records[job].level > record.level}
        for job in served:
            near[job].add(record.id)
        yield from _beneficiaries(record.id, told[record.id], _in_order(position, served))
    for start in starts:
        right = _in_order(position, near.get(start.job, set()))
        if start.job in records and start.after != right:
            text = f"job {start.job} is to start after {list(start.after)} have left; {list(right)} leave for it"
            yield _fault(start.job, max(1, len(set(start.after) ^ set(right))), "victims", text)


def _beneficiaries(victim: JobId, told: tuple[JobId, ...], right: tuple[JobId, ...]) -> Iterator[Violation]:
    if not right:
        text = f"job {victim} is preempted, and is in the way of no start of a higher level"
        yield _fault(victim, 1, "beneficiaries", text)
    if told != right:
        text = f"job {victim} is said to leave for {list(told)}; it leaves for {list(right)}"
        yield _fault(victim, max(1, len(set(told) ^ set(right))), "beneficiaries", text)


def _in_order(position: Mapping[JobId, int], jobs: Collection[JobId]) -> tuple[JobId, ...]:
    """The jobs in the order of the snapshot."""
    return tuple(sorted(jobs, key=position.__getitem__))


@dataclass(frozen=True, slots=True)
class Room:
    """One host that victims leave: what stays there, what leaves, what comes."""

    host: Host
    staying: tuple[Part, ...]
    leaving: tuple[Part, ...]
    coming: tuple[Part, ...]

    def keeping(self, victim: JobId) -> Room:
        """The host with that victim back where it was."""
        back = tuple(part for part in self.leaving if part.record.id == victim)
        others = tuple(part for part in self.leaving if part.record.id != victim)
        return Room(self.host, self.staying + back, others, self.coming)


def rooms_left(snapshot: Snapshot, starts: Sequence[Start], stopped: Collection[JobId]) -> dict[HostId, Room]:
    """Every host that one of the stopped jobs leaves."""
    records = {record.id: record for record in snapshot.jobs}
    names = {name for r in snapshot.jobs if r.id in stopped and r.placement for name in r.placement.hosts}
    staying = parts_by_host(((r, r.placement) for r in snapshot.jobs if r.id not in stopped), names)
    leaving = parts_by_host(((r, r.placement) for r in snapshot.jobs if r.id in stopped), names)
    coming = parts_by_host(((records[s.job], s.placement) for s in starts if s.job in records), names)
    return {
        host.id: Room(host, tuple(staying[host.id]), tuple(leaving[host.id]), tuple(coming[host.id]))
        for host in snapshot.hosts
        if host.id in names
    }


def _withheld(room: Room) -> Iterator[Violation]:
    """Starts of a level use what is free, and what victims of lower levels free; never what others free."""
    levels = sorted({part.record.level for part in room.coming})
    limits = (room.host.cpu_milli, room.host.memory_mib, room.host.network_mbps)
    units = (("CPU", "milli-cores"), ("memory", "MiB"), ("network", "Mbit/s"))
    for number, (limit, (what, unit)) in enumerate(zip(limits, units, strict=True)):
        for level in levels:
            kept = [part for part in room.leaving if part.record.level >= level]
            held = sum(_amounts(part)[number] for part in (*room.staying, *kept))
            asked = sum(_amounts(part)[number] for part in room.coming if part.record.level <= level)
            over = asked - max(0, limit - held)
            if kept and over > 0:
                text = (
                    f"on host {room.host.id} starts up to level {level} use {over} {unit} of {what} too much: what "
                    f"job {kept[0].record.id} of level {kept[0].record.level} frees is for higher levels only"
                )
                yield _fault(room.host.id, over, unit, text)
                break
    for index in sorted({index for part in room.coming for index in part.gpus}):
        gpu = room.host.gpu(index)
        leaving = [part for part in room.leaving if index in part.gpus]
        if gpu is not None and leaving:
            yield from _card_withheld(room, gpu, leaving)


def _amounts(part: Part) -> tuple[int, int, int]:
    return part.request.cpu_milli, part.request.memory_mib, part.request.network_mbps


def _card_withheld(room: Room, gpu: Gpu, leaving: Sequence[Part]) -> Iterator[Violation]:
    where, subject = f"GPU {gpu.index} of {room.host.id}", f"{room.host.id}/{gpu.index}"
    coming = [part for part in room.coming if gpu.index in part.gpus]
    staying = [part for part in room.staying if gpu.index in part.gpus]
    teams = {part.record.job.team for part in leaving}
    beside: list[Part] = []
    for part in coming:
        if part.request.fractional and teams == {part.record.job.team}:
            beside.append(part)
            continue
        kept = [other for other in leaving if other.record.level >= part.record.level]
        if kept:
            text = (
                f"{where} goes to job {part.record.id} of level {part.record.level}, and job {kept[0].record.id} of "
                f"level {kept[0].record.level} leaves it for higher levels only"
            )
            yield _fault(subject, len(kept), "victims", text)
    for level in sorted({part.record.level for part in beside}):
        kept = [part for part in leaving if part.record.level >= level]
        some = [part for part in beside if part.record.level <= level]
        for unit, number, limit in (("milli-GPU", 0, MILLI), ("MiB", 1, gpu.memory_mib)):
            held = sum(_on_card(part, gpu)[number] for part in (*staying, *kept))
            over = sum(_on_card(part, gpu)[number] for part in some) - max(0, limit - held)
            if kept and over > 0:
                text = (
                    f"fractions up to level {level} use {over} {unit} too much of {where}: what job "
                    f"{kept[0].record.id} of level {kept[0].record.level} frees is for higher levels only"
                )
                yield _fault(subject, over, unit, text)


def _on_card(part: Part, gpu: Gpu) -> tuple[int, int]:
    milli = part.request.gpu_milli if part.request.fractional else MILLI
    return milli, card_memory(part.request, gpu.memory_mib)


def broken(room: Room) -> bool:
    """Whether what comes does not fit there, or uses what is not for it."""
    return any(host_within(room.host, room.staying, room.coming)) or any(_withheld(room))


def _fault(subject: str, amount: int, unit: str, message: str) -> Violation:
    return Violation(family=RuleFamily.PREEMPTION, subject=subject, amount=amount, unit=unit, message=message)
