"""The synthetic overlay: what no public trace tells, drawn once, seeded, and said in every table.

Each job's draws depend on (seed, job name) alone, so that dropping or adding jobs leaves the others as they were.
"""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..model.host import Host
from ..model.job import CheckpointPolicy, DatasetRef, Preemptible
from .workload import Outage, SimJob, Workload

HOUR = 3_600
DAY = 86_400
LIMITS_S = tuple(
    round(hours * HOUR) for hours in (0.25, 0.5, 1, 2, 4, 8, 12, 24, 36, 48, 72, 120, 168, 336, 672, 1_344, 2_688)
)
"""The round numbers that people type as limits (Tsafrir et al., JSSPP 2005: some twenty values make up 90 %)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlay:
    """The parameters, thousandths where they are shares.

    `accuracy_milli`: run time over asked limit is uniform from this to 1 (Mu'alem and Feitelson, TPDS 2001), then the
    limit is rounded up to a round number. Jobs whose limit is below `checkpoint_from_s` save nothing.
    """

    tiers_milli: tuple[int, int, int, int, int] = (20, 80, 600, 150, 150)
    accuracy_milli: int = 100
    estimate_sigma: float = 0.5
    checkpointing_milli: int = 800
    checkpoint_from_s: int = HOUR
    checkpoint_interval_s: int = 1_800
    with_data_milli: int = 700
    datasets: int = 40
    host_mtbf_s: int = 90 * DAY
    host_repair_s: int = 4 * HOUR
    failing_starts_milli: int = 5

    def told(self) -> tuple[str, ...]:
        """What it makes up, in sentences."""
        one, two, three, four, anytime = (share / 10 for share in self.tiers_milli)
        return (
            f"tiers where the trace has no priorities: {one:g} % tier 1, {two:g} % tier 2, {three:g} % tier 3, "
            f"{four:g} % tier 4, {anytime:g} % preemptible at any time",
            f"walltime limits: run time / limit uniform in {self.accuracy_milli / 1000:g}..1, rounded up to a round "
            "number; estimates log-normal around the truth",
            f"checkpoints every {self.checkpoint_interval_s // 60} min for {self.checkpointing_milli // 10} % of "
            f"the jobs that ask for {self.checkpoint_from_s // HOUR} h or more",
            f"data sets for {self.with_data_milli // 10} % of the jobs, {self.datasets} in all by Zipf's law, 20 GiB "
            "to 2 TiB",
            f"host failures: mean time between them {self.host_mtbf_s // DAY} days a host, repaired in "
            f"{self.host_repair_s // HOUR} h; {self.failing_starts_milli / 10:g} % of the starts fail",
        )


def laid_over(workload: Workload, overlay: Overlay, seed: int) -> Workload:
    """The workload with what the overlay makes up; priorities that the trace has are kept."""
    plain = all(each.job.tier == 3 and each.job.preemptible is Preemptible.BY_HIGHER for each in workload.jobs)
    data = _datasets(overlay, seed)
    jobs = tuple(_dressed(each, overlay, seed, data, tiers=plain) for each in workload.jobs)
    return replace(
        workload,
        jobs=jobs,
        outages=_outages(workload.hosts, overlay, seed, workload.span_s),
        failing_starts_milli=overlay.failing_starts_milli,
        synthetic=(*workload.synthetic, *overlay.told()),
    )


def with_limits(each: SimJob, overlay: Overlay, seed: int) -> SimJob:
    """The job with a walltime limit that covers its run on the slowest acceptable type, and an estimate."""
    draw = random.Random(f"{seed}/limit/{each.job.id}")
    slowest = min((c.throughput_milli for role in each.job.roles for c in role.gpu_types), default=1000)
    longest_s = max(1, each.work_s * 1000 // min(slowest, 1000))
    accuracy = draw.uniform(overlay.accuracy_milli / 1000, 1.0)
    # The slack covers loading data and restarting, so that an honest limit never kills the job it was asked for.
    asked_s = max(longest_s / accuracy, longest_s * 1.2) + HOUR // 2
    place = bisect_left(LIMITS_S, asked_s)
    limit_s = LIMITS_S[place] if place < len(LIMITS_S) else round(asked_s)
    estimate_s = max(1, round(longest_s * draw.lognormvariate(0.0, overlay.estimate_sigma)))
    job = replace(each.job, walltime_limit_s=limit_s, walltime_estimate_s=min(limit_s, estimate_s))
    return replace(each, job=job)


def _dressed(each: SimJob, overlay: Overlay, seed: int, data: Sequence[DatasetRef], *, tiers: bool) -> SimJob:
    each = with_limits(each, overlay, seed)
    draw = random.Random(f"{seed}/overlay/{each.job.id}")
    tier, preemptible = _tier(draw, overlay)
    saves = draw.randrange(1000) < overlay.checkpointing_milli
    has_data = draw.randrange(1000) < overlay.with_data_milli
    dataset = draw.choices(data, weights=[1 / (rank + 1) for rank in range(len(data))])[0]
    job = each.job
    if tiers:
        job = replace(job, tier=tier, preemptible=preemptible)
    if saves and (job.walltime_limit_s or 0) >= overlay.checkpoint_from_s:
        policy = CheckpointPolicy(interval_s=overlay.checkpoint_interval_s, write_s=20, restart_s=60, grace_s=60)
        job = replace(job, checkpoint=policy)
    if has_data and job.gpu_milli:
        job = replace(job, dataset=dataset)
    return replace(each, job=replace(job, max_restarts=20))


def _tier(draw: random.Random, overlay: Overlay) -> tuple[int, Preemptible]:
    kind = draw.choices(range(5), weights=overlay.tiers_milli)[0]
    return (4, Preemptible.ANYTIME) if kind == 4 else (kind + 1, Preemptible.BY_HIGHER)


def _datasets(overlay: Overlay, seed: int) -> tuple[DatasetRef, ...]:
    draw = random.Random(f"{seed}/data")
    return tuple(
        DatasetRef(name=f"data-{number}", digest=f"d{number}", size_mib=round(20 * 1024 * 100 ** draw.random()))
        for number in range(overlay.datasets)
    )


def _outages(hosts: Sequence[Host], overlay: Overlay, seed: int, span_s: int) -> tuple[Outage, ...]:
    found = []
    for host in hosts:
        draw = random.Random(f"{seed}/outage/{host.id}")
        at_s = draw.expovariate(1 / overlay.host_mtbf_s)
        while at_s < span_s:
            back_s = at_s + overlay.host_repair_s * draw.uniform(0.25, 1.75)
            found.append(Outage(host=host.id, at_s=round(at_s), back_s=round(back_s) + 1))
            at_s = back_s + draw.expovariate(1 / overlay.host_mtbf_s)
    return tuple(sorted(found, key=lambda outage: (outage.at_s, outage.host)))
