"""Short ways to say hosts, gangs and snapshots in tests: `gang("a", 4, 8)` is J(4x8), `box("h1", 8)` is H1[8].

`from small_worlds import ...`: the conftest.py of each folder of solver tests puts this folder on the path.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from phalanx.model.decision import Certificate, Decision, GoalResult, GoalStatus, Grain, Preemption, Stage, Start
from phalanx.model.host import MILLI, Gpu, Host
from phalanx.model.ids import HostId, JobId, SiteId, TeamId
from phalanx.model.job import GpuTypeChoice, Job, Role, WorkerRequest
from phalanx.model.job_state import JobState
from phalanx.model.placement import Placement, WorkerPlacement
from phalanx.model.policy import Policy
from phalanx.model.snapshot import JobRecord, Snapshot
from phalanx.model.team import Team
from phalanx.model.topology import Site, TopologyPath
from phalanx.solver.goals import values
from phalanx.solver.plan import Plan
from phalanx.solver.prefetch import prefetches

NOW_S = 1_000_000
POLICY = Policy()


def box(
    name: str,
    gpus: int | Sequence[Gpu] = 8,
    gpu_type: str = "H100",
    *,
    site: str = "s",
    zone: str | None = None,
    rack: str | None = None,
    nvlink: str | None = None,
    **more: Any,
) -> Host:
    """A host with that many cards of 80 GiB, 64 cores and 512 GiB."""
    cards = tuple(card(index, gpu_type) for index in range(gpus)) if isinstance(gpus, int) else tuple(gpus)
    path = TopologyPath(site=SiteId(site), zone=zone, rack=rack, nvlink=nvlink)
    amounts = {"cpu_milli": 64_000, "memory_mib": 512 * 1024, "network_mbps": 100_000, **more}
    return Host(id=HostId(name), path=path, gpus=cards, **amounts)


def card(index: int, gpu_type: str = "H100", memory_gib: int = 80, *, healthy: bool = True) -> Gpu:
    """One card."""
    return Gpu(index=index, gpu_type=gpu_type, memory_mib=memory_gib * 1024, healthy=healthy)


def ask(gpus: float, cpu: float = 1, memory_gib: int = 0, card_gib: int = 0, network_mbps: int = 0) -> WorkerRequest:
    """What one worker asks; `gpus` and `cpu` in whole or tenths."""
    return WorkerRequest(
        gpu_milli=round(gpus * MILLI),
        gpu_memory_mib=card_gib * 1024,
        cpu_milli=round(cpu * MILLI),
        memory_mib=memory_gib * 1024,
        network_mbps=network_mbps,
    )


def role(name: str, count: int, request: WorkerRequest, types: Iterable[str] = (), **more: Any) -> Role:
    """A role; all types at equal speed."""
    return Role(
        name=name, count=count, request=request, gpu_types=tuple(GpuTypeChoice(gpu_type=t) for t in types), **more
    )


def gang(
    name: str, workers: int = 1, gpus: float = 1, types: Iterable[str] = (), *, team: str = "team", **more: Any
) -> Job:
    """J(workers x gpus); `roles` and `request` replace what these say."""
    request = more.pop("request", None) or ask(gpus)
    parallelism = more.pop("parallelism", None)
    roles = more.pop("roles", None) or (role("worker", workers, request, types, parallelism=parallelism),)
    return Job(id=JobId(name), team=TeamId(team), roles=tuple(roles), **more)


def queued(job: Job, waited_s: int = 0, **more: Any) -> JobRecord:
    """The job in the queue for that long."""
    return JobRecord(job=job, submitted_s=NOW_S - waited_s, **more)


def running(job: Job, *seats: tuple[str, Sequence[int]], ran_s: int = 60, **more: Any) -> JobRecord:
    """The job where it runs since `ran_s` seconds: host and cards of each worker in rank order."""
    facts = {"state": JobState.RUNNING, "attempt": 1, "started_s": NOW_S - ran_s, **more}
    return JobRecord(job=job, submitted_s=0, placement=placement(job, *seats), **facts)


def stop(record: JobRecord, *beneficiaries: str, loss_gpu_s: int = 0) -> Preemption:
    """The preemption of a running job for those."""
    names = tuple(JobId(name) for name in beneficiaries)
    return Preemption(job=record.id, attempt=record.attempt, beneficiaries=names, loss_gpu_s=loss_gpu_s)


def placement(job: Job, *seats: tuple[str, Sequence[int]]) -> Placement:
    """Host and cards of each worker in rank order."""
    ranks = [(role.name, index) for role in job.roles for index in range(role.count)]
    return Placement(
        workers=tuple(
            WorkerPlacement(role=name, index=index, host=HostId(host), gpus=tuple(gpus))
            for (name, index), (host, gpus) in zip(ranks, seats, strict=False)
        )
    )


def begin(job: Job, *seats: tuple[str, Sequence[int]], attempt: int = 1) -> Start:
    """The start of a job there."""
    return Start(job=job.id, attempt=attempt, placement=placement(job, *seats))


def world(hosts: Iterable[Host], *records: JobRecord | Job, teams: Iterable[Team] = ()) -> Snapshot:
    """A snapshot; bare jobs are queued, in the order given. Sites are those of the hosts, on premises."""
    fleet = tuple(hosts)
    sites = tuple(Site(id=site) for site in dict.fromkeys(host.path.site for host in fleet))
    rows = [record if isinstance(record, JobRecord) else queued(record, 1_000 - n) for n, record in enumerate(records)]
    return Snapshot(now_s=NOW_S, sites=sites, hosts=fleet, jobs=tuple(rows), teams=tuple(teams))


def decide(
    snapshot: Snapshot, *starts: Start, policy: Policy = POLICY, preemptions: Sequence[Preemption] = ()
) -> Decision:
    """A decision of these acts that states its goals rightly, each at its bound."""
    goals = tuple(
        GoalResult(
            name=goal.name,
            unit=goal.unit,
            value=goal.value,
            bound=goal.value,
            status=GoalStatus.PROVEN,
            parts=goal.parts,
        )
        for goal in values(snapshot, policy, starts, preemptions)
    )
    certificate = Certificate(stage=Stage.GREEDY, grain=Grain.SINGLETONS, budget_ms=0, spent_ms=0, seed=1)
    return Decision(
        snapshot_version=snapshot.version,
        now_s=snapshot.now_s,
        starts=starts,
        preemptions=tuple(preemptions),
        prefetches=prefetches(snapshot, policy, starts),
        goals=goals,
        certificate=certificate,
    )


def carried_out(snapshot: Snapshot, plan: Plan) -> Snapshot:
    """The next round at the same moment: victims wait again, and starts run."""
    placed = {start.job: start.placement for start in plan.starts}
    victims = {act.job for act in plan.preemptions}
    jobs = []
    for record in snapshot.jobs:
        if record.id in victims:
            times = (*record.evictions, snapshot.now_s)
            jobs.append(replace(record, state=JobState.QUEUED, placement=None, started_s=None, evictions=times))
        elif record.id in placed:
            facts = {"placement": placed[record.id], "started_s": snapshot.now_s, "attempt": record.attempt + 1}
            jobs.append(replace(record, state=JobState.RUNNING, **facts))
        else:
            jobs.append(record)
    return replace(snapshot, jobs=tuple(jobs))
