"""A small fleet in a store, and the steps of a job's life in one call each; shared by the tests of the store."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import replace

from phalanx.model.decision import (
    Certificate,
    Decision,
    Grain,
    Preemption,
    Reason,
    ReasonKind,
    Rejection,
    Stage,
    Start,
)
from phalanx.model.event import (
    Event,
    GangExited,
    GangProgress,
    GangReleased,
    GangReserved,
    GangRunning,
    GangStartFailed,
    HostChanged,
)
from phalanx.model.host import Gpu, Host, HostState
from phalanx.model.intent import RankExit
from phalanx.model.job import Job, Role, WorkerRequest
from phalanx.model.job_state import HOLDING, JobState
from phalanx.model.placement import Placement, WorkerPlacement
from phalanx.model.snapshot import JobRecord
from phalanx.model.team import GpuQuota, Team
from phalanx.model.topology import Link, Site, TopologyPath

HOSTS = ("a1", "a2", "a3", "b1")


def a_job(name: str, *, team: str = "red", workers: int = 1, gpus: int = 8, **fields) -> Job:
    request = WorkerRequest(gpu_milli=1000 * gpus, cpu_milli=1000)
    return Job(id=name, team=team, roles=(Role(count=workers, request=request),), **fields)


def a_host(name: str, **fields) -> Host:
    gpus = tuple(Gpu(index=i, gpu_type="H100", memory_mib=80_000) for i in range(8))
    return Host(
        id=name, path=TopologyPath(site=name[0], rack="r1"), gpus=gpus, cpu_milli=64_000, memory_mib=512_000, **fields
    )


def a_placement(hosts: Sequence[str], gpus: int = 8) -> Placement:
    cards = tuple(range(gpus))
    return Placement(
        workers=tuple(WorkerPlacement(role="worker", index=i, host=host, gpus=cards) for i, host in enumerate(hosts))
    )


def a_decision(snapshot=None, **parts) -> Decision:
    certificate = Certificate(stage=Stage.GREEDY, grain=Grain.SINGLETONS, budget_ms=0, spent_ms=0, seed=1)
    version, now_s = (snapshot.version, snapshot.now_s) if snapshot else (0, 0)
    return Decision(snapshot_version=version, now_s=now_s, certificate=certificate, **parts)


def a_rejection(job: str) -> Rejection:
    return Rejection(job=job, reason=Reason(job=job, kind=ReasonKind.NEVER_FITS, sentence="no host has 9 GPUs"))


class World:
    """The store under test with its time; `term` is that of the scheduler lease it holds."""

    def __init__(self, store, *, fresh: bool = True) -> None:
        self.store = store
        self.now = 1_000
        self.events = 0
        if fresh:
            store.put_sites([Site(id="a"), Site(id="b")], [Link(a="site:a", b="site:b", bandwidth_mbps=10_000)])
            quota = GpuQuota(gpu_type="H100", gpu_milli=8_000)
            store.put_teams([Team(id="red", guarantee=(quota,)), Team(id="blue")])
            for name in HOSTS:
                store.put_host(a_host(name), now_s=self.now)
        self.term = store.acquire("scheduler", "loop-1", ttl_s=10**6, now_s=self.now).term

    def submit(self, name: str, **fields) -> JobRecord:
        self.store.submit(a_job(name, **fields), now_s=self.now)
        return self.store.job(name)

    def decide(self, snapshot=None, **parts):
        snapshot = snapshot or self.store.snapshot(self.now)
        return self.store.commit(a_decision(snapshot, **parts), snapshot, term=self.term, now_s=self.now)

    def plan(self, name: str, hosts: Sequence[str] = ("a1",), *, gpus: int = 8, after=(), victims=()) -> JobRecord:
        """Commits the start of the job's next attempt, over the victims named."""
        start = self.a_start(name, hosts, gpus=gpus, after=after or tuple(victims))
        preemptions = tuple(
            Preemption(job=v, attempt=self.store.job(v).attempt, beneficiaries=(name,), loss_gpu_s=8) for v in victims
        )
        outcome = self.decide(starts=(start,), preemptions=preemptions)
        assert outcome.conflicts == ()
        return self.store.job(name)

    def a_start(self, name: str, hosts: Sequence[str], *, gpus: int = 8, after=()) -> Start:
        attempt = self.store.job(name).attempt + 1
        return Start(job=name, attempt=attempt, placement=a_placement(hosts, gpus), after=after)

    def tell(self, *events: Event) -> int:
        return self.store.append(events, now_s=self.now)

    def reserved(self, name: str, attempt: int | None = None) -> int:
        return self._about(GangReserved, name, attempt)

    def running(self, name: str, attempt: int | None = None) -> int:
        return self._about(GangRunning, name, attempt)

    def exited(self, name: str, codes: Iterable[int] = (0,), lost_host=None, attempt: int | None = None) -> int:
        exits = tuple(RankExit(rank=rank, code=code) for rank, code in enumerate(codes))
        return self._about(GangExited, name, attempt, exits=exits, lost_host=lost_host)

    def start_failed(self, name: str, host=None, attempt: int | None = None) -> int:
        return self._about(GangStartFailed, name, attempt, cause="no such image", host=host)

    def progress(self, name: str, saved_s: int, attempt: int | None = None) -> int:
        return self._about(GangProgress, name, attempt, saved_work_s=saved_s)

    def released(self, name: str, attempt: int | None = None) -> int:
        return self._about(GangReleased, name, attempt)

    def host_is(self, host: str, state: HostState, cause: str = "") -> int:
        self.events += 1
        return self.tell(HostChanged(id=f"host-{self.events}", at_s=self.now, host=host, state=state, cause=cause))

    def run(self, name: str, hosts: Sequence[str] = ("a1",), **fields) -> JobRecord:
        """The job's next attempt, up to running."""
        self.plan(name, hosts, **fields)
        self.reserved(name)
        self.running(name)
        return self.store.job(name)

    def finish(self, name: str, code: int = 0) -> JobRecord:
        """A running job exits and its hosts are verified clean."""
        self.exited(name, [code] * self.store.job(name).job.workers)
        self.released(name)
        return self.store.job(name)

    def state(self, name: str) -> JobState:
        return self.store.job(name).state

    def _about(self, kind, name: str, attempt: int | None, **fields) -> int:
        number = self.store.job(name).attempt if attempt is None else attempt
        extra = f"/{fields['saved_work_s']}" if "saved_work_s" in fields else ""
        event_id = f"{name}/{number}/{kind.__name__}{extra}"
        return self.tell(kind(id=event_id, at_s=self.now, job=name, attempt=number, **fields))


