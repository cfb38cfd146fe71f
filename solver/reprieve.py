"""Keeps running what need not leave: each victim goes back where it was if all starts still keep the rules."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..model.decision import Start
from ..model.ids import JobId
from ..model.policy import Policy
from ..model.snapshot import Snapshot
from .goals import victim_cost
from .plan import Plan, assemble
from .rights import rights_of
from .verify_affinity import Labelled
from .verify_planned import Board, Planned
from .verify_quota import Holdings
from .verify_reserved import Pooled
from .verify_rooms import broken, rooms_left


def reprieve(
    snapshot: Snapshot,
    policy: Policy,
    starts: Sequence[Start],
    victims: Iterable[JobId],
    plans: Sequence[Planned] = (),
) -> Plan:
    """The plan of these starts without needless victims; put back first: high levels, inside, dear."""
    chosen, inside = set(victims), rights_of(snapshot).inside
    leaving = [record for record in snapshot.jobs if record.id in chosen]
    rooms = rooms_left(snapshot, starts, chosen)
    holdings, labelled = Holdings(snapshot, starts, chosen), Labelled(snapshot, starts, chosen)
    records = {record.id: record for record in snapshot.jobs}
    planned = Board(snapshot, policy, plans, [(records[start.job], start.placement) for start in starts], chosen)
    bars = (holdings, labelled, Pooled(snapshot, policy, starts, chosen), planned)
    for record in sorted(
        leaving, key=lambda r: (-r.level, r.id not in inside, -victim_cost(r, snapshot, policy), r.id)
    ):
        if any(bar.forbids(record) for bar in bars):
            continue
        hosts = record.placement.hosts if record.placement else ()
        back = {name: rooms[name].keeping(record.id) for name in hosts if name in rooms}
        if not any(broken(room) for room in back.values()):
            rooms.update(back)
            for bar in bars:
                bar.put_back(record)
            chosen.remove(record.id)
    return assemble(snapshot, policy, starts, chosen, plans)
