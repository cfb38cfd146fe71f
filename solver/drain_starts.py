"""Which planned starts are tried for a gang that drains hosts: when work leaves them, from the first fit on."""

from __future__ import annotations

from ..model.policy import Policy
from ..model.snapshot import JobRecord, Snapshot
from .demand import placeable
from .drains import Clear, promises
from .later_books import LaterBooks


def candidate_starts(gang: JobRecord, snapshot: Snapshot, policy: Policy) -> tuple[int, ...]:
    """The planned starts that a round tries for the gang, rising; empty where it fits at none up to the horizon.

    At most `max_candidate_starts`: from the first at which the gang alone fits, and what it was promised. They are now,
    the ends of running work, and the ends of maintenance windows.
    """
    now_s, most = snapshot.now_s, policy.time.max_candidate_starts
    clear = Clear(snapshot, policy)
    ends = {clear(record, gang) for record in snapshot.jobs if record.placement is not None}
    windows = {window.end_s for host in snapshot.hosts if placeable(host) for window in host.windows}
    last_s = now_s + policy.time.plan_horizon_s
    times = sorted(time for time in {now_s, *ends, *windows} if now_s <= time <= last_s)
    first = LaterBooks(snapshot, policy, gang).earliest(times)
    times = [] if first is None else [time for time in times if time >= first[0]][:most]
    promised = [promise.start_s for promise in promises(snapshot, policy) if promise.record.id == gang.id]
    if promised and promised[0] not in times:
        times = sorted([*times[: most - 1], *promised])
    return tuple(times)
