"""The discrete-event simulator: the production round over the store in memory, on a virtual clock.

A round is due when something changed that may let a waiting job start, at most once an interval.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from ..adapters.fakes.clock import VirtualClock
from ..adapters.fakes.memory_store import MemoryStore
from ..adapters.ports import RoundRecord
from ..adapters.store.core import Retention
from ..api import engine
from ..api.loop import LEASE
from ..api.round import run_round
from ..model.event import Event
from ..model.job_state import JobState
from ..model.limits import walltime_limit_s
from ..model.policy import Policy
from ..solver.drain_starts import plannable_s
from ..solver.drains import named
from .evictions import Evictions
from .executor import SimulatedExecutor
from .foresight import Foresight
from .heap import End, Heap, HostBack, HostDies, Key, Loaded, Release, Round, Starves, Submit, Up, Wake
from .idle import Idle
from .ledger import Ledger
from .run import Rounds, Run
from .tally import Tally, count
from .timing import Timing
from .workload import Workload

Scheduler = engine.Solver
"""(snapshot, policy) -> decision; may keep state between the rounds of one run."""

Progress = Callable[[int, int, int], None]
"""Told now and then: jobs ended, jobs in all, the simulated second."""

FOREVER_S = 10**11
KEPT = Retention(rounds=1, snapshots=0, log=1_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """`interval_s`: rounds are at least that far apart. `until_s` ends the run early, with jobs left unfinished.

    `forecast_s`: how often the service's forecast is made, to be judged; None for never. `idle`: tells why GPUs idled.
    """

    interval_s: int = 60
    seed: int = 1
    until_s: int | None = None
    forecast_s: int | None = None
    idle: bool = False
    timing: Timing = field(default_factory=Timing)


def simulate(
    workload: Workload,
    name: str,
    scheduler: Scheduler,
    policy: Policy,
    options: Options | None = None,
    progress: Progress | None = None,
) -> Run:
    """Runs the workload under the scheduler until every job has ended; `name` is what tables call the scheduler."""
    simulation = _Simulation(workload, scheduler, policy, options or Options(), progress)
    return simulation.run(name)


class _Simulation:
    """One run. The truth is in the store; the sets here say only whether a round can change anything."""

    def __init__(
        self, workload: Workload, scheduler: Scheduler, policy: Policy, options: Options, progress: Progress | None
    ) -> None:
        self._workload, self._policy, self._options, self._progress = workload, policy, options, progress
        self._scheduler, self._guaranteed = scheduler, workload.guaranteed_milli
        self._clock = VirtualClock()
        self._store = MemoryStore(policy, KEPT)
        self._heap = Heap()
        self._evictions = Evictions(policy)
        self._foresight = Foresight(policy, options.forecast_s)
        self._executor = SimulatedExecutor(workload, self._heap, options.seed, options.timing, self._evictions)
        self._ledger = Ledger(workload.hosts, policy.objective.standard_gangs, workload.beside)
        self._idle = Idle(policy, told=options.idle)
        self._rounds = Rounds()
        self._tally = Tally(workload.jobs, self._ledger)
        self._round_at_s: int | None = None
        self._last_round_s = -options.interval_s
        self._previous: RoundRecord | None = None
        self._planned_s: set[int] = set()
        self._prepare()

    def run(self, name: str) -> Run:
        """Happening after happening, until all jobs have ended or nothing more can happen."""
        begun, events, now_s = time.process_time(), 0, 0
        total = len(self._workload.jobs)
        while self._heap and self._tally.ended < total:
            at_s, happening = self._heap.pop()
            if self._options.until_s is not None and at_s > self._options.until_s:
                now_s = self._options.until_s
                break
            self._idle.passed(self._ledger.idle_milli, min(at_s, self._workload.span_s) - now_s)
            now_s = at_s
            self._clock.move_to(now_s)
            self._handle(happening, now_s)
            self._ledger.sample(now_s)
            events += 1
            if self._progress and events % 500 == 0:
                self._progress(self._tally.ended, total, now_s)
        self._close(now_s)
        losses = self._executor.losses
        return Run(
            scheduler=name,
            workload=self._workload.name,
            seed=self._options.seed,
            outcomes=list(self._tally.outcomes.values()),
            samples=self._ledger.samples,
            spans=self._ledger.spans,
            rounds=self._rounds,
            window_s=self._workload.span_s,
            end_s=now_s,
            events=events,
            cpu_s=time.process_time() - begun,
            setup_gpu_s=losses.setup_gpu_s,
            lost_gpu_s=losses.lost_gpu_s,
            useful_gpu_s=losses.useful_gpu_s,
            evictions=self._evictions.all,
            told=self._foresight.told,
            slips=self._foresight.slips,
            idle=self._idle.total,
            guaranteed_milli=self._guaranteed,
        )

    def _prepare(self) -> None:
        """The fleet in the store, and everything that comes from outside on the heap."""
        self._store.put_sites(self._workload.sites, self._workload.links)
        self._store.put_teams(self._workload.teams)
        for host in self._workload.hosts:
            self._store.put_host(replace(host, disk_free_mib=self._options.timing.cache_mib), now_s=0)
        lease = self._store.acquire(LEASE, "simulator", ttl_s=FOREVER_S, now_s=0)
        self._term = lease.term if lease else 1
        for index, each in enumerate(self._workload.jobs):
            self._heap.push(each.submit_s, Submit(index))
        for outage in self._workload.outages:
            self._heap.push(outage.at_s, HostDies(outage.host))
            self._heap.push(outage.back_s, HostBack(outage.host))

    def _handle(self, happening: object, now_s: int) -> None:
        match happening:
            case Submit(index=index):
                self._submit(index, now_s)
            case Up(key=key):
                told = self._executor.up(key, now_s)
                self._append(told, now_s)
                self._evictions.told(told)
                self._watch_limit(key, now_s)
            case End():
                self._append(self._executor.end(happening, now_s), now_s)
            case Release(key=key):
                self._release(key, now_s)
            case HostDies(host=host):
                self._ledger.down(host)
                self._append(self._executor.host_dies(host, now_s), now_s)
            case HostBack(host=host):
                self._ledger.back(host)
                self._append(self._executor.host_back(host, now_s), now_s)
                self._call_round(now_s)
            case Loaded():
                self._append(self._executor.loaded(happening, now_s), now_s)
            case Starves(job=job):
                if job in self._tally.queue:
                    self._call_round(now_s)
            case Wake():
                self._call_round(now_s, force=True)
            case Round():
                self._round(now_s)

    def _submit(self, index: int, now_s: int) -> None:
        job = self._workload.jobs[index].job
        self._store.submit(job, now_s=now_s)
        self._tally.submitted(job.id, now_s)
        self._heap.push(now_s + self._policy.time.starve_after_s, Starves(job.id))
        self._call_round(now_s)

    def _append(self, events: Sequence[Event], now_s: int) -> None:
        if events:
            self._store.append(events, now_s=now_s)

    def _watch_limit(self, key: Key, now_s: int) -> None:
        """Wakes the sweep when the attempt reaches its limit; most are gone by then, and the wake finds nothing."""
        attempt = self._executor.attempts.get(key)
        if attempt is None or attempt.running_s != now_s:
            return
        record = self._store.job(key[0])
        limit_s = walltime_limit_s(record, record.job.team in self._guaranteed, self._policy)
        left_s = limit_s - record.progress.saved_work_s
        if attempt.ends_s > now_s + left_s:
            self._heap.push(now_s + max(0, left_s), Wake())

    def _drive(self, now_s: int) -> None:
        """What the adapters do all the time: carry out the intents that are open now."""
        for site in self._workload.sites:
            for intent in self._executor.drive(self._store.intents(site.id), now_s):
                self._tally.started(intent, now_s)

    def _release(self, key: Key, now_s: int) -> None:
        self._append(self._executor.release(key, now_s), now_s)
        # The last victim may be gone, and the intent that waited for it is open now: adapters wait for no round.
        self._drive(now_s)
        record = self._store.job(key[0])
        self._tally.released(record, now_s, self._options.timing.clean_s)
        outcome = self._tally.outcomes[record.id]
        if record.state is JobState.SUCCEEDED and record.attempt == 1 and outcome.start_s is not None:
            self._foresight.ran(record.job, now_s - outcome.start_s)
        if record.state is JobState.QUEUED and record.not_before_s > now_s:
            self._heap.push(record.not_before_s, Wake())
        self._call_round(now_s)

    def _call_round(self, now_s: int, force: bool = False) -> None:
        if self._round_at_s is None and (self._tally.queue or force):
            self._round_at_s = max(now_s, self._last_round_s + self._options.interval_s)
            self._heap.push(self._round_at_s, Round())

    def _round(self, now_s: int) -> None:
        self._round_at_s, self._last_round_s = None, now_s
        begun = time.process_time()
        record = run_round(
            self._store,
            self._policy,
            self._clock,
            self._term,
            solver=self._scheduler,
            report=lambda _snapshot, _decision, violations: self._rounds.violations.extend(violations),
            previous=self._previous,
        )
        self._rounds.seconds.append(time.process_time() - begun)
        self._previous = record if record.number else self._previous
        count(self._rounds, record)
        if record.outcome == "committed" and record.snapshot is not None:
            self._evictions.decided(record.snapshot, record.decision)
            self._foresight.decided(record.decision)
        if record.outcome != "conflict":
            self._follow_plans(record, now_s)
        self._drive(now_s)
        for job in list(self._tally.queue):
            left = self._store.job(job)
            if left.state.ended:
                self._tally.dropped(left, now_s)
        self._tally.waiting()
        self._idle.decided(lambda: self._store.snapshot(now_s))
        if self._tally.queue and self._foresight.due(now_s):
            self._foresight.look(self._store.snapshot(now_s))
        if record.outcome == "conflict":
            self._call_round(now_s)

    def _follow_plans(self, record: RoundRecord, now_s: int) -> None:
        """Hosts load what is planned to be read there, and a round looks again when a gang is planned to start, or has
        waited long enough for a plan. The service's rounds are seconds apart, and need no such call.
        """
        decision = record.decision
        self._executor.prestage(decision.prefetches, now_s)
        due = {plan.planned_start_s for plan in decision.reservations}
        if record.snapshot is not None:
            cared_for = {*(plan.job for plan in decision.reservations), *(start.job for start in decision.starts)}
            for gang in named(record.snapshot, self._policy):
                if gang.id not in cared_for:
                    due.add(plannable_s(gang, record.snapshot, self._policy) or 0)
        for at_s in sorted(due - self._planned_s):
            if at_s > now_s:
                self._planned_s.add(at_s)
                self._heap.push(at_s, Wake())

    def _close(self, now_s: int) -> None:
        """What still runs or waits when the run ends."""
        self._executor.settle(now_s)
        self._tally.close(now_s)
        for attempt in self._executor.attempts.values():
            self._tally.unfinished(self._store.job(attempt.intent.job.id), now_s)
