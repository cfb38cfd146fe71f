"""What a simulation leaves behind: one outcome a job, samples of the fleet over time, and how the rounds went."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..model.ids import HostId, JobId, TeamId
from ..model.job_state import JobState
from .evictions import Eviction
from .foresight import Slips, Told


@dataclass(slots=True, kw_only=True)
class Outcome:
    """What became of one job. Times in seconds of the simulation; None: it did not come to that.

    `wait_s` is from submission to the first committed start; `queued_s` all time in the queue, restarts included.
    """

    job: JobId
    team: TeamId
    tier: int
    level: int
    gpu_milli: int
    submit_s: int
    measured: bool
    work_s: int
    start_s: int | None = None
    end_s: int | None = None
    state: JobState = JobState.QUEUED
    attempts: int = 0
    queued_s: int = 0
    held_gpu_s: float = 0.0

    @property
    def wait_s(self) -> int | None:
        """Seconds in the queue before the first start."""
        return None if self.start_s is None else self.start_s - self.submit_s

    @property
    def completion_s(self) -> int | None:
        """Seconds from submission to success."""
        return None if self.end_s is None or self.state is not JobState.SUCCEEDED else self.end_s - self.submit_s


@dataclass(frozen=True, slots=True)
class Sample:
    """The fleet from `at_s` until the next sample. `waiting` are the jobs that the last round left in the queue.

    `whole_free` counts GPUs that carry nothing, `gangs` the largest standard gangs that would fit.
    """

    at_s: int
    held_milli: int
    capacity_milli: int
    waiting: int
    waiting_milli: int
    whole_free: int
    gangs: int


@dataclass(frozen=True, slots=True)
class Span:
    """One attempt on one host, for the picture of the fleet: `cards` of it from start to end."""

    job: JobId
    team: TeamId
    host: HostId
    cards: tuple[int, ...]
    start_s: int
    end_s: int
    attempt: int


@dataclass(slots=True, kw_only=True)
class Rounds:
    """How the rounds of a run went: CPU seconds of each, and how many goals ended in which status."""

    seconds: list[float] = field(default_factory=list)
    proven: int = 0
    within: int = 0
    open: int = 0
    starts: int = 0
    violations: list[str] = field(default_factory=list)
    conflicts: int = 0


@dataclass(slots=True, kw_only=True)
class Run:
    """One scheduler on one workload with one seed.

    `events` are happenings of the simulation, `cpu_s` the CPU seconds it took. `window_s` is the last submission.
    `guaranteed_milli` is what each team is guaranteed, all GPU types together. `idle` is milli-GPU-seconds that stood
    idle while jobs waited, by cause; empty where it was not asked for.
    """

    scheduler: str
    workload: str
    seed: int
    outcomes: list[Outcome]
    samples: list[Sample]
    spans: list[Span]
    rounds: Rounds
    window_s: int
    end_s: int
    events: int
    cpu_s: float
    setup_gpu_s: float
    lost_gpu_s: float
    useful_gpu_s: float
    evictions: list[Eviction] = field(default_factory=list)
    told: list[Told] = field(default_factory=list)
    slips: Slips = field(default_factory=Slips)
    guaranteed_milli: dict[TeamId, int] = field(default_factory=dict)
    idle: Mapping[str, int] = field(default_factory=dict)
