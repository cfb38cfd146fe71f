"""`forecast`: when each waiting job is expected to start, by running the rules forward (docs/forecast.md)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, Protocol

from ..model.decision import Preemption, Resize, Start
from ..model.ids import JobId
from ..model.job_state import WAITING, JobState
from ..model.policy import Policy
from ..model.reservation import Reservation
from ..model.snapshot import JobRecord, Snapshot
from .admission import Admissions
from .carried import Carried
from .future import Began, Future
from .greedy import greedy
from .walltimes import Basis, Learned, Walltimes

HORIZON_S = 14 * 86_400
"""How far a forecast looks, in seconds."""

MOST_STEPS = 600
"""Rounds that are run forward for one forecast."""

CARRY_FROM = 20_000
"""Waiting jobs x hosts beyond which only the first round is decided in full: from then on the greedy's books are
carried forward, and ends near each other are seen at once."""

GRAIN = 16
"""There, what ends within this part of the time since now is seen together: a start is told late by 6 % at most."""


class Unforecast(StrEnum):
    """Why no start is told for a job."""

    HELD = "held"
    DEPENDENCY = "dependency"
    NEVER_FITS = "never_fits"
    NO_ROOM = "no_room"
    EXPIRES = "expires"
    HORIZON = "horizon"
    STEPS = "steps"


class Chosen(Protocol):
    """What a round decided: a `Decision`, or any plan of starts and preemptions; maybe `reservations`, `resizes`."""

    @property
    def starts(self) -> tuple[Start, ...]:
        """The gangs that start."""

    @property
    def preemptions(self) -> tuple[Preemption, ...]:
        """The gangs that leave for them."""


Decide = Callable[[Snapshot, Policy], "Chosen | Sequence[Start]"]
"""One round: `greedy`, `solve`, or anything of their kind. Pure."""


class Acts(NamedTuple):
    """What a round does; `reservations` None where what decides knows no plans."""

    starts: tuple[Start, ...]
    preemptions: tuple[Preemption, ...] = ()
    reservations: tuple[Reservation, ...] | None = None
    resizes: tuple[Resize, ...] = ()


def unpack(chosen: Chosen | Sequence[Start]) -> Acts:
    """Starts, preemptions, plans and returns of what a round decided."""
    if isinstance(chosen, Sequence):
        return Acts(tuple(chosen))
    plans: Sequence[Reservation] | None = getattr(chosen, "reservations", None)
    resizes: Sequence[Resize] = getattr(chosen, "resizes", ())
    kept = None if plans is None else tuple(plans)
    return Acts(tuple(chosen.starts), tuple(chosen.preemptions), kept, tuple(resizes))


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """When a waiting job is expected to get its hosts, in seconds since the epoch; None with `why` where not told.

    `start_s` rests on estimates where jobs have any. `earliest_s` and `latest_s` span the starts by estimates and by
    limits (all jobs running as long as they may); `latest_s` is None where by limits no start is found. `steps` is how
    many rounds were run forward up to the start.
    """

    job: JobId
    start_s: int | None = None
    earliest_s: int | None = None
    latest_s: int | None = None
    basis: Basis = Basis.NOW
    steps: int = 0
    why: Unforecast | None = None


def forecast(
    snapshot: Snapshot,
    policy: Policy,
    *,
    decide: Decide = greedy,
    horizon_s: int = HORIZON_S,
    most_steps: int = MOST_STEPS,
    learned: Learned | None = None,
    bounds: bool = True,
    ratios: Sequence[int] = (),
) -> tuple[Forecast, ...]:
    """A forecast for every waiting job, in the order of the snapshot; pure and deterministic.

    At each expected end the hosts come free and `decide` chooses what starts. `bounds` False leaves out the second
    run, by limits, and with it `earliest_s` and `latest_s`. `ratios` (run over estimate of ended jobs, in thousandths)
    correct estimates.
    """
    waiting = [record for record in snapshot.jobs if record.state in WAITING]
    if not waiting:
        return ()
    admissions = Admissions(snapshot, policy)
    never = frozenset(record.id for record in waiting if admissions.never_fits(record) is not None)
    opening = Future(snapshot, policy, Walltimes(snapshot, policy)).snapshot()
    first = unpack(decide(opening, policy))
    run = _Run(snapshot, policy, decide, first, horizon_s, most_steps, never)
    expected = run(Walltimes(snapshot, policy, learned=learned, ratios=ratios))
    by_limits = run(Walltimes(snapshot, policy, by_limits=True)) if bounds else None
    return tuple(_combined(record, expected, by_limits) for record in waiting)


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What one run forward found; `planned` are the starts of plans that it did not see carried out or broken."""

    began: dict[JobId, Began]
    planned: dict[JobId, int]
    why: dict[JobId, Unforecast]


