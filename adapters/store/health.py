"""How a host's row changes: states seen and states ordered, strikes, and the black-hole rule (RULES 7)."""

from __future__ import annotations

from dataclasses import replace

from ...model.event import AgentReport, GangExited, HostChanged
from ...model.host import Host, HostState, Strike
from ...model.ids import HostId
from ...model.job_state import JobState, StopCause
from ...model.policy import FailurePolicy
from ...model.snapshot import JobRecord
from .books import HostRow

SEEN = frozenset({HostState.DOWN, HostState.SUSPECT})
"""States that are observed; the others are ordered, by an operator or by the black-hole rule."""

HARMLESS = frozenset({0, -15, -9})
"""Exit codes that say nothing about a host: success, and the signals by which the other ranks are stopped."""


def on_host_changed(row: HostRow, event: HostChanged) -> HostRow:
    """The row after a change of state.

    A host that goes down while it is cordoned, say, is cordoned again when it comes back.
    """
    host = row.host
    state, cause, ordered, ordered_cause = event.state, event.cause, row.ordered, row.ordered_cause
    if state in SEEN:
        if host.state not in SEEN:
            ordered, ordered_cause = host.state, host.state_cause
    elif state is HostState.READY and host.state in SEEN:
        state, cause = ordered, ordered_cause
    else:
        ordered, ordered_cause = state, cause
    if (state, cause) == (host.state, host.state_cause):
        return replace(row, ordered=ordered, ordered_cause=ordered_cause)
    since_s = host.state_since_s if state is host.state else event.at_s
    strikes = () if state is HostState.READY and host.state not in SEEN else host.strikes
    changed = replace(
        host, state=state, state_cause=cause, state_since_s=since_s, strikes=strikes, version=host.version + 1
    )
    return replace(row, host=changed, ordered=ordered, ordered_cause=ordered_cause)


def on_report(row: HostRow, event: AgentReport) -> HostRow:
    """The row with what the agent reports. No new version: placement stays valid whatever lies in a cache."""
    if event.at_s < row.reported_s:
        return row
    host = row.host
    if (host.cached, host.disk_free_mib) == (event.cached, event.disk_free_mib):
        return row
    told = replace(host, cached=event.cached, disk_free_mib=event.disk_free_mib)
    return replace(row, host=told, reported_s=event.at_s)


def new_inventory(known: HostRow | None, host: Host, now_s: int) -> HostRow:
    """The row of a host that is added or whose inventory is replaced; a known one keeps what was learned of it."""
    if known is None:
        since_s = host.state_since_s or now_s
        return HostRow(host=replace(host, version=1, state_since_s=since_s), ordered=_ordered(host))
    old = known.host
    merged = replace(
        host,
        state=old.state,
        state_cause=old.state_cause,
        state_since_s=old.state_since_s,
        strikes=old.strikes,
        cached=old.cached,
        disk_free_mib=old.disk_free_mib,
        version=old.version,
    )
    return known if merged == old else replace(known, host=replace(merged, version=old.version + 1))


def strike(row: HostRow, blow: Strike, failure: FailurePolicy) -> HostRow:
    """One more strike; failures of enough different jobs empty a ready host."""
    host = replace(row.host, strikes=(*(old for old in row.host.strikes if old.job != blow.job), blow))
    jobs = [old.job for old in host.strikes]
    if host.state is not HostState.READY or len(jobs) < failure.evacuate_after_jobs:
        return replace(row, host=host)
    cause = f"{len(jobs)} different jobs failed fast here: {', '.join(jobs)}"
    emptied = replace(
        host,
        state=HostState.EVACUATING,
        state_cause=cause,
        state_since_s=blow.at_s,
        version=host.version + 1,
    )
    return replace(row, host=emptied, ordered=emptied.state, ordered_cause=cause)


def forgive(row: HostRow) -> HostRow:
    """The row without strikes: a gang has run well on this host."""
    return replace(row, host=replace(row.host, strikes=()))


def blamed_hosts(old: JobRecord, new: JobRecord, event: GangExited, failure: FailurePolicy) -> tuple[HostId, ...]:
    """The hosts of the ranks that failed by themselves within `fast_failure_s` of their start; else none."""
    failed = old.state is JobState.RUNNING and new.stop_cause is StopCause.FAILED
    if not failed or old.placement is None or not _ran_fast(new, failure):
        return ()
    workers = old.placement.workers
    failing = [end.rank for end in event.exits if end.code not in HARMLESS and end.rank < len(workers)]
    return tuple(dict.fromkeys(workers[rank].host for rank in failing))


def ran_well(old: JobRecord, new: JobRecord, failure: FailurePolicy) -> bool:
    """Whether the attempt that exits now finished, or ran longer than a bad host would have let it."""
    return old.state is JobState.RUNNING and (new.stop_cause is StopCause.FINISHED or not _ran_fast(new, failure))


def _ran_fast(record: JobRecord, failure: FailurePolicy) -> bool:
    return record.started_s is None or record.state_since_s - record.started_s <= failure.fast_failure_s


def _ordered(host: Host) -> HostState:
    return HostState.READY if host.state in SEEN else host.state
