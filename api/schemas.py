"""The shapes that cross the HTTP edge. Times are seconds since the epoch, durations seconds, GPU amounts milli-GPU.

Objects of the domain (a job's specification, a decision) cross in their own JSON form: docs/formats/.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

Document = Annotated[dict[str, Any], Field(description="A document of docs/formats/.")]


class Shape(BaseModel):
    """What all shapes share: unknown fields are refused."""

    model_config = ConfigDict(extra="forbid")


class ProblemShape(BaseModel):
    """An error as RFC 9457 has it; `errors` lists where, what is wrong, and what would be right."""

    type: str = Field(examples=["urn:phalanx:invalid-input"])
    title: str = Field(examples=["Unprocessable Content"])
    status: int = Field(examples=[422])
    detail: str = Field(examples=["roles[0].count: -1 workers is out of range; expected 1 to 100000 workers"])
    instance: str = Field(examples=["/v1/jobs"])
    errors: list[dict[str, str]] = []


class SubmitAnswer(Shape):
    """The job's name; `created` is false where the Idempotency-Key was known. `warnings` never stop a job."""

    job: str = Field(examples=["llama-pretrain-7f3a"])
    created: bool
    warnings: list[str] = []


class ReasonView(Shape):
    """Why a job waits: the sentence for people, the rest as data."""

    kind: str = Field(examples=["busy"])
    sentence: str = Field(examples=["16 H100 GPUs are asked in one rack; 8 are free."])
    families: list[str] = []
    subject: str = ""
    asked: int = 0
    available: int = 0
    unit: str = ""
    helps: list[str] = []
    round: int | None = None


class ForecastView(Shape):
    """When a waiting job is expected to start, as of `at_s`; `why` says why no start is told.

    `earliest_s` to `latest_s` spans the starts by estimates and by limits.
    """

    sentence: str = Field(examples=["starts about 14:20 UTC (in 25 min)"])
    start_s: int | None = None
    earliest_s: int | None = None
    latest_s: int | None = None
    basis: str = Field(examples=["estimate"])
    why: str | None = Field(default=None, examples=["held"])
    steps: int = 0
    at_s: int


class RankView(Shape):
    """Where one rank runs."""

    rank: int
    role: str
    index: int
    host: str
    gpus: list[int] = []


class SlowRankView(Shape):
    """A rank that holds the others up: its own time in a step, beside the median rank's in thousandths."""

    rank: int
    host: str
    own_us: int
    times_milli: int


class StepsView(Shape):
    """Where the time of the latest steps goes, over all ranks that report: shares in thousandths, microseconds a step.

    `wait_milli` is waiting for batches, `peers_milli` waiting for slower ranks; `slow` are these, the slowest first.
    """

    compute_milli: int
    wait_milli: int
    checkpoint_milli: int
    peers_milli: int
    step_us: int
    longest_us: int
    last_step: int
    at_s: int
    ranks: int
    slow: list[SlowRankView] = []


class StoryEntry(Shape):
    """One entry of the log about a job."""

    number: int
    at_s: int
    kind: str = Field(examples=["gang_running"])
    attempt: int | None = None
    text: str = Field(examples=["attempt 1 runs"])


class JobSummary(Shape):
    """One job in a list. `waited_s` is from submission to its start, or until now."""

    id: str
    name: str
    team: str
    user: str
    tier: int
    level: int
    priority: int
    state: str = Field(examples=["queued"])
    submitted_s: int
    state_since_s: int
    started_s: int | None = None
    waited_s: int
    attempt: int
    workers: int
    gpu_milli: int
    hosts: list[str] = []
    exit_code: int | None = None
    message: str = ""
    version: int
    reason: ReasonView | None = None
    forecast: ForecastView | None = None


class JobView(JobSummary):
    """One job in full: `placement` while it holds capacity, `reason` while it waits, `story` oldest first."""

    placement: list[RankView] = []
    planned_s: int | None = None
    inside_guarantee: bool = False
    failed_starts: int = 0
    restarts: int = 0
    not_before_s: int = 0
    evictions: int = 0
    stop_cause: str | None = None
    saved_work_s: int = 0
    steps: StepsView | None = None
    story: list[StoryEntry] = []
    spec: Document


class JobPage(Shape):
    """Jobs, newest first; pass `next_cursor` as `cursor` for the next page."""

    jobs: list[JobSummary]
    next_cursor: str | None = None


class LogView(Shape):
    """The last lines that a rank wrote."""

    job: str
    attempt: int
    rank: int
    lines: list[str]


class PriorityRequest(Shape):
    """The job's priority inside its team and level; higher goes first."""

    priority: int = Field(ge=-1_000_000, le=1_000_000, examples=[10])


class CordonRequest(Shape):
    """Why an operator takes a host out of use."""

    cause: str = Field(default="", max_length=500, examples=["fan replaced on Tuesday"])


class GpuView(Shape):
    """One card, what of it is booked (milli-GPU), and by which jobs."""

    index: int
    gpu_type: str
    memory_mib: int
    healthy: bool
    used_milli: int
    jobs: list[str] = []


class HostView(Shape):
    """One host and what is booked on it."""

    id: str
    site: str
    zone: str | None = None
    rack: str | None = None
    nvlink: str | None = None
    state: str = Field(examples=["ready"])
    state_cause: str = ""
    state_since_s: int = 0
    gpus: list[GpuView] = []
    cpu_milli: int
    cpu_milli_used: int
    memory_mib: int
    memory_mib_used: int
    network_mbps: int
    disk_free_mib: int
    cached: list[dict[str, Any]] = []
    prefetches: list[dict[str, Any]] = Field(
        default=[], description="Data sets that it is to load before gangs start there: Prefetch of a decision."
    )
    jobs: list[str] = []
    reserved_for: dict[str, int] = Field(
        default={}, description="Jobs for which room is held here, and when each is planned to start (s)."
    )
    version: int


class HostList(Shape):
    """All hosts."""

    hosts: list[HostView]


class SolveRequest(Shape):
    """A snapshot and, optionally, a policy, as documents."""

    snapshot: Document
    policy: Document | None = None


class WhatIfRequest(Shape):
    """A change and what it is made to: a snapshot, without one the live fleet; without a policy the service's own."""

    change: Document
    snapshot: Document | None = None
    policy: Document | None = None


class EventView(Shape):
    """One entry of the log as /v1/events sends it."""

    number: int
    at_s: int
    kind: str
    subject: str
    document: Any = None


class ReadyView(Shape):
    """Whether the service can take work: the store answers and a scheduler leads."""

    ready: bool
    store: str
    leader: str | None = None


class ReportAnswer(Shape):
    """Whether the report was new, and the pre-stage orders that stand for the host: each a Prefetch of a decision."""

    applied: int
    prefetches: list[dict[str, Any]] = []