@dataclass(frozen=True, slots=True)
class _Run:
    """The settings of the runs of one forecast."""

    snapshot: Snapshot
    policy: Policy
    decide: Decide
    first: Acts
    horizon_s: int
    most_steps: int
    never: frozenset[JobId]

    def __call__(self, walltimes: Walltimes) -> _Outcome:
        """Runs forward until all that can start has started, or the horizon or the steps are used up."""
        future = Future(self.snapshot, self.policy, walltimes)
        begin_s, steps, ending = self.snapshot.now_s, 1, Unforecast.NO_ROOM
        waiting = {r.id for r in self.snapshot.jobs if r.state in WAITING}
        carry = len(waiting) * len(self.snapshot.hosts) > CARRY_FROM
        waiting -= self.never
        future.carry_out(*self.first[:2], steps, *self.first[2:])
        carried = Carried(future.snapshot(), self.policy) if carry else None
        blind = dict(future.plans) if carried or self.first.reservations is None else {}
        while True:
            waiting = {name for name in waiting if future.state(name) in (JobState.QUEUED, JobState.BLOCKED)}
            next_s = future.next_s() if waiting else None
            if next_s is None:
                break
            if next_s > begin_s + self.horizon_s or steps == self.most_steps:
                ending = Unforecast.STEPS if steps == self.most_steps else Unforecast.HORIZON
                break
            freed = future.advance(next_s + (next_s - begin_s) // GRAIN if carried else next_s)
            if carried:
                carried.left(freed)
            steps += self._round(future, carried, steps)
        left = ((job, plan) for job, plan in (blind or future.plans).items() if job not in future.failed)
        planned = {job: max(begin_s, plan.planned_start_s) for job, plan in left}
        return _Outcome(future.began, planned, self._reasons(future, ending))

    def _round(self, future: Future, carried: Carried | None, steps: int) -> int:
        """One round at the future's time; returns 1 where one was needed."""
        candidates = list(future.candidates())
        snapshot = future.snapshot()
        if not candidates or (carried and not carried.may_start(snapshot, candidates)):
            return 0
        acts = unpack(carried.decide(snapshot) if carried else self.decide(snapshot, self.policy))
        future.carry_out(*acts[:2], steps + 1, *acts[2:])
        return 1

    def _reasons(self, future: Future, ending: Unforecast) -> dict[JobId, Unforecast]:
        """Why each job that has not started did not."""
        why = {}
        for record in self.snapshot.jobs:
            if record.id in self.never:
                why[record.id] = Unforecast.NEVER_FITS
            elif record.id in future.expired:
                why[record.id] = Unforecast.EXPIRES
            elif record.id in future.failed:
                why[record.id] = Unforecast.DEPENDENCY
            elif record.id not in future.began:
                state = future.state(record.id)
                told = {JobState.HELD: Unforecast.HELD, JobState.BLOCKED: Unforecast.DEPENDENCY}
                known = told.get(state) if state is not None and ending is Unforecast.NO_ROOM else None
                why[record.id] = Unforecast.HELD if record.state is JobState.HELD else known or ending
        return why


def _combined(record: JobRecord, expected: _Outcome, by_limits: _Outcome | None) -> Forecast:
    began = _start(record.id, expected)
    if began is None:
        return Forecast(job=record.id, why=expected.why[record.id])
    late = None if by_limits is None else _start(record.id, by_limits)
    return Forecast(
        job=record.id,
        start_s=began.at_s,
        earliest_s=None if by_limits is None else min(began.at_s, late.at_s if late else began.at_s),
        latest_s=max(began.at_s, late.at_s) if late else None,
        basis=began.basis,
        steps=began.steps,
    )


def _start(job: JobId, outcome: _Outcome) -> Began | None:
    """When the run saw the job begin; when it is planned to, where that is sooner or nothing was seen."""
    began, planned_s = outcome.began.get(job), outcome.planned.get(job)
    if planned_s is None or (began is not None and began.at_s <= planned_s):
        return began
    return Began(planned_s, Basis.LIMIT, began.steps if began else 0)
