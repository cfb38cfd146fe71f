"""A fleet in a store, taken through rounds one by one: what each stage of a round costs, and how good it is proven."""

from __future__ import annotations

import random
import resource
import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from ..adapters.store.commit import SCHEDULER
from ..adapters.store.database import writing
from ..adapters.store.rows import pack
from ..adapters.store.sql import SqlStore, open_store
from ..adapters.store.sql_jobs import SqlJobBooks
from ..model.decision import Decision, GoalStatus
from ..model.job_state import JobState
from ..model.policy import Policy
from ..model.snapshot import JobRecord, Snapshot
from ..solver.solve import solve
from ..solver.verify import verify
from .full_rules import with_reserved_pool
from .large import NOW_S, Size, fleet, jobs

STAGES = ("read", "reduce", "greedy", "exact", "bounds", "reasons", "verify", "pack", "commit")
"""`exact` includes encoding and decoding; `pack` writes the snapshot as the compressed JSON that is kept."""

EVERY_S = 60
"""Between two rounds, in seconds."""


@dataclass(slots=True, kw_only=True)
class Measured:
    """One round: CPU and wall seconds by stage, what it decided, and the process's peak memory so far in MiB."""

    cpu_s: dict[str, float] = field(default_factory=dict)
    wall_s: dict[str, float] = field(default_factory=dict)
    pending: int = 0
    running: int = 0
    starts: int = 0
    preemptions: int = 0
    undecided: int = 0
    violations: int = 0
    goals: dict[str, GoalStatus] = field(default_factory=dict)
    peak_mib: int = 0

    @property
    def cpu(self) -> float:
        """CPU seconds of all stages."""
        return sum(self.cpu_s.values())

    @property
    def wall(self) -> float:
        """Wall seconds of all stages."""
        return sum(self.wall_s.values())


class _Watch:
    """Laps of CPU and wall time."""

    def __init__(self, measured: Measured) -> None:
        self._measured = measured
        self._cpu, self._wall = time.process_time(), time.perf_counter()

    def lap(self, stage: str) -> None:
        """Ends a stage."""
        cpu, wall = time.process_time(), time.perf_counter()
        self._measured.cpu_s[stage] = cpu - self._cpu
        self._measured.wall_s[stage] = wall - self._wall
        self._cpu, self._wall = time.process_time(), time.perf_counter()


class Course:
    """One fleet and its queue in a SQLite store; `round` measures the next round and lets the world go on."""

    def __init__(self, size: Size, seed: int, folder: Path, policy: Policy) -> None:
        self._size, self._seed = size, seed
        self._now_s, self._next = NOW_S, size.pending
        self._draw = random.Random(f"ends/{size.name}/{seed}")
        self._store: SqlStore = open_store(f"sqlite:///{folder / f'{size.name}-{seed}.db'}", policy)
        snapshot = fleet(size, seed)
        self._policy = with_reserved_pool(policy, snapshot) if size.full else policy
        self._store.put_sites(snapshot.sites)
        self._store.put_teams(snapshot.teams)
        for host in snapshot.hosts:
            self._store.put_host(host, now_s=NOW_S)
        self._put((*snapshot.jobs, *jobs(size, seed, 0, size.pending)))
        lease = self._store.acquire(SCHEDULER, "bench", ttl_s=10**9, now_s=NOW_S)
        self._term = lease.term if lease is not None else 0

    def round(self) -> Measured:
        """The round of now, then a minute in which 1 % of the running jobs end and as many as 1 % of the hosts come."""
        measured = Measured()
        watch = _Watch(measured)
        snapshot = self._store.snapshot(self._now_s)
        watch.lap("read")
        decision = solve(snapshot, self._policy, lap=watch.lap)
        violations = verify(snapshot, self._policy, decision)
        watch.lap("verify")
        pack(snapshot)
        watch.lap("pack")
        outcome = self._store.commit(decision, snapshot, term=self._term, now_s=self._now_s)
        watch.lap("commit")
        measured.violations = len(violations) + len(outcome.conflicts)
        _describe(measured, snapshot, decision)
        self._go_on()
        return measured

    def close(self) -> None:
        """Frees the store."""
        self._store.close()

    def _go_on(self) -> None:
        """What was planned runs, who was stopped queues again, some end, others come."""
        self._now_s += EVERY_S
        changed, running = [], []
        for record in self._store.snapshot(self._now_s).jobs:
            if record.state is JobState.PLANNED:
                changed.append(_moved(record, JobState.RUNNING, started_s=self._now_s - 10))
            elif record.state is JobState.STOPPING:
                changed.append(_moved(record, JobState.QUEUED, placement=None, started_s=None, planned_s=None))
            elif record.state is JobState.RUNNING:
                running.append(record)
        ended = self._draw.sample(running, max(1, len(running) // 100))
        changed.extend(_moved(record, JobState.SUCCEEDED, placement=None, exit_code=0) for record in ended)
        count = max(1, self._size.hosts // 100)
        changed.extend(jobs(self._size, self._seed, self._next, count, self._now_s))
        self._next += count
        self._put(changed)

    def _put(self, records: Iterable[JobRecord]) -> None:
        with writing(self._store.engine) as connection:
            books = SqlJobBooks(connection)
            for record in records:
                books.put_job(record)
                books.drop_intent(record.id)


def _moved(record: JobRecord, state: JobState, **changes: object) -> JobRecord:
    return replace(record, state=state, stop_cause=None, version=record.version + 1, **changes)  # type: ignore[arg-type]


def _describe(measured: Measured, snapshot: Snapshot, decision: Decision) -> None:
    measured.pending = sum(record.state is JobState.QUEUED for record in snapshot.jobs)
    measured.running = sum(record.state.holds_capacity for record in snapshot.jobs)
    measured.starts, measured.preemptions = len(decision.starts), len(decision.preemptions)
    measured.undecided = sum(reason.kind == "undecided" for reason in decision.waiting)
    measured.goals = {goal.name: goal.status for goal in decision.goals}
    measured.peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
