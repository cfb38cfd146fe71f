"""Which planned starts are tried for a gang that drains hosts: when work leaves them, from the first fit on."""

from __future__ import annotations

from ..model.ids import JobId
from ..model.policy import Policy
from ..model.snapshot import JobRecord, Snapshot
from .demand import candidates, placeable, surely_over_s
from .drains import Clear, last_start_s, promises
from .later_books import LaterBooks
from .remember import remembered


@remembered
def _known(snapshot: Snapshot, policy: Policy) -> dict[JobId, tuple[JobRecord, tuple[int, ...]]]:
    """The candidate starts found so far in that round, by gang."""
    return {}


def candidate_starts(gang: JobRecord, snapshot: Snapshot, policy: Policy) -> tuple[int, ...]:
    """The planned starts that a round tries for the gang, rising; empty where it fits at none up to the horizon.

    They lie at most `plan_horizon_s` ahead, and of a gang without a promise no farther than it has waited.
    At most `max_candidate_starts`: from the first at which the gang alone fits. They are now, the ends of running work,
    the ends of maintenance windows, and the sure ends of the gangs of higher levels that might start now. Always among
    them are what was promised and the last of these ends, so that a promise that is broken is not lost.
    """
    known = _known(snapshot, policy)
    if gang.id not in known or known[gang.id][0] is not gang:
        known[gang.id] = gang, _candidate_starts(gang, snapshot, policy)
    return known[gang.id][1]


def plannable_s(gang: JobRecord, snapshot: Snapshot, policy: Policy) -> int | None:
    """When a gang without a promise will have waited as long as its earliest sure start is ahead, if nothing happens.

    None where it has already, or fits at none of these starts up to the horizon.
    """
    times = _times(gang, snapshot, policy, snapshot.now_s + policy.time.plan_horizon_s)
    first = LaterBooks(snapshot, policy, gang).earliest(times)
    if first is None:
        return None
    at_s = (first[0] + gang.submitted_s + 1) // 2
    return at_s if at_s > snapshot.now_s else None


def _candidate_starts(gang: JobRecord, snapshot: Snapshot, policy: Policy) -> tuple[int, ...]:
    now_s, most = snapshot.now_s, policy.time.max_candidate_starts
    always = {promise.start_s for promise in promises(snapshot, policy) if promise.record.id == gang.id}
    # What is promised already may move as it must.
    last_s = now_s + policy.time.plan_horizon_s if always else last_start_s(gang, snapshot, policy)
    times = _times(gang, snapshot, policy, last_s)
    first = LaterBooks(snapshot, policy, gang).earliest(times)
    times = [] if first is None else [time for time in times if time >= first[0]]
    always.update(sorted(_higher(gang, snapshot, policy).intersection(times))[-1:])
    return tuple(sorted({*times[: max(0, most - len(always.difference(times[:most])))], *always}))


def _times(gang: JobRecord, snapshot: Snapshot, policy: Policy, last_s: int) -> list[int]:
    """All starts that could be tried from now up to `last_s`, rising."""
    clear = Clear(snapshot, policy)
    ends = {clear(record, gang) for record in snapshot.jobs if record.placement is not None}
    windows = {window.end_s for host in snapshot.hosts if placeable(host) for window in host.windows}
    times = {snapshot.now_s, *ends, *windows, *_higher(gang, snapshot, policy)}
    return sorted(time for time in times if snapshot.now_s <= time <= last_s)


def _higher(gang: JobRecord, snapshot: Snapshot, policy: Policy) -> set[int]:
    """The sure ends of the gangs of higher levels that might start now."""
    return {surely_over_s(other, snapshot, policy) for other in candidates(snapshot) if other.level > gang.level}
