"""The shapes of rounds and of the summary. Times are seconds since the epoch, stage times milliseconds."""

from __future__ import annotations

from pydantic import Field

from .schemas import Document, ReasonView, Shape


class GoalView(Shape):
    """A goal of the round: its value, and a bound that no decision can exceed while the goals before it hold."""

    name: str = Field(examples=["start[1]"])
    unit: str
    value: int
    bound: int
    gap: int
    status: str = Field(examples=["proven"])
    parts: dict[str, int] = Field(default={})


class RoundView(Shape):
    """One round: what came of it, its goals, its stage times in milliseconds."""

    number: int
    at_s: int
    outcome: str = Field(examples=["committed"])
    starts: int
    preemptions: int
    rejections: int
    waiting: int
    prefetches: int = 0
    stage: str
    goals: list[GoalView]
    times_ms: dict[str, int]
    violations: list[str] = Field(default=[])


class RoundDetail(RoundView):
    """A round with its whole decision and the reasons of the jobs it left waiting."""

    reasons: dict[str, ReasonView]
    decision: Document


class RoundPage(Shape):
    """Rounds, newest first; pass `next_before` as `before` for the next page."""

    rounds: list[RoundView]
    next_before: int | None = None


class WaitsView(Shape):
    """Waits from submission to the first running attempt, in seconds, of the jobs that have started."""

    jobs: int
    mean_s: int
    p50_s: int
    p90_s: int


class AllocationView(Shape):
    """GPU-seconds that jobs held, beside those that healthy hosts offered, since the first host was there."""

    held_gpu_s: int
    capacity_gpu_s: int
    share_milli: int


class ForecastErrorView(Shape):
    """How far the forecasts made at submission were off, over the jobs that waited ten minutes or more.

    Median absolute errors: in seconds, and in thousandths of the job's wait.
    """

    jobs: int
    median_error_s: int
    median_error_milli: int


class SummaryView(Shape):
    """How the service has done so far; outcomes and goals are counted over the latest 1000 rounds."""

    now_s: int
    since_s: int
    states: dict[str, int]
    waits: WaitsView
    allocation: AllocationView
    rounds: int
    outcomes: dict[str, int]
    goal_statuses: dict[str, int]
    forecasts: ForecastErrorView | None = None
