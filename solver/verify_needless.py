"""The verifier's half about needless victims: what could stay must stay."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..model.decision import Preemption, RuleFamily, Start
from ..model.policy import Policy
from ..model.reservation import Reservation
from ..model.snapshot import Snapshot
from .verify_affinity import Labelled
from .verify_planned import board
from .verify_quota import Holdings
from .verify_reserved import Pooled
from .verify_rooms import broken, rooms_left
from .violation import Violation


def needless(
    snapshot: Snapshot,
    policy: Policy,
    starts: Sequence[Start],
    preemptions: Sequence[Preemption] = (),
    reservations: Sequence[Reservation] = (),
) -> Iterator[Violation]:
    """Putting any single victim back where it was breaks a rule: of hosts, a limit, a pool, a label, or a plan."""
    stopped = {act.job for act in preemptions}
    if not stopped:
        return
    rooms = rooms_left(snapshot, starts, stopped)
    holdings, labelled = Holdings(snapshot, starts, stopped), Labelled(snapshot, starts, stopped)
    pooled = Pooled(snapshot, policy, starts, stopped)
    planned = board(snapshot, policy, starts, stopped, reservations)
    for record in snapshot.jobs:
        if record.id not in stopped or record.placement is None:
            continue
        held = [rooms[name].keeping(record.id) for name in record.placement.hosts if name in rooms]
        needed = any(bar.forbids(record) for bar in (holdings, labelled, pooled, planned))
        if not (needed or any(broken(room) for room in held)):
            text = f"job {record.id} is preempted needlessly: with it back where it was, every start still fits"
            yield Violation(family=RuleFamily.PREEMPTION, subject=record.id, amount=1, unit="needless", message=text)
