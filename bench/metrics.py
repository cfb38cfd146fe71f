"""The numbers of one run: waits, completion, allocation, goodput, fragmentation, fairness, rounds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ..model.host import MILLI
from .foresight import Slips
from .preemption import Forecasts, Preempted, forecasts, forecasts_of_waits, guarantee_met, preempted
from .run import Outcome, Run, Sample

LEVEL_WEIGHTS = {3: 8, 2: 4, 1: 2, 0: 1}
"""What a job's wait counts in the level-weighted mean: each level twice the one below."""

SIZES = ((1, "<=1"), (4, "2-4"), (8, "5-8"), (16, "9-16"), (63, "17-63"), (10**9, ">=64"))
LARGE_GPUS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Mean and percentiles of some durations in seconds, and how many there are."""

    count: int
    mean: float
    p50: float
    p90: float
    p99: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """Everything a table shows of one run; shares are 0..1, times seconds. The window is 0 to the last submission.

    `allocation` over the window, `allocation_waiting` over the part of it in which the last round had left jobs
    waiting. `goodput` is allocation times the share of held GPU-seconds that was work and counted. `stranded_gpus` and
    `standard_gangs` are means while jobs waited. `fairness` is Jain's index over teams of GPU-seconds got in the window
    / GPU-seconds that would have been held without any waiting. `unstarted` jobs never started (0 in a complete run).
    `queued` is all time in the queue: `wait` and what came after evictions and other restarts. `idle_gpu_h` are the
    GPU-hours that stood idle while jobs waited, by cause (`idle.CAUSES`); empty where that was not asked for.
    """

    wait: Spread
    queued: Spread
    weighted_wait: float
    wait_by_tier: dict[str, Spread]
    wait_by_size: dict[str, Spread]
    wait_by_team: dict[str, Spread]
    completion: Spread
    makespan_s: int
    allocation: float
    allocation_waiting: float
    waiting_share: float
    goodput: float
    useful_share: float
    held_gpu_h: float
    setup_gpu_h: float
    lost_gpu_h: float
    preempted: Preempted
    forecast_waits: Forecasts
    forecast_new: Forecasts
    forecast_later: Forecasts
    slips: Slips
    guarantee_met: float | None
    stranded_gpus: float
    idle_gpu_h: dict[str, float]
    standard_gangs: float
    fairness: float
    unstarted: int
    failed: int
    rounds: int
    round_p50_s: float
    round_p95_s: float
    goals_proven: float
    goals_within: float
    goals_open: float
    violations: int
    events: int
    cpu_s: float


def spread(values: Iterable[float]) -> Spread:
    """Mean and percentiles (nearest rank); zeros for nothing."""
    ordered = sorted(values)
    if not ordered:
        return Spread(count=0, mean=0.0, p50=0.0, p90=0.0, p99=0.0)
    mean = sum(ordered) / len(ordered)
    p50, p90, p99 = (percentile(ordered, share) for share in (0.5, 0.9, 0.99))
    return Spread(count=len(ordered), mean=mean, p50=p50, p90=p90, p99=p99)


def percentile(ordered: Sequence[float], share: float) -> float:
    """The smallest value with at least that share of the values at or below it. The values must rise."""
    return ordered[min(len(ordered) - 1, max(0, -(-round(share * 1e6) * len(ordered) // 10**6) - 1))]


def waited_s(outcome: Outcome, run: Run) -> int:
    """The job's wait; for one that never started, what it had waited at the end: an underestimate, and counted."""
    return outcome.wait_s if outcome.wait_s is not None else max(0, run.end_s - outcome.submit_s)


def queued_s(outcome: Outcome, run: Run) -> int:
    """All time that the job spent in the queue, after evictions and other restarts too."""
    return max(outcome.queued_s, waited_s(outcome, run))


def measured(run: Run) -> list[Outcome]:
    """The jobs that count: those with GPUs that were not carried in."""
    return [outcome for outcome in run.outcomes if outcome.measured and outcome.gpu_milli]


def weighted_wait(run: Run) -> float:
    """The mean wait in seconds with each job counted by its level."""
    jobs = measured(run)
    total = sum(LEVEL_WEIGHTS[job.level] for job in jobs)
    return sum(LEVEL_WEIGHTS[job.level] * waited_s(job, run) for job in jobs) / max(1, total)


