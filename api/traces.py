"""A public trace as it would stand at one moment: hosts, the jobs that run, the jobs that wait."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..model.errors import InvalidInput
from ..model.host import MILLI
from ..model.ids import JobId
from ..model.job_state import JobState
from ..model.snapshot import JobRecord, Snapshot
from ..model.team import Team
from ..model.topology import Site
from .trace_csv import ASSUMPTIONS, Progress, TraceJob, read_hosts, read_jobs
from .trace_replay import Past, replay

__all__ = ["ASSUMPTIONS", "ImportedTrace", "import_trace"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedTrace:
    """The snapshot at time T, and how many jobs had ended, ran and waited then."""

    snapshot: Snapshot
    ended: int
    running: int
    waiting: int

    @property
    def gpus(self) -> int:
        """GPUs of the fleet."""
        return sum(host.gpu_milli for host in self.snapshot.hosts) // MILLI

    @property
    def gpus_held(self) -> float:
        """GPUs that the running jobs hold."""
        return sum(record.job.gpu_milli for record in self.snapshot.jobs if record.placement) / MILLI


def import_trace(
    jobs_file: Path,
    hosts_file: Path,
    at_s: int,
    *,
    carry_in: Path | None = None,
    first_hosts: int | None = None,
    first_jobs: int | None = None,
    undecided_s: int = 0,
    progress: Progress | None = None,
) -> ImportedTrace:
    """The snapshot of a trace at `at_s` seconds after its start.

    The past is replayed with `trace_replay.replay`; nothing was started in the last `undecided_s` seconds, so that
    there is something to decide (as many as `at_s`: everything waits, a packing benchmark).
    `carry_in` are jobs that were there before the trace began. Raises InvalidInput naming file, line and column.
    """
    hosts = read_hosts(hosts_file, first_hosts)
    jobs: list[TraceJob] = list(read_jobs(carry_in, at_s)) if carry_in else []
    jobs.extend(read_jobs(jobs_file, at_s, first_jobs, progress))
    jobs.sort(key=lambda job: job.submit_s)
    _check_names(jobs_file, jobs)
    past = replay(hosts, jobs, at_s, start_until_s=at_s - undecided_s)
    records = tuple(record for job in jobs if (record := _record(job, past)))
    snapshot = Snapshot(
        now_s=at_s,
        sites=tuple(Site(id=site) for site in dict.fromkeys(host.path.site for host in hosts)),
        hosts=hosts,
        jobs=records,
        teams=tuple(Team(id=team) for team in sorted({record.job.team for record in records})),
    )
    return ImportedTrace(
        snapshot=snapshot, ended=len(jobs) - len(records), running=len(past.running), waiting=len(past.waiting)
    )


def _record(job: TraceJob, past: Past) -> JobRecord | None:
    """The job as the snapshot holds it; None for one that has ended."""
    if job.job.id in past.waiting:
        return JobRecord(job=job.job, submitted_s=job.submit_s, state_since_s=job.submit_s)
    if job.job.id not in past.running:
        return None
    started_s, placement = past.running[job.job.id]
    return JobRecord(
        job=job.job,
        state=JobState.RUNNING,
        submitted_s=job.submit_s,
        state_since_s=started_s,
        attempt=1,
        placement=placement,
        planned_s=started_s,
        started_s=started_s,
    )


def _check_names(path: Path, jobs: list[TraceJob]) -> None:
    seen: set[JobId] = set()
    for job in jobs:
        if job.job.id in seen:
            raise InvalidInput(
                str(path), f"job {job.job.id!r} stands twice", "each job_id once, carried-in jobs included"
            )
        seen.add(job.job.id)
