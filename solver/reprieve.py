"""Keeps running what need not leave: each victim goes back where it was if all starts still keep the rules."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from ..model.decision import Resize, Start
from ..model.ids import JobId
from ..model.policy import Policy
from ..model.snapshot import JobRecord, Snapshot
from .goals import economy, victim_cost
from .plan import Plan, assemble
from .rights import rights_of
from .sizes import settled
from .verify_affinity import Labelled
from .verify_planned import Board, Planned
from .verify_quota import Holdings
from .verify_reserved import Pooled
from .verify_rights import returning
from .verify_rooms import broken, rooms_left


def reprieve(
    snapshot: Snapshot,
    policy: Policy,
    starts: Sequence[Start],
    victims: Iterable[JobId],
    plans: Sequence[Planned] = (),
    resizes: Sequence[Resize] = (),
) -> Plan:
    """The plan without needless victims and returns; put back first: victims, high levels, inside, dear."""
    snapshot = settled(snapshot)
    chosen, inside = set(victims), rights_of(snapshot).inside
    back = {act.job: act for act in resizes}
    leaving = [record for record in snapshot.jobs if record.id in chosen or record.id in back]
    rooms = rooms_left(snapshot, starts, chosen, resizes)
    holdings, labelled = Holdings(snapshot, starts, chosen, resizes), Labelled(snapshot, starts, chosen, resizes)
    records = {record.id: record for record in snapshot.jobs}
    coming = [(records[act.job], act.placement) for act in (*starts, *returning(resizes))]
    planned = Board(snapshot, policy, plans, coming, chosen.union(back))
    bars = (holdings, labelled, Pooled(snapshot, policy, starts, chosen, resizes), planned)

    def dear(record: JobRecord) -> tuple[bool, int, bool, int, JobId]:
        cost = victim_cost(record, snapshot, policy)
        return record.id in back, -record.level, record.id not in inside, -cost, record.id

    for record in sorted(leaving, key=dear):
        if any(bar.forbids(record) for bar in bars) or _pays(record, back, chosen, starts, snapshot, policy):
            continue
        hosts = {*(record.placement.hosts if record.placement else ())}
        if record.id in back:
            hosts.update(back[record.id].placement.hosts)
        kept = {name: rooms[name].keeping(record.id) for name in hosts if name in rooms}
        if not any(broken(room) for room in kept.values()):
            rooms.update(kept)
            for bar in bars:
                bar.put_back(record)
            chosen.discard(record.id)
            back.pop(record.id, None)
    return assemble(snapshot, policy, starts, chosen, plans, back.values())


def _pays(
    record: JobRecord,
    back: Mapping[JobId, Resize],
    chosen: Collection[JobId],
    starts: Sequence[Start],
    snapshot: Snapshot,
    policy: Policy,
) -> bool:
    """Whether the job grows, or moves for what `economy` gains by it."""
    act, before = back.get(record.id), len(record.placement.workers) if record.placement else 0
    if act is None or len(act.placement.workers) < before:
        return False
    if len(act.placement.workers) > before:
        return True
    all_of_them, others = tuple(back.values()), tuple(other for other in back.values() if other is not act)
    with_it, without = (economy(snapshot, policy, starts, chosen, acts).value for acts in (all_of_them, others))
    return with_it > without
