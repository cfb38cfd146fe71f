"""Giving an attempt's resources back: only once nothing of it runs, and only as done once the hosts are clean."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from ...model.event import Event, GangReleased, HostChanged
from ...model.host import HostState
from ...model.ids import HostId
from ...model.intent import ReleaseGang
from ..ports import Clock
from ..reconcile import LOST
from . import actors, compat
from .attempt_files import HostStatus
from .machines import Machines
from .records import Key, Record, Records
from .sight import Sight
from .waits import Waits


class Releases:
    """Releases attempts step by step; a step that must wait tells nothing and is tried again at the next round."""

    def __init__(self, sight: Sight, records: Records, machines: Machines, clock: Clock, waits: Waits) -> None:
        self._sight = sight
        self._records = records
        self._machines = machines
        self._clock = clock
        self._waits = waits
        self._since: dict[Key, float] = {}
        self._removed: dict[Key, float] = {}

    def release(self, instruction: ReleaseGang, stop: Callable[[Key, int], None]) -> tuple[Event, ...]:
        """One try. GangReleased once done; HostChanged(suspect) for a host that does not come clean in time."""
        key = (instruction.job, instruction.attempt)
        since = self._since.setdefault(key, time.monotonic())
        record = self._record(key, instruction)
        overdue = time.monotonic() - since >= self._waits.overdue_s + record.grace_s
        if self._still_run(record, stop) and not (overdue or instruction.orphan):
            return ()
        for runner in self._sight.runners(key).values():
            actors.kill_actor(runner)
        left = self._left_on_hosts(record)
        if left:
            return self._unclean(record, left)
        group = self._sight.groups().get(key)
        if group is not None:
            record = replace(record, releasing=True)
            self._records.put(record)
            compat.remove_group(group)
        removed = self._removed.setdefault(key, time.monotonic())
        odd = self._odd(record.hosts)
        if odd:
            settled = time.monotonic() - removed >= self._waits.settle_s
            return self._unclean(record, odd) if settled else ()
        return self._done(key, instruction)

    def _record(self, key: Key, instruction: ReleaseGang) -> Record:
        known = self._records.get(key)
        if known is not None:
            return known
        hosts = self._sight.hosts_of(key) or instruction.hosts
        return Record(job=key[0], attempt=key[1], cluster="", cards=dict.fromkeys(hosts, ()))

    def _still_run(self, record: Record, stop: Callable[[Key, int], None]) -> bool:
        """Whether ranks live on a host that is alive; those that nobody has warned are stopped."""
        key = record.key
        living = self._sight.living(record.hosts)
        asked = {host: actors.call(runner, "status") for host, runner in self._sight.runners(key).items()}
        answers = actors.answers({host: ref for host, ref in asked.items() if host in living}, self._waits.answer_s)
        running = [answer for answer in answers.values() if isinstance(answer, HostStatus) and answer.supervised]
        if any(not status.stopping for status in running):
            stop(key, 0)
        # A supervisor whose runner is gone ends its ranks by itself, within its grace.
        alone = {host: node for host, node in living.items() if not isinstance(answers.get(host), HostStatus)}
        traces = self._machines.ask(alone, "status", lambda host: (self._sight.folders.on(host).logs, *key, host))
        return bool(running) or any(isinstance(t, HostStatus) and t.supervised for t in traces.values())

    def _left_on_hosts(self, record: Record) -> dict[HostId, str]:
        living = self._sight.living(record.hosts)
        found: dict[HostId, str] = {}
        swept = self._machines.ask(living, "sweep", lambda host: (record.job, record.attempt, host))
        foreign = self._machines.ask(living, "foreign", lambda host: (record.cards[host],))
        for host in living:
            for answer in (swept[host], foreign[host]):
                if isinstance(answer, Exception):
                    found[host] = f"the host does not answer: {answer}"
                elif answer:
                    found.setdefault(host, ", ".join(answer))
        return found

    def _odd(self, hosts: tuple[HostId, ...]) -> dict[HostId, str]:
        deadline = time.monotonic() + 0.5
        while True:
            odd = {host: what for host in hosts if (what := self._sight.unexplained(host))}
            if not odd or time.monotonic() >= deadline:
                return odd
            time.sleep(0.03)

    def _unclean(self, record: Record, left: dict[HostId, str]) -> tuple[Event, ...]:
        """Remembers what is left, so that it is tried again, and tells of it once a host."""
        fresh = {host: what for host, what in left.items() if host not in record.unclean}
        self._records.put(replace(record, releasing=True, unclean=left))
        now_s = self._clock.now_s()
        return tuple(
            HostChanged(
                id=f"{record.job}/{record.attempt}/suspect/{host}/{now_s}",
                at_s=now_s,
                host=host,
                state=HostState.SUSPECT,
                cause=f"{LOST}not clean: {what}",
            )
            for host, what in fresh.items()
        )

    def _done(self, key: Key, instruction: ReleaseGang) -> tuple[Event, ...]:
        self._sight.forget(key)
        self._records.drop(key)
        self._since.pop(key, None)
        self._removed.pop(key, None)
        if instruction.orphan:
            return ()
        job, attempt = key
        return (GangReleased(id=f"{job}/{attempt}/released", at_s=self._clock.now_s(), job=job, attempt=attempt),)