def measure(run: Run) -> Metrics:
    """All numbers of a run."""
    jobs = measured(run)
    held, capacity, waiting_held, waiting_capacity, waiting_s = _integrals(run)
    all_held = sum(outcome.held_gpu_s for outcome in run.outcomes)
    useful = run.useful_gpu_s / max(1e-9, all_held)
    goals = max(1, run.rounds.proven + run.rounds.within + run.rounds.open)
    seconds = sorted(run.rounds.seconds) or [0.0]
    allocation = held / max(1, capacity)
    return Metrics(
        wait=spread(waited_s(job, run) for job in jobs),
        queued=spread(queued_s(job, run) for job in jobs),
        weighted_wait=weighted_wait(run),
        wait_by_tier=_grouped(run, jobs, tier_of),
        wait_by_size=_grouped(run, jobs, size_of),
        wait_by_team=_grouped(run, jobs, lambda job: job.team),
        completion=spread(job.completion_s for job in jobs if job.completion_s is not None),
        makespan_s=run.end_s,
        allocation=allocation,
        allocation_waiting=waiting_held / max(1, waiting_capacity),
        waiting_share=waiting_s / max(1, run.window_s),
        goodput=allocation * useful,
        useful_share=useful,
        held_gpu_h=all_held / 3600,
        setup_gpu_h=run.setup_gpu_s / 3600,
        lost_gpu_h=run.lost_gpu_s / 3600,
        preempted=preempted(run),
        forecast_waits=forecasts_of_waits(run),
        forecast_new=forecasts(run, new=True),
        forecast_later=forecasts(run, new=False),
        slips=run.slips,
        guarantee_met=guarantee_met(run),
        stranded_gpus=_while_waiting(run, lambda sample: (sample.capacity_milli - sample.held_milli) / MILLI),
        idle_gpu_h={cause: milli_s / MILLI / 3600 for cause, milli_s in run.idle.items()},
        standard_gangs=_while_waiting(run, lambda sample: sample.gangs),
        fairness=_fairness(run),
        unstarted=sum(job.start_s is None for job in jobs),
        failed=sum(job.state.value == "failed" for job in jobs),
        rounds=len(run.rounds.seconds),
        round_p50_s=percentile(seconds, 0.5),
        round_p95_s=percentile(seconds, 0.95),
        goals_proven=run.rounds.proven / goals,
        goals_within=run.rounds.within / goals,
        goals_open=run.rounds.open / goals,
        violations=len(run.rounds.violations),
        events=run.events,
        cpu_s=run.cpu_s,
    )


def size_of(job: Outcome) -> str:
    """The size class of the tables."""
    return next(name for most, name in SIZES if job.gpu_milli <= most * MILLI)


def tier_of(job: Outcome) -> str:
    """The tier, or that the job may be preempted at any time."""
    return "preemptible" if job.level == 0 else f"tier {job.tier}"


def steps(run: Run) -> Iterable[tuple[Sample, int]]:
    """Each sample of the window with the seconds it lasts."""
    for sample, following in zip(run.samples, run.samples[1:], strict=False):
        if sample.at_s >= run.window_s:
            return
        yield sample, min(following.at_s, run.window_s) - sample.at_s


def _integrals(run: Run) -> tuple[float, float, float, float, int]:
    held = capacity = waiting_held = waiting_capacity = waiting_s = 0
    for sample, lasts_s in steps(run):
        held += sample.held_milli * lasts_s
        capacity += sample.capacity_milli * lasts_s
        if sample.waiting_milli:
            waiting_held += sample.held_milli * lasts_s
            waiting_capacity += sample.capacity_milli * lasts_s
            waiting_s += lasts_s
    return held, capacity, waiting_held, waiting_capacity, waiting_s


def _while_waiting(run: Run, value: Callable[[Sample], float]) -> float:
    total, time_s = 0.0, 0
    for sample, lasts_s in steps(run):
        if sample.waiting_milli:
            total += value(sample) * lasts_s
            time_s += lasts_s
    return total / max(1, time_s)


def _grouped(run: Run, jobs: Sequence[Outcome], key: Callable[[Outcome], str]) -> dict[str, Spread]:
    groups: dict[str, list[int]] = defaultdict(list)
    for job in jobs:
        groups[key(job)].append(waited_s(job, run))
    order = {name: number for number, (_, name) in enumerate(SIZES)}
    return {name: spread(groups[name]) for name in sorted(groups, key=lambda name: (order.get(name, 0), name))}


def _fairness(run: Run) -> float:
    """Jain's index over teams: 1 where waiting takes the same share of each team's use."""
    wanted: dict[str, float] = defaultdict(float)
    got: dict[str, float] = defaultdict(float)
    for job in run.outcomes:
        gpus = job.gpu_milli / MILLI
        wanted[job.team] += gpus * max(0, min(job.work_s, run.window_s - job.submit_s))
    for span in run.spans:
        got[span.team] += len(span.cards) * max(0, min(span.end_s, run.window_s) - span.start_s)
    shares = [min(1.0, got[team] / asked) for team, asked in wanted.items() if asked]
    squares = sum(share * share for share in shares)
    return sum(shares) ** 2 / (len(shares) * squares) if squares else 1.0