def check_books(store) -> None:
    """What must hold of every store at every moment (scenario K20)."""
    snapshot = store.snapshot(10**6)
    intents = {(i.job.id, i.attempt): i for site in snapshot.sites for i in store.intents(site.id)}
    for record in snapshot.jobs:
        assert (record.placement is not None) == (record.state in HOLDING)
        if record.state is JobState.STOPPING:
            assert intents[record.id, record.attempt].want == "stop"
    holding = {(r.id, r.attempt): r.placement for r in snapshot.jobs if r.state in HOLDING}
    assert {key: i.placement for key, i in intents.items()}.items() <= holding.items()
    waiting = {r.id for r in snapshot.jobs if r.state is JobState.QUEUED}
    assert {promise.job for promise in snapshot.reservations} <= waiting


def unversioned(record: JobRecord) -> JobRecord:
    return replace(record, version=0)


def cards_held(store) -> dict[tuple[str, int], list[str]]:
    """Who holds each card, beneficiaries apart that wait for a victim: nothing of them is there yet."""
    with store._library.read() as books:
        rows = books.intents()
    live = {(row.intent.job.id, row.intent.attempt) for row in rows}
    waiting = {row.intent.job.id for row in rows if live & {(ref.job, ref.attempt) for ref in row.after}}
    held: dict[tuple[str, int], list[str]] = {}
    for record in store.snapshot(10**6).jobs:
        if record.placement is None or record.id in waiting:
            continue
        for worker in record.placement.workers:
            for card in worker.gpus:
                held.setdefault((worker.host, card), []).append(record.id)
    return held


def fields(record: JobRecord) -> dict:
    return {f.name: getattr(record, f.name) for f in dataclasses.fields(record)}
