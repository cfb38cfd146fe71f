"""The verifier's half about needless victims: what could stay must stay."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from ..model.decision import Preemption, Resize, RuleFamily, Start
from ..model.ids import JobId
from ..model.policy import Policy
from ..model.reservation import Reservation
from ..model.snapshot import JobRecord, Snapshot
from .goals import economy
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
    resizes: Sequence[Resize] = (),
) -> Iterator[Violation]:
    """Putting any single victim back where it was breaks a rule: of hosts, a limit, a pool, a label, or a plan.

    So does putting back any job that returns; or, where it moves or grows, it makes `economy` less or it is allowed.
    """
    stopped, back = {act.job for act in preemptions}, {act.job: act for act in resizes}
    if not stopped and not back:
        return
    rooms = rooms_left(snapshot, starts, stopped, resizes)
    holdings, labelled = Holdings(snapshot, starts, stopped, resizes), Labelled(snapshot, starts, stopped, resizes)
    pooled = Pooled(snapshot, policy, starts, stopped, resizes)
    planned = board(snapshot, policy, starts, stopped, reservations, resizes)
    for record in snapshot.jobs:
        if record.placement is None or (record.id not in stopped and record.id not in back):
            continue
        held = [rooms[name].keeping(record.id) for name in record.placement.hosts if name in rooms]
        needed = any(bar.forbids(record) for bar in (holdings, labelled, pooled, planned))
        if needed or any(broken(room) for room in held):
            continue
        if record.id in stopped:
            text = f"job {record.id} is preempted needlessly: with it back where it was, every start still fits"
            yield Violation(family=RuleFamily.PREEMPTION, subject=record.id, amount=1, unit="needless", message=text)
        elif not _worth(record, back[record.id], snapshot, policy, starts, stopped, resizes):
            text = f"job {record.id} returns needlessly: with it back where it was, every start still fits"
            yield Violation(family=RuleFamily.ELASTIC, subject=record.id, amount=1, unit="needless", message=text)


def _worth(
    record: JobRecord,
    act: Resize,
    snapshot: Snapshot,
    policy: Policy,
    starts: Sequence[Start],
    stopped: Collection[JobId],
    resizes: Sequence[Resize],
) -> bool:
    """Whether a return that no start needs pays by itself: a job grows, or moves for what `economy` gains."""
    before = len(record.placement.workers) if record.placement is not None else 0
    if len(act.placement.workers) != before:
        return len(act.placement.workers) > before
    others = [other for other in resizes if other.job != act.job]
    gain = economy(snapshot, policy, starts, stopped, resizes).value
    return gain > economy(snapshot, policy, starts, stopped, others).value
