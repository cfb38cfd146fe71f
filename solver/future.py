"""The fleet run forward: jobs end when they are expected to, others start where the rules put them."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Iterator
from copy import copy
from dataclasses import dataclass, replace

from ..model.decision import Preemption, Resize, Start
from ..model.ids import JobId
from ..model.job_state import WAITING, JobState, StopCause
from ..model.limits import grace_s
from ..model.placement import Progress
from ..model.policy import Policy
from ..model.reservation import Reservation
from ..model.snapshot import JobRecord, Snapshot
from .drains import reservations_by_job
from .team_usage import TeamUsage
from .walltimes import Basis, Walltimes, saved_s

_BACK = frozenset(
    {
        StopCause.PREEMPTED,
        StopCause.REQUEUED,
        StopCause.HOST_LOST,
        StopCause.START_FAILED,
        StopCause.START_TIMEOUT,
        StopCause.HELD,
    }
)
"""Causes after which a stopped job comes back to the queue, or is held."""


@dataclass(frozen=True, slots=True)
class Began:
    """When a job gets its hosts, what that rests on, and after how many looks at the fleet it was found."""

    at_s: int
    basis: Basis
    steps: int


class Future:
    """The jobs of a snapshot as they are expected to stand at `now_s`, which only moves on.

    Every job is expected to succeed; jobs that nobody has submitted yet do not come.
    """

    def __init__(self, snapshot: Snapshot, policy: Policy, walltimes: Walltimes) -> None:
        self.now_s = snapshot.now_s
        self.began: dict[JobId, Began] = {}
        self.failed: set[JobId] = set()
        self.expired: set[JobId] = set()
        self._snapshot, self._policy, self._walltimes = snapshot, policy, walltimes
        self._records = {record.id: record for record in snapshot.jobs}
        self._due: dict[JobId, int] = {}
        self._events: list[tuple[int, JobId]] = []
        self._dependents: dict[JobId, list[JobId]] = defaultdict(list)
        self._bases: set[Basis] = set()
        self._ends: dict[JobId, Basis] = {}
        for record in snapshot.jobs:
            for other in record.job.after:
                self._dependents[other].append(record.id)
            if record.state.holds_capacity:
                self._expect_end(record, self.now_s)
            elif record.state is JobState.QUEUED and record.not_before_s > self.now_s:
                self._put(record.id, record.not_before_s)
        for at_s in {window.end_s for host in snapshot.hosts for window in host.windows if window.end_s > self.now_s}:
            self._put(JobId(f"window:{at_s}"), at_s)
        self.plans: dict[JobId, Reservation] = {}
        self._follow(reservations_by_job(snapshot).values())
        self._usage = TeamUsage(snapshot, policy)
        for record in snapshot.jobs:
            self._unblock(record.id)

    def snapshot(self) -> Snapshot:
        """The world as a round at `now_s` would see it."""
        # Checking all references again at each step would take a third of the time; records move by the rules only.
        later = copy(self._snapshot)
        object.__setattr__(later, "now_s", self.now_s)
        object.__setattr__(later, "jobs", tuple(self._records.values()))
        object.__setattr__(later, "reservations", tuple(self.plans.values()))
        object.__setattr__(later, "teams", self._usage.teams(self.now_s))
        return later

    def candidates(self) -> Iterator[JobRecord]:
        """The gangs that a round at `now_s` may start."""
        for record in self._records.values():
            if record.state is JobState.QUEUED and record.not_before_s <= self.now_s:
                yield record

    def state(self, job: JobId) -> JobState | None:
        """How the job stands; None once it has ended."""
        record = self._records.get(job)
        return None if record is None else record.state

    def next_s(self) -> int | None:
        """When the next thing happens; None where nothing more is expected."""
        while self._events and self._due.get(self._events[0][1]) != self._events[0][0]:
            heapq.heappop(self._events)
        return self._events[0][0] if self._events else None

    def advance(self, until_s: int) -> list[JobRecord]:
        """Lets all happen up to `until_s`; the clock then stands at the last event. Returns whose hosts came free."""
        freed = []
        while (at_s := self.next_s()) is not None and at_s <= until_s:
            _, name = heapq.heappop(self._events)
            del self._due[name]
            self.now_s = at_s
            record = self._records.get(name)  # None at the end of a maintenance window, and where a plan is due
            if record is not None and record.state.holds_capacity:
                freed.append(record)
                self._usage.leaves(record, at_s)
                self._bases.add(self._ends.pop(name))
                self._end(record)
        self._expire()
        return freed

    def carry_out(
        self,
        starts: tuple[Start, ...],
        preemptions: tuple[Preemption, ...],
        steps: int,
        reservations: tuple[Reservation, ...] | None = None,
        resizes: tuple[Resize, ...] = (),
    ) -> None:
        """Starts and preempts as decided; a beneficiary gets its hosts once its victims have left them clean.

        Who returns leaves as a victim does, and later rounds start it on the hosts that are held for it.
        `reservations` are all that hold from now on; None: the earlier ones of gangs that do not start.
        """
        if reservations is None:
            starting = {start.job for start in starts}
            reservations = tuple(plan for plan in self.plans.values() if plan.job not in starting)
        self._follow(reservations)
        gone: dict[JobId, int] = {}
        for preemption in preemptions:
            gone[preemption.job] = self._evict(self._records[preemption.job])
        for act in resizes:
            gone[act.job] = self._returns(self._records[act.job], act)
        basis = next((basis for basis in (Basis.ESTIMATE, Basis.LIMIT) if basis in self._bases), Basis.NOW)
        for start in starts:
            at_s = max([self.now_s, *(gone[victim] for victim in start.after if victim in gone)])
            record = replace(
                self._records[start.job],
                state=JobState.RUNNING,
                attempt=start.attempt,
                placement=start.placement,
                inside_guarantee=start.inside_guarantee,
                planned_s=self.now_s,
                started_s=at_s + self._policy.eviction.launch_s,
                state_since_s=at_s,
                replacing=(),
                replacing_until_s=0,
                resized_to=None,
            )
            self._records[record.id] = record
            self._usage.takes(record, self.now_s)
            self.began.setdefault(record.id, Began(at_s, basis, steps))
            self._expect_end(record, record.started_s or at_s)

    def _follow(self, reservations: Iterable[Reservation]) -> None:
        """Plans of jobs that wait; a round looks again when one is due, for nothing else need happen then."""
        for plan in self.plans.values():
            self._due.pop(_plan_name(plan), None)
        kept = (plan for plan in reservations if plan.job in self._records)
        self.plans = {plan.job: plan for plan in kept if self._records[plan.job].state is JobState.QUEUED}
        for plan in self.plans.values():
            if plan.planned_start_s > self.now_s:
                self._put(_plan_name(plan), plan.planned_start_s)

    def _expect_end(self, record: JobRecord, from_s: int) -> None:
        span = self._walltimes.held(record, from_s)
        self._ends[record.id] = span.basis
        self._put(record.id, from_s + span.seconds)

    def _put(self, job: JobId, at_s: int) -> None:
        self._due[job] = at_s
        heapq.heappush(self._events, (at_s, job))

    def _evict(self, record: JobRecord) -> int:
        saved = Progress(saved_work_s=saved_s(record, self.now_s), last_checkpoint_s=self.now_s)
        record = replace(
            record,
            state=JobState.STOPPING,
            stop_cause=StopCause.PREEMPTED,
            state_since_s=self.now_s,
            evictions=(*record.evictions, self.now_s),
            progress=saved,
        )
        self._records[record.id] = record
        self._expect_end(record, self.now_s)
        return self.now_s + grace_s(record.job) + self._policy.eviction.clean_s

    def _returns(self, record: JobRecord, act: Resize) -> int:
        """The job stops to come back there, at that size."""
        gone_s = self._evict(record)
        elastic, limits = record.job.elastic, self._policy.eviction
        size = sum(elastic is None or worker.role == elastic.role for worker in act.placement.workers)
        moved = record.placement is not None and len(act.placement.workers) >= len(record.placement.workers)
        self._records[record.id] = replace(
            self._records[record.id],
            stop_cause=StopCause.REQUEUED,
            evictions=record.evictions,
            replacing=act.placement.hosts,
            replacing_until_s=gone_s + limits.launch_s + self._policy.time.start_timeout_s,
            resized_to=size,
            moves=(*record.moves, self.now_s) if moved else record.moves,
        )
        return gone_s

    def _end(self, record: JobRecord) -> None:
        cause = record.stop_cause if record.state is JobState.STOPPING else StopCause.FINISHED
        if cause in _BACK:
            state = JobState.HELD if cause is StopCause.HELD else JobState.QUEUED
            self._records[record.id] = replace(
                record, state=state, placement=None, started_s=None, planned_s=None, stop_cause=None
            )
            return
        del self._records[record.id]
        if cause not in (StopCause.FINISHED, None):
            self.failed.add(record.id)
        for name in self._dependents[record.id]:
            self._unblock(name)

    def _unblock(self, name: JobId) -> None:
        """Queues a blocked job whose dependencies are over; drops it, and all that wait for it, where one failed."""
        record = self._records.get(name)
        if record is None or record.state is not JobState.BLOCKED:
            return
        if any(other in self.failed for other in record.job.after):
            self._drop(record, self.failed)
        elif not any(other in self._records for other in record.job.after):
            self._records[name] = replace(record, state=JobState.QUEUED)
            if record.not_before_s > self.now_s:
                self._put(name, record.not_before_s)

    def _drop(self, record: JobRecord, where: set[JobId]) -> None:
        del self._records[record.id]
        where.add(record.id)
        self.failed.add(record.id)
        for name in self._dependents[record.id]:
            self._unblock(name)

    def _expire(self) -> None:
        for record in list(self._records.values()):
            deadline_s = record.job.queue_deadline_s
            if deadline_s is not None and record.state in WAITING and self.now_s >= record.submitted_s + deadline_s:
                self._drop(record, self.expired)


def _plan_name(plan: Reservation) -> JobId:
    """What a planned start is called among the events: no job's name has a colon."""
    return JobId(f"plan:{plan.job}")
