"""Applying what happened in the world, once per event."""

from __future__ import annotations

from collections.abc import Sequence

from ...model.codec import dumps, tag
from ...model.event import AgentReport, Event, GangEvent, GangExited, GangStartFailed, HostChanged
from ...model.host import Strike
from ...model.ids import HostId
from ...model.policy import Policy
from ...model.snapshot import JobRecord
from . import health
from .attempt import apply_event
from .books import Books, HostRow, LogEntry
from .changes import save
from .usage import charge


def append(books: Books, events: Sequence[Event], now_s: int, policy: Policy) -> int:
    """Applies the events in order; returns how many were new.

    Events of jobs and hosts that the store does not know are logged and change nothing: an executor may sweep what
    another store left behind.
    """
    return sum(_apply(books, event, now_s, policy) for event in events)


def _apply(books: Books, event: Event, now_s: int, policy: Policy) -> bool:
    if isinstance(event, AgentReport):
        return _report(books, event)
    if books.logged(event.id):
        return False
    subject = f"host {event.host}" if isinstance(event, HostChanged) else f"job {event.job}"
    kind = tag(type(event))
    books.log(LogEntry(at_s=now_s, kind=kind, subject=subject, document=dumps(event), event_id=event.id))
    if isinstance(event, HostChanged):
        row = books.host(event.host)
        if row is not None:
            _put(books, row, health.on_host_changed(row, event))
    else:
        _apply_to_job(books, event, now_s, policy)
    return True


def _report(books: Books, event: AgentReport) -> bool:
    # Reports come from every host every few seconds: they are not logged, and written only when they tell news.
    row = books.host(event.host)
    return row is not None and _put(books, row, health.on_report(row, event))


def _apply_to_job(books: Books, event: GangEvent, now_s: int, policy: Policy) -> None:
    old = books.job(event.job)
    if old is None:
        return
    new = save(books, old, apply_event(old, event, policy, now_s), now_s)
    if new is old:
        return
    if not new.state.holds_capacity:
        charge(books, old, now_s, policy)
    _judge_hosts(books, event, old, new, policy)


def _judge_hosts(books: Books, event: GangEvent, old: JobRecord, new: JobRecord, policy: Policy) -> None:
    blamed: Sequence[HostId] = ()
    if isinstance(event, GangStartFailed) and event.host is not None:
        blamed = (event.host,)
    elif isinstance(event, GangExited):
        blamed = health.blamed_hosts(old, new, event, policy.failure)
        if health.ran_well(old, new, policy.failure):
            _forgive(books, old)
    for host in blamed:
        row = books.host(host)
        if row is not None:
            blow = Strike(job=new.id, at_s=new.state_since_s, cause=new.message)
            _put(books, row, health.strike(row, blow, policy.failure))


def _forgive(books: Books, record: JobRecord) -> None:
    for host in record.placement.hosts if record.placement else ():
        row = books.host(host)
        if row is not None:
            _put(books, row, health.forgive(row))


def _put(books: Books, old: HostRow, new: HostRow) -> bool:
    if new == old:
        return False
    books.put_host(new)
    return True
