"""The executor of a simulation: attempts live on the event heap, with the times that a real site would take."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

from ..model.decision import Prefetch
from ..model.event import (
    AgentReport,
    Event,
    GangExited,
    GangProgress,
    GangReleased,
    GangRunning,
    GangStartFailed,
    HostChanged,
)
from ..model.host import Host, HostState
from ..model.ids import HostId, JobId
from ..model.intent import Intent, RankExit, Want
from ..model.job import Job
from .evictions import Evictions
from .heap import End, Heap, Key, Loaded, Release, Up
from .prefill import Prefills
from .shard_cache import ShardCaches
from .split import Split
from .timing import Attempt, Losses, Timing
from .workload import Workload


class SimulatedExecutor:
    """Carries out intents and tells events; draws depend on (seed, job, attempt) alone, so that schedulers compare."""

    def __init__(self, workload: Workload, heap: Heap, seed: int, timing: Timing, evictions: Evictions) -> None:
        self.workload, self.heap, self.seed, self.timing = workload, heap, seed, timing
        self.losses = Losses()
        self._evictions = evictions
        self.attempts: dict[Key, Attempt] = {}
        self._hosts: dict[HostId, Host] = {host.id: host for host in workload.hosts}
        self._work = {each.job.id: each.work_s for each in workload.jobs}
        self._split = Split(workload)
        self._done: dict[JobId, int] = {}
        self._dead: set[HostId] = set()
        self._caches = ShardCaches(timing.cache_mib)
        self._prefills = Prefills(heap, self._caches, timing.fetch_mib_s)

    def drive(self, intents: Iterable[Intent], now_s: int) -> tuple[Intent, ...]:
        """Starts what is new and stops what should stop; returns the intents that were new."""
        new = []
        for intent in intents:
            attempt = self.attempts.get((intent.job.id, intent.attempt))
            if attempt is None and intent.want is Want.RUN:
                self._launch(intent, now_s)
                new.append(intent)
            elif attempt is not None and intent.want is Want.STOP and not attempt.ended and attempt.leaves_s is None:
                self._stop(attempt, now_s)
        return tuple(new)

    def up(self, key: Key, now_s: int) -> tuple[Event, ...]:
        """The attempt runs, or its start fails."""
        attempt = self.attempts.get(key)
        if attempt is None or attempt.ended or attempt.leaves_s is not None:
            return ()
        job, number = key
        dead = next((host for host in attempt.intent.placement.hosts if host in self._dead), None)
        if dead is not None or attempt.fails:
            attempt.ended = True
            self.heap.push(now_s + self.timing.clean_s, Release(key))
            host = dead or attempt.intent.placement.hosts[0]
            cause = f"host {dead} is not alive" if dead else "a rank did not come up"
            return (
                GangStartFailed(
                    id=f"{job}/{number}/start-failed", at_s=now_s, job=job, attempt=number, cause=cause, host=host
                ),
            )
        attempt.running_s = now_s
        reports = self._fetch(attempt, now_s)
        attempt.setup_s += self._restart_s(attempt)
        eviction = self._evictions.before(job)
        if eviction is not None:
            eviction.restart_gpu_s += (now_s - attempt.launched_s + attempt.setup_s) * attempt.gpus
        left_s = self._work[job] - self._done.get(job, 0)
        runs_s = attempt.setup_s + -(-left_s * 1000 // attempt.speed_milli)
        attempt.ends_s = now_s + runs_s
        self.heap.push(attempt.ends_s, End(key, attempt.generation))
        return (GangRunning(id=f"{job}/{number}/running", at_s=now_s, job=job, attempt=number), *reports)

    def end(self, happening: End, now_s: int) -> tuple[Event, ...]:
        """The attempt's ranks have exited: finished, or stopped as asked."""
        attempt = self.attempts.get(happening.key)
        if attempt is None or attempt.ended or attempt.generation != happening.generation:
            return ()
        stopped = attempt.leaves_s is not None
        self._account(attempt, now_s, everything=not stopped)
        return self._exit(attempt, now_s, code=-15 if stopped else 0)

    def release(self, key: Key, now_s: int) -> tuple[Event, ...]:
        """The attempt's hosts are clean."""
        attempt = self.attempts.pop(key, None)
        if attempt is None:
            return ()
        eviction = self._evictions.of(key)
        if eviction is not None and attempt.warned_s is not None:
            eviction.handover_gpu_s += (now_s - attempt.warned_s) * attempt.gpus
        job, number = key
        return (GangReleased(id=f"{job}/{number}/released", at_s=now_s, job=job, attempt=number),)

    def prestage(self, orders: Sequence[Prefetch], now_s: int) -> None:
        """The pre-stage orders that stand now, all of them."""
        self._prefills.order(orders, now_s)

    def loaded(self, happening: Loaded, now_s: int) -> tuple[Event, ...]:
        """A host has loaded what it was ordered to, which its agent reports."""
        return (self._report(happening.host, now_s),) if self._prefills.loaded(happening, now_s) else ()

    def host_dies(self, host: HostId, now_s: int) -> tuple[Event, ...]:
        """The host is gone, and every gang that had a worker on it ends."""
        self._dead.add(host)
        self._caches.forget(host)
        self._prefills.forget(host)
        events: list[Event] = [self._host_event(host, HostState.DOWN, now_s)]
        for attempt in list(self.attempts.values()):
            if not attempt.ended and host in attempt.intent.placement.hosts:
                self._account(attempt, now_s, everything=False, saves=False)
                events.extend(self._exit(attempt, now_s, code=-9, lost=host))
        return tuple(events)

    def host_back(self, host: HostId, now_s: int) -> tuple[Event, ...]:
        """The host is back, empty."""
        self._dead.discard(host)
        return (self._host_event(host, HostState.READY, now_s), self._report(host, now_s))

    def settle(self, now_s: int) -> None:
        """Accounts for what still runs when the simulation ends: it loses nothing by that."""
        for attempt in self.attempts.values():
            if not attempt.ended and attempt.running_s is not None:
                self._account(attempt, now_s, everything=True)

    def _launch(self, intent: Intent, now_s: int) -> None:
        job = intent.job
        draw = random.Random(f"{self.seed}/{job.id}/{intent.attempt}")
        launch_s = self.timing.launch_s + draw.randint(0, self.timing.launch_jitter_s)
        fails = draw.random() * 1000 < self.workload.failing_starts_milli
        attempt = Attempt(
            intent=intent,
            rank_count=len(intent.placement.workers),
            fails=fails,
            launched_s=now_s,
            speed_milli=max(1, self._speed(intent) * self._split.milli(intent) * _size_milli(intent) // 1_000_000),
            saved_s=self._done.get(job.id, 0),
        )
        self.attempts[attempt.key] = attempt
        self.heap.push(now_s + launch_s, Up(attempt.key))

    def _speed(self, intent: Intent) -> int:
        """The slowest role's throughput on the type it runs on, in thousandths."""
        speeds = []
        for worker in intent.placement.workers:
            role = intent.job.role(worker.role)
            if role is not None and worker.gpus:
                card = self._hosts[worker.host].gpu(worker.gpus[0])
                speeds.append(role.throughput_milli(card.gpu_type) if card else None)
        return min((speed for speed in speeds if speed), default=1000)

    def _fetch(self, attempt: Attempt, now_s: int) -> tuple[Event, ...]:
        """Loads what the hosts lack of the data set, all at once; the slowest host decides."""
        data = attempt.intent.job.dataset
        if data is None or not data.size_mib:
            return ()
        events = []
        for host in attempt.intent.placement.hosts:
            ahead_mib = self._prefills.taken(host, data.name, now_s)
            missing_mib = max(0, self._caches.load(host, data) - ahead_mib)
            attempt.setup_s = max(attempt.setup_s, -(-missing_mib // self.timing.fetch_mib_s))
            if missing_mib or ahead_mib:
                events.append(self._report(host, now_s))
        return tuple(events)

    def _restart_s(self, attempt: Attempt) -> int:
        policy = attempt.intent.job.checkpoint
        return policy.restart_s if policy and attempt.saved_s else 0

    def _stop(self, attempt: Attempt, now_s: int) -> None:
        """The warning: the gang saves if its grace suffices, and exits."""
        policy = attempt.intent.job.checkpoint
        wanted_s = policy.write_s if policy else self.timing.stop_s
        attempt.warned_s = now_s
        attempt.leaves_s = now_s + min(wanted_s, attempt.intent.grace_s)
        attempt.generation += 1
        self.heap.push(attempt.leaves_s, End(attempt.key, attempt.generation))

    def _account(self, attempt: Attempt, now_s: int, *, everything: bool, saves: bool = True) -> None:
        """Splits the attempt's time into work that counts, work that is lost, and setting up."""
        job, gpus = attempt.intent.job, attempt.gpus
        # From the warning on it saves and leaves, which is no work.
        until_s = now_s if attempt.warned_s is None else attempt.warned_s
        ran_s = 0 if attempt.running_s is None else max(0, until_s - attempt.running_s)
        setup_s = min(ran_s, attempt.setup_s)
        worked_s = ran_s - setup_s
        kept_s = worked_s if everything else self._kept_s(job, worked_s, attempt.intent.grace_s, saves)
        attempt.useful_s = kept_s
        self.losses.setup_gpu_s += setup_s * gpus
        self.losses.lost_gpu_s += (worked_s - kept_s) * gpus
        self.losses.useful_gpu_s += kept_s * gpus
        eviction = self._evictions.of(attempt.key)
        if eviction is not None:
            eviction.lost_gpu_s += (worked_s - kept_s) * gpus
        self._done[job.id] = min(self._work[job.id], attempt.saved_s + kept_s * attempt.speed_milli // 1000)

    @staticmethod
    def _kept_s(job: Job, worked_s: int, grace_s: int, saves: bool) -> int:
        """Of the attempt's work, what a checkpoint holds at its end."""
        policy = job.checkpoint
        if policy is None:
            return 0
        if saves and grace_s >= policy.write_s:
            return worked_s
        return worked_s // policy.interval_s * policy.interval_s

    def _exit(self, attempt: Attempt, now_s: int, *, code: int, lost: HostId | None = None) -> tuple[Event, ...]:
        attempt.ended = True
        self.heap.push(now_s + self.timing.clean_s, Release(attempt.key))
        job, number = attempt.key
        exits = tuple(RankExit(rank=rank, code=code) for rank in range(attempt.rank_count)) if lost is None else ()
        events: list[Event] = []
        if code and attempt.useful_s:
            events.append(
                GangProgress(
                    id=f"{job}/{number}/saved", at_s=now_s, job=job, attempt=number, saved_work_s=self._done[job]
                )
            )
        cause = "finished" if code == 0 else f"host {lost} was lost" if lost else "stopped"
        events.append(
            GangExited(
                id=f"{job}/{number}/exited",
                at_s=now_s,
                job=job,
                attempt=number,
                exits=exits,
                lost_host=lost,
                cause=cause,
            )
        )
        return tuple(events)

    def _report(self, host: HostId, now_s: int) -> AgentReport:
        cached, free_mib = self._caches.inventory(host)
        site = self._hosts[host].path.site
        return AgentReport(
            id=f"{host}/{now_s}", at_s=now_s, host=host, site=site, disk_free_mib=free_mib, cached=cached
        )

    def _host_event(self, host: HostId, state: HostState, now_s: int) -> HostChanged:
        return HostChanged(id=f"{host}/{state}/{now_s}", at_s=now_s, host=host, state=state, cause="simulated")


def _size_milli(intent: Intent) -> int:
    """Thousandths of the workers asked that the attempt has: an elastic gang's pace is taken to follow its size."""
    return 1_000 * len(intent.placement.workers) // intent.job.workers
