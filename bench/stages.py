"""A fleet in a store, taken through rounds one by one: what each stage of a round costs, and how good it is proven."""

from __future__ import annotations

import resource
import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from ..adapters.store.commit import SCHEDULER
from ..adapters.store.database import writing
from ..adapters.store.packing import pack
from ..adapters.store.sql import SqlStore, open_store
from ..adapters.store.sql_jobs import SqlJobBooks
from ..model.decision import Decision, GoalStatus
from ..model.job_state import JobState
from ..model.policy import Policy
from ..model.snapshot import JobRecord, Snapshot
from ..solver.collector import paused_collector
from ..solver.solve import solve
from ..solver.verify import verify

STAGES = (
    *("read", "greedy", "reduce", "encode", "exact", "decode", "bounds", "reasons"),
    *("verify", "pack", "commit"),
)
"""The stages of a round in their order; `pack` writes the snapshot as the compressed JSON that is kept."""

EVERY_S = 60
"""Between two rounds, in seconds."""


class World(Protocol):
    """A fleet with its jobs, and what happens to it from minute to minute; a seed gives the same one every time."""

    @property
    def name(self) -> str:
        """Names it on disk."""

    @property
    def policy(self) -> Policy:
        """The policy of its rounds."""

    @property
    def start(self) -> Snapshot:
        """The state before its first round: who runs, who waits."""

    def happens(self, now_s: int, records: Iterable[JobRecord]) -> tuple[int, list[JobRecord]]:
        """When the next round comes (s), and the rows that end, stop or arrive until then.

        `records` are those of the time of the last round, with what it planned already running.
        """


@dataclass(slots=True, kw_only=True)
class Measured:
    """One round: CPU and wall seconds by stage, what it decided, and the process's peak memory so far in MiB."""

    cpu_s: dict[str, float] = field(default_factory=dict)
    wall_s: dict[str, float] = field(default_factory=dict)
    hosts: int = 0
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


class Watch:
    """Laps of CPU and wall time; laps of the same name are added up."""

    def __init__(self, measured: Measured) -> None:
        self._measured = measured
        self._cpu, self._wall = time.process_time(), time.perf_counter()

    def lap(self, stage: str) -> None:
        """Ends a stage, or a part of one."""
        cpu, wall = time.process_time(), time.perf_counter()
        for spent, now, before in ((self._measured.cpu_s, cpu, self._cpu), (self._measured.wall_s, wall, self._wall)):
            spent[stage] = spent.get(stage, 0.0) + now - before
        self._cpu, self._wall = time.process_time(), time.perf_counter()


class Course:
    """A world in a SQLite store; `round` measures the next round and lets the world go on."""

    def __init__(self, world: World, folder: Path) -> None:
        self._world = world
        start = world.start
        self.now_s = start.now_s
        self.store: SqlStore = open_store(f"sqlite:///{folder / f'{world.name}.db'}", world.policy)
        self.store.put_sites(start.sites)
        self.store.put_teams(start.teams)
        for host in start.hosts:
            self.store.put_host(host, now_s=self.now_s)
        self._put(start.jobs)
        lease = self.store.acquire(SCHEDULER, "bench", ttl_s=10**9, now_s=self.now_s)
        self._term = lease.term if lease is not None else 0

    @property
    def policy(self) -> Policy:
        """The policy of the rounds."""
        return self._world.policy

    @property
    def term(self) -> int:
        """The term of the lease with which it commits."""
        return self._term

    @paused_collector()
    def round(self, *, searched: bool = True) -> Measured:
        """The round of now, and what happens until the next one; without the exact stage where not `searched`.

        The collector of cycles rests, as it does while the service decides.
        """
        policy = self.policy if searched else unsearched(self.policy)
        measured = Measured()
        watch = Watch(measured)
        snapshot = self.store.snapshot(self.now_s)
        watch.lap("read")
        decision = solve(snapshot, policy, lap=watch.lap)
        violations = verify(snapshot, policy, decision)
        watch.lap("verify")
        pack(snapshot)
        watch.lap("pack")
        outcome = self.store.commit(decision, snapshot, term=self._term, now_s=self.now_s)
        watch.lap("commit")
        measured.violations = len(violations) + len(outcome.conflicts)
        _describe(measured, snapshot, decision)
        self._go_on()
        return measured

    def close(self) -> None:
        """Frees the store."""
        self.store.close()

    def _go_on(self) -> None:
        """What was planned runs, who was stopped queues again; then what the world brings."""
        changed, records = [], []
        for record in self.store.snapshot(self.now_s).jobs:
            if record.state is JobState.PLANNED:
                changed.append(moved(record, JobState.RUNNING, started_s=self.now_s + EVERY_S - 10))
            elif record.state is JobState.STOPPING:
                changed.append(moved(record, JobState.QUEUED, placement=None, started_s=None, planned_s=None))
            else:
                records.append(record)
        self._put(changed)
        self.now_s, happened = self._world.happens(self.now_s, (*records, *changed))
        self._put(happened)

    def _put(self, records: Iterable[JobRecord]) -> None:
        with writing(self.store.engine) as connection:
            books = SqlJobBooks(connection)
            for record in records:
                books.put_job(record)
                books.drop_intent(record.id)


def unsearched(policy: Policy) -> Policy:
    """The policy without an exact stage: the greedy decides alone."""
    return replace(policy, solve=replace(policy.solve, exact_columns=0))


def moved(record: JobRecord, state: JobState, **changes: object) -> JobRecord:
    """The record in another state, in its next version."""
    return replace(record, state=state, stop_cause=None, version=record.version + 1, **changes)  # type: ignore[arg-type]


def ended(record: JobRecord) -> JobRecord:
    """The record once its work is done."""
    return moved(record, JobState.SUCCEEDED, placement=None, exit_code=0)


def _describe(measured: Measured, snapshot: Snapshot, decision: Decision) -> None:
    measured.hosts = len(snapshot.hosts)
    measured.pending = sum(record.state is JobState.QUEUED for record in snapshot.jobs)
    measured.running = sum(record.state.holds_capacity for record in snapshot.jobs)
    measured.starts, measured.preemptions = len(decision.starts), len(decision.preemptions)
    measured.undecided = sum(reason.kind == "undecided" for reason in decision.waiting)
    measured.goals = {goal.name: goal.status for goal in decision.goals}
    measured.peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
