"""Domain objects to the shapes of the HTTP edge, field by field and nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ..adapters.ports import RoundRecord, StoredEvent
from ..model import codec
from ..model.decision import GoalResult, Prefetch, Reason
from ..model.elastic import as_placed
from ..model.host import MILLI, Host
from ..model.job import WorkerRequest
from ..model.snapshot import JobRecord
from . import engine, schemas, schemas_rounds
from .story import story_entry
from .usage import HostUsage


def reason(value: Reason, number: int | None = None) -> schemas.ReasonView:
    """A reason, its sentence rendered; `number` is the round's."""
    return schemas.ReasonView(
        kind=value.kind,
        sentence=engine.sentence(value),
        families=[str(family) for family in value.families],
        subject=value.subject,
        asked=value.asked,
        available=value.available,
        unit=value.unit,
        helps=list(value.helps),
        round=number,
    )


def reasons(record: RoundRecord | None) -> dict[str, schemas.ReasonView]:
    """The reasons of a round by job, those of rejected jobs included."""
    if record is None:
        return {}
    told = {entry.job: entry for entry in record.decision.waiting}
    told |= {entry.job: entry.reason for entry in record.decision.rejections}
    return {job: reason(value, record.number) for job, value in told.items()}


def job_summary(
    record: JobRecord, now_s: int, why: schemas.ReasonView | None, forecast: schemas.ForecastView | None = None
) -> schemas.JobSummary:
    """One job of a list."""
    return schemas.JobSummary(**_summary_fields(record, now_s, why), forecast=forecast)


def job(
    record: JobRecord,
    now_s: int,
    why: schemas.ReasonView | None,
    events: Iterable[StoredEvent],
    forecast: schemas.ForecastView | None = None,
    steps: schemas.StepsView | None = None,
) -> schemas.JobView:
    """One job in full."""
    workers = record.placement.workers if record.placement else ()
    ranks = [
        schemas.RankView(rank=rank, role=w.role, index=w.index, host=w.host, gpus=list(w.gpus))
        for rank, w in enumerate(workers)
    ]
    return schemas.JobView(
        **_summary_fields(record, now_s, why),
        placement=ranks,
        planned_s=record.planned_s,
        inside_guarantee=record.inside_guarantee,
        failed_starts=record.failed_starts,
        restarts=record.restarts,
        not_before_s=record.not_before_s,
        evictions=len(record.evictions),
        stop_cause=record.stop_cause,
        saved_work_s=record.progress.saved_work_s,
        steps=steps,
        story=[story_entry(event) for event in events],
        forecast=forecast,
        spec=codec.document(record.job),
    )


def _summary_fields(record: JobRecord, now_s: int, why: schemas.ReasonView | None) -> dict[str, Any]:
    job = record.job
    until_s = now_s if record.started_s is None and not record.state.ended else record.started_s
    held = job if record.placement is None else as_placed(job, record.placement)
    return {
        "id": job.id,
        "name": job.name or job.id,
        "team": job.team,
        "user": job.user,
        "tier": job.tier,
        "level": record.level,
        "priority": job.priority,
        "state": record.state,
        "submitted_s": record.submitted_s,
        "state_since_s": record.state_since_s,
        "started_s": record.started_s,
        "waited_s": max(0, (until_s or record.state_since_s) - record.submitted_s),
        "attempt": record.attempt,
        "workers": held.workers,
        "gpu_milli": held.gpu_milli,
        "hosts": list(record.placement.hosts) if record.placement else [],
        "exit_code": record.exit_code,
        "message": record.message,
        "version": record.version,
        "reason": why,
    }


def host(value: Host, usage: HostUsage, orders: Sequence[Prefetch] = ()) -> schemas.HostView:
    """One host with what is booked on it, and what it is to load."""
    cards = [
        schemas.GpuView(
            index=gpu.index,
            gpu_type=gpu.gpu_type,
            memory_mib=gpu.memory_mib,
            healthy=gpu.healthy,
            used_milli=usage.gpu_milli.get(gpu.index, 0),
            jobs=list(usage.gpu_jobs.get(gpu.index, ())),
        )
        for gpu in value.gpus
    ]
    return schemas.HostView(
        id=value.id,
        site=value.path.site,
        zone=value.path.zone,
        rack=value.path.rack,
        nvlink=value.path.nvlink,
        state=value.state,
        state_cause=value.state_cause,
        state_since_s=value.state_since_s,
        gpus=cards,
        cpu_milli=value.cpu_milli,
        cpu_milli_used=usage.cpu_milli,
        memory_mib=value.memory_mib,
        memory_mib_used=usage.memory_mib,
        network_mbps=value.network_mbps,
        disk_free_mib=value.disk_free_mib,
        cached=[codec.encode(entry) for entry in value.cached],
        prefetches=[codec.encode(order) for order in orders],
        jobs=list(usage.jobs),
        reserved_for={str(job): start_s for job, start_s in usage.reserved_for.items()},
        version=value.version,
    )


def goal(value: GoalResult) -> schemas_rounds.GoalView:
    """One goal."""
    return schemas_rounds.GoalView(
        name=value.name,
        unit=value.unit,
        value=value.value,
        bound=value.bound,
        gap=value.gap,
        status=value.status,
        parts={part.name: part.value for part in value.parts},
    )


def round_view(record: RoundRecord) -> schemas_rounds.RoundView:
    """A round of a list."""
    return schemas_rounds.RoundView(**_round_fields(record))


def round_detail(record: RoundRecord) -> schemas_rounds.RoundDetail:
    """A round in full."""
    return schemas_rounds.RoundDetail(
        **_round_fields(record), reasons=reasons(record), decision=codec.document(record.decision)
    )


def _round_fields(record: RoundRecord) -> dict[str, Any]:
    decision = record.decision
    return {
        "number": record.number,
        "at_s": record.at_s,
        "outcome": record.outcome,
        "starts": len(decision.starts),
        "preemptions": len(decision.preemptions),
        "rejections": len(decision.rejections),
        "waiting": len(decision.waiting),
        "prefetches": len(decision.prefetches),
        "stage": decision.certificate.stage,
        "goals": [goal(value) for value in decision.goals],
        "times_ms": {time.stage: time.milliseconds for time in record.times},
        "violations": list(record.violations),
    }


def describe_request(request: WorkerRequest) -> str:
    """What one worker asks, in a few words: "8 GPUs, 64 cores, 512 GiB"."""
    parts = [
        _count(request.gpu_milli, "GPU"),
        _count(request.cpu_milli, "core"),
        f"{request.memory_mib / 1024:g} GiB" if request.memory_mib else "",
    ]
    return ", ".join(part for part in parts if part)


def _count(milli: int, what: str) -> str:
    return f"{milli / MILLI:g} {what}{'' if milli == MILLI else 's'}" if milli else ""
