"""The verifier's half about the hosts that victims leave: what of it is for which starts (docs/rounds.md)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from ..model.decision import Resize, RuleFamily, Start
from ..model.host import MILLI, Gpu, Host
from ..model.ids import HostId, JobId
from ..model.snapshot import Snapshot
from .demand import card_memory
from .verify_hosts import Part, host_within, parts_by_host
from .verify_rights import Sides, Source, Taker, returning, unserved
from .violation import Violation


@dataclass(frozen=True, slots=True)
class Room:
    """One host that victims leave: what stays there, what leaves, what comes, and who may evict whom."""

    sides: Sides
    host: Host
    staying: tuple[Part, ...]
    leaving: tuple[Part, ...]
    coming: tuple[Part, ...]

    def keeping(self, victim: JobId) -> Room:
        """The host with that job back where it was, and not where it would return."""
        back = tuple(part for part in self.leaving if part.record.id == victim)
        others = tuple(part for part in self.leaving if part.record.id != victim)
        coming = tuple(part for part in self.coming if part.record.id != victim)
        return Room(self.sides, self.host, self.staying + back, others, coming)


def rooms_left(
    snapshot: Snapshot, starts: Sequence[Start], stopped: Collection[JobId], resizes: Sequence[Resize] = ()
) -> dict[HostId, Room]:
    """Every host that one of the stopped jobs leaves, or one that returns."""
    records = {record.id: record for record in snapshot.jobs}
    sides, starts = Sides(snapshot, starts, resizes), (*starts, *returning(resizes))
    stopped = {*stopped, *(each.job for each in resizes)}
    names = {name for r in snapshot.jobs if r.id in stopped and r.placement for name in r.placement.hosts}
    staying = parts_by_host(((r, r.placement) for r in snapshot.jobs if r.id not in stopped), names)
    leaving = parts_by_host(((r, r.placement) for r in snapshot.jobs if r.id in stopped), names)
    coming = parts_by_host(((records[s.job], s.placement) for s in starts if s.job in records), names)
    return {
        host.id: Room(sides, host, tuple(staying[host.id]), tuple(leaving[host.id]), tuple(coming[host.id]))
        for host in snapshot.hosts
        if host.id in names
    }


def withheld(room: Room) -> Iterator[Violation]:
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
    freed: Counter[Source] = Counter()
    asked: Counter[Taker] = Counter()
    for part in room.leaving:
        freed[room.sides.source(part.record)] += amount(part)
    for part in room.coming:
        asked[room.sides.taker(part.record)] += amount(part)
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


def broken(room: Room) -> bool:
    """Whether what comes does not fit there, or uses what is not for it."""
    return any(host_within(room.host, room.staying, room.coming)) or any(withheld(room))


def _fault(subject: str, amount: int, unit: str, message: str) -> Violation:
    return Violation(family=RuleFamily.PREEMPTION, subject=subject, amount=amount, unit=unit, message=message)
