"""Advice for a job that is handed in: what runs badly, is hard to place, or has to wait for others to end."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property

from ..model.job import Job
from ..model.limits import grace_s, walltime_limit_s
from ..model.policy import Policy
from ..model.snapshot import JobRecord, Snapshot
from .demand import allowed_sites
from .empty_fleet import EmptyFleet
from .variants import LAYER_NAME
from .wording import duration


class Advice:
    """Warnings about jobs of one fleet, which is `fleet` when it is empty; they refuse nothing."""

    def __init__(self, snapshot: Snapshot, policy: Policy, fleet: EmptyFleet) -> None:
        self._snapshot, self._policy = snapshot, policy
        self._ahead = sorted({w.start_s for h in snapshot.hosts for w in h.windows if w.end_s > snapshot.now_s})
        self._fleet = fleet

    @cached_property
    def _windowed(self) -> EmptyFleet | None:
        return EmptyFleet(self._snapshot, self._policy, windows=True) if self._ahead else None

    def __call__(self, job: Job) -> tuple[str, ...]:
        """All warnings about that job."""
        return (*_shapes(job), *self._labels(job), *self._windows(job), *self._finish(job))

    def _finish(self, job: Job) -> Iterator[str]:
        """A time to finish by that it would miss even if it started now."""
        if job.finish_by_s is None:
            return
        run_s, by = self._longest_s(job), "its walltime limit"
        if job.walltime_estimate_s is not None and job.walltime_estimate_s < run_s:
            run_s, by = job.walltime_estimate_s, "its estimate"
        left_s = job.finish_by_s - self._snapshot.now_s
        late_s = self._policy.eviction.launch_s + run_s - left_s
        if left_s <= 0:
            yield f"the time that it is to finish by passed {duration(-left_s)} ago"
        elif late_s > 0:
            yield (
                f"started at once it would end {duration(late_s)} after the time that it is to finish by, "
                f"if it runs for {duration(run_s)}, {by}"
            )

    def _longest_s(self, job: Job) -> int:
        guaranteed = any(team.id == job.team and team.guarantee for team in self._snapshot.teams)
        return walltime_limit_s(JobRecord(job=job, submitted_s=0), guaranteed, self._policy)

    def _labels(self, job: Job) -> Iterator[str]:
        """More jobs with a label than the sites of the gang have domains to keep them apart in."""
        sites = allowed_sites(job, self._snapshot, self._policy)
        hosts = [host for host in self._snapshot.hosts if host.path.site in sites]
        for rule in job.anti_affinity:
            others = sum(
                not record.state.ended and any(other.label == rule.label for other in record.job.anti_affinity)
                for record in self._snapshot.jobs
                if record.id != job.id
            )
            domains = len({host.path.domain(rule.layer, host.id) for host in hosts})
            if others >= domains > 0:
                layer = LAYER_NAME[rule.layer]
                yield (
                    f"{others} other jobs carry the anti-affinity label {rule.label!r}, and it may run in {domains} "
                    f"{layer}{'s' if domains > 1 else ''}: they cannot all run at once"
                )

    def _windows(self, job: Job) -> Iterator[str]:
        """A walltime limit that no room now open to the gang outlasts."""
        record = JobRecord(job=job, submitted_s=0)
        if self._windowed is None or self._windowed.fits(record) or not self._fleet.fits(record):
            return
        over_s = self._policy.eviction.launch_s + grace_s(job) + self._policy.eviction.clean_s
        limits = [start - self._snapshot.now_s - over_s for start in self._ahead]
        limits = [limit for limit in limits if limit > 0]
        # The longer the limit, the fewer hosts are left: those that fit come first.
        fleet = self._windowed

        def too_long(limit: int) -> bool:
            return not fleet.fits(replace(record, job=replace(job, walltime_limit_s=limit)))

        fitting = bisect_left(limits, True, key=too_long)
        asked = self._longest_s(job)
        if fitting:
            yield (
                f"with a walltime limit of {duration(asked)} it has to wait until maintenance is over; "
                f"with {duration(limits[fitting - 1])} or less there is room before"
            )
        else:
            yield "it has to wait until maintenance is over: no walltime limit is short enough to run before"


def _shapes(job: Job) -> Iterator[str]:
    """Advice on shapes that run badly or are hard to place."""
    for role in job.roles:
        gpus, count = role.request.whole_gpus, role.count
        if gpus & (gpus - 1):
            yield f"{role.name}: {gpus} GPUs per worker leave a part of each host that few can use; 4 or 8 pack well"
        if role.request.gpu_milli and count & (count - 1):
            yield f"{role.name}: {count} workers; collectives and placement work best with a power of two"
    if job.walltime_limit_s is None and job.gpu_milli:
        yield "no walltime limit: the pool's maximum is assumed, so the job cannot fill short gaps"
    if job.gpu_milli and job.checkpoint is None:
        yield "no checkpoint policy: all work since the start is lost when the job is stopped"
