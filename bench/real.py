"""Worlds from the public traces: who runs at some moment, who waits, and what the trace brings next.

The states here are made directly from the trace, without simulation: of all jobs that were submitted and would not have
ended had they started at once, those that find a place in order of submission run since then, and the others wait. So
nobody has queued before that moment; a real queue would be longer.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..model.ids import JobId
from ..model.job_state import JobState
from ..model.policy import Policy
from ..model.snapshot import JobRecord, Snapshot
from ..solver.books import Books
from ..solver.collector import paused_collector
from ..solver.placing import Placer
from .made_up import one_in_a_hundred
from .overlay import DAY, HOUR
from .stages import EVERY_S, ended
from .traces import Choice, named
from .workload import SimJob, Workload, runnable

LEAST_S = 1
"""Jobs of the traces that ended within their minute ran for at least this long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Busiest:
    """A trace on so many of its hosts (None: all), at the busiest moment of one of its `days` busiest days.

    Seed n is the n-th of these days, over and over, with what is made up drawn anew.
    """

    trace: str
    hosts: int | None = None
    days: int = 3

    def __call__(self, seed: int, folder: Path, policy: Policy) -> Replayed:
        """The world of a seed. Raises InvalidInput where a file of the trace is missing."""
        workload = runnable(named(self.trace, folder, Choice(hosts=self.hosts, seed=seed)), policy)
        moments = busy_moments(workload)[: self.days]
        start = at_moment(workload, policy, moments[seed % len(moments)])
        return Replayed(workload, policy, start, f"{self.trace}-{len(workload.hosts)}-{seed}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """The openb trace, a list of pods without departures: in order, they run until `load` of the GPUs are in use.

    Those that found no place wait, and `waiting` of those that follow. Seeds other than 0 are other orders of the list.
    """

    load: float = 0.8
    waiting: int = 500

    def __call__(self, seed: int, folder: Path, policy: Policy) -> Poured:
        """The world of a seed. Raises InvalidInput where a file of the trace is missing."""
        workload = runnable(named("openb", folder, Choice(seed=seed)), policy)
        pods = list(workload.jobs)
        if seed:
            random.Random(f"openb/{seed}").shuffle(pods)
        return Poured(replace(workload, jobs=tuple(pods)), policy, self.load, self.waiting, f"openb-{seed}")


def busy_moments(workload: Workload) -> list[int]:
    """The moment of each day at which most GPUs are asked for, the busiest day first (s).

    Asked for are those of all jobs that were submitted by then and would not have ended had they started at once.
    """
    changes: dict[int, int] = {}
    for each in workload.jobs:
        end_s = each.submit_s + _work_s(each)
        changes[each.submit_s] = changes.get(each.submit_s, 0) + each.job.gpu_milli
        changes[end_s] = changes.get(end_s, 0) - each.job.gpu_milli
    best: dict[int, tuple[int, int]] = {}
    asked = 0
    for at_s in sorted(changes):
        asked += changes[at_s]
        if at_s <= workload.span_s:
            best[at_s // DAY] = max(best.get(at_s // DAY, (0, 0)), (asked, -at_s))
    return [-at_s for _, at_s in sorted(best.values(), reverse=True)]


def at_moment(workload: Workload, policy: Policy, at_s: int) -> Snapshot:
    """The state at `at_s` as the trace alone gives it: who is there then runs if it finds a place, else it waits."""
    there = [each for each in workload.jobs if each.submit_s <= at_s < each.submit_s + _work_s(each)]
    return _settled(_empty(workload, at_s), there, policy)


class Replayed:
    """The workload from a state on; a round comes each minute in which a job ends or arrives.

    A job that is stopped begins its work anew: what it had saved is not known to the trace.
    """

    def __init__(self, workload: Workload, policy: Policy, start: Snapshot, name: str) -> None:
        self.name, self.policy, self.start = name, policy, start
        self._work_s = {each.job.id: _work_s(each) for each in workload.jobs}
        self._coming = [each for each in reversed(workload.jobs) if each.submit_s > start.now_s]

    def happens(self, now_s: int, records: Iterable[JobRecord]) -> tuple[int, list[JobRecord]]:
        """Goes on to the next end or arrival, a minute at least."""
        ends = {r.id: (r.started_s or 0) + self._work_s[r.id] for r in records if r.state is JobState.RUNNING}
        news = [*ends.values(), *(each.submit_s for each in self._coming[-1:])]
        next_s = max(now_s + EVERY_S, min(news, default=0))
        gone = [ended(record) for record in records if ends.get(record.id, next_s + 1) <= next_s]
        while self._coming and self._coming[-1].submit_s <= next_s:
            gone.append(_waiting(self._coming.pop()))
        return next_s, gone


class Poured:
    """A list without departures: each minute 1 % of what runs ends, and as many of its pods come anew by chance."""

    def __init__(self, workload: Workload, policy: Policy, load: float, waiting: int, name: str) -> None:
        self.name, self.policy = name, policy
        self._pods, self._draw, self._number = workload.jobs, random.Random(f"pods/{name}"), 0
        at_s = DAY + workload.span_s + max(each.work_s for each in self._pods)
        # The list has no times that would fit together: each runs since a moment of its life drawn by chance.
        there = [self._since(each, at_s, each.work_s) for each in self._pods]
        settled = _settled(_empty(workload, at_s), there, policy, round(load * workload.gpu_milli))
        coming = [self._since(each, at_s, HOUR) for each in self._pods[len(settled.jobs) :][:waiting]]
        self.start = replace(settled, jobs=(*settled.jobs, *map(_waiting, coming)))

    def happens(self, now_s: int, records: Iterable[JobRecord]) -> tuple[int, list[JobRecord]]:
        """A minute later."""
        gone = one_in_a_hundred(now_s, records, self._draw)
        return now_s + EVERY_S, [*gone, *(self._another(now_s + EVERY_S) for _ in gone)]

    def _since(self, each: SimJob, at_s: int, most_s: int) -> SimJob:
        return replace(each, submit_s=at_s - self._draw.randrange(max(1, most_s)))

    def _another(self, now_s: int) -> JobRecord:
        self._number += 1
        job = self._draw.choice(self._pods).job
        return JobRecord(job=replace(job, id=JobId(f"{job.id}-{self._number}")), submitted_s=now_s)


def _work_s(each: SimJob) -> int:
    return max(LEAST_S, each.work_s)


def _empty(workload: Workload, at_s: int) -> Snapshot:
    return Snapshot(now_s=at_s, sites=workload.sites, hosts=workload.hosts, teams=workload.teams, links=workload.links)


@paused_collector()
def _settled(empty: Snapshot, there: Sequence[SimJob], policy: Policy, most_milli: int | None = None) -> Snapshot:
    """One after the other runs where it finds a place, else waits, until so many milli-GPU are in use (None: all)."""
    waiting = [_waiting(each) for each in there]
    placer = Placer(empty, policy, Books(empty), waiting=waiting)
    records, held = [], 0
    for record in waiting:
        if most_milli is not None and held >= most_milli:
            break
        placer.pressure.leaves(record)
        placement = placer.place(record)
        if placement is not None:
            since_s, held = record.submitted_s, held + record.job.gpu_milli
            record = replace(
                record, state=JobState.RUNNING, attempt=1, placement=placement, planned_s=since_s, started_s=since_s
            )
        records.append(record)
    return replace(empty, jobs=tuple(records))


def _waiting(each: SimJob) -> JobRecord:
    return JobRecord(job=each.job, submitted_s=each.submit_s)
