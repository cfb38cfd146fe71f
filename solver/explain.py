"""Why each job that waits does so, with the rest of the decision fixed; every reason is tried before it is told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..model.decision import Preemption, Reason, ReasonKind, Resize, Start
from ..model.job_state import WAITING, JobState
from ..model.placement import Placement
from ..model.policy import Policy
from ..model.reservation import Reservation
from ..model.snapshot import JobRecord, Snapshot
from .admission import Admissions, lent
from .covered import Covered
from .demand import Confinement
from .drain_reasons import DrainReasons
from .guard import UNLIMITED, Guard
from .lifts import ANYWHERE, GUARANTEE, LIFTS, Lift, Lifted, matters, sets
from .order import order
from .rights import only_inside
from .shortage import needs_cards, needs_place, of_lifts, reason_of
from .sizes import as_started, least
from .tips import tips
from .unchecked import unchecked, varied
from .variants import Variant
from .wording import sentence
from .world_view import Spot
from .worlds import World, Worlds

MOST_WORK = 400_000
"""Work for all reasons of a round, some tenths of a second; beyond it, jobs of a new shape stay undecided."""


def reasons(
    snapshot: Snapshot,
    policy: Policy,
    starts: Sequence[Start],
    preemptions: Sequence[Preemption] = (),
    reservations: Sequence[Reservation] = (),
    resizes: Sequence[Resize] = (),
    guard: Guard = UNLIMITED,
) -> tuple[Reason, ...]:
    """Exactly one main reason for every job that waits, in the order of the snapshot, with its sentence.

    An elastic gang is spoken of at its smallest size, for with that it would start.
    Equal requests share the work. A reason is `undecided` where the work set aside, or the guard's time, is used up.
    """
    snapshot = returned(snapshot, resizes)
    started = {start.job for start in starts}
    waiting = [record for record in snapshot.jobs if record.state in WAITING and record.id not in started]
    place = order(snapshot, policy).place
    with lent(snapshot, policy) as admissions:
        known = Explainer(snapshot, policy, starts, preemptions, reservations=reservations, admissions=admissions)
        # The head of the queue comes first, so that the work is spent where it is asked about most.
        found = {
            record.id: known.reason(record) if guard.remaining_s() > 0 else known.left_open(record)
            for record in sorted(waiting, key=lambda r: place.get(r.id, -1))
        }
    return tuple(found[record.id] for record in waiting)


class Explainer:
    """Reasons around one decision. `most_work` bounds the work, in the units of `Worlds.spent`.

    `admissions` are those of the fleet, if they are known.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        policy: Policy,
        starts: Sequence[Start],
        preemptions: Sequence[Preemption] = (),
        most_work: int = MOST_WORK,
        reservations: Sequence[Reservation] = (),
        admissions: Admissions | None = None,
    ) -> None:
        self._snapshot, self._policy, self._starts, self._most_work = snapshot, policy, starts, most_work
        self._worlds = Worlds(snapshot, policy, starts, preemptions)
        self._admissions = admissions or Admissions(snapshot, policy)
        self._covered = Covered(snapshot, starts)
        self._states = {record.id: record.state for record in snapshot.jobs}
        self._types = tuple(sorted({gpu.gpu_type for host in snapshot.hosts for gpu in host.gpus if gpu.healthy}))
        self._drains = DrainReasons(snapshot, policy, reservations)
        self._known: dict[tuple[object, ...], Reason] = {}

    def reason(self, record: JobRecord) -> Reason:
        """The main reason why that job waits."""
        record = least(record)
        reason = self._standing(record)
        if reason is None:
            job = record.job
            team = job.team if self._worlds.heeds_team(record) else None
            asks = (job.roles, job.topology, job.cross_site, job.off_premises, job.sites, job.tier <= 2, team)
            shape = (*asks, record.level, only_inside(record), *self._worlds.apart(record), *self._drains.apart(record))
            if shape not in self._known:
                self._known[shape] = self._shortage(record)
            reason = varied(self._known[shape], job=record.id)
        reason = self._drains.with_plan(reason)
        return varied(reason, sentence=sentence(reason))

    def left_open(self, record: JobRecord) -> Reason:
        """No reason, for want of time; with the plan of the job, if it has one."""
        reason = self._drains.with_plan(Reason(job=record.id, kind=ReasonKind.UNDECIDED))
        return varied(reason, sentence=sentence(reason))

    def _standing(self, record: JobRecord) -> Reason | None:
        """Reasons that lie in the job, not in what is free."""
        never = self._admissions.impossible(record)
        if never is not None:
            return never
        if record.state is JobState.HELD:
            return Reason(job=record.id, kind=ReasonKind.HELD)
        if record.state is JobState.BLOCKED:
            open_jobs = [name for name in record.job.after if self._states.get(name) is not JobState.SUCCEEDED]
            return Reason(
                job=record.id,
                kind=ReasonKind.BLOCKED,
                subject=", ".join(open_jobs),
                asked=len(open_jobs),
                unit="jobs",
            )
        wait_s = record.not_before_s - self._snapshot.now_s
        if wait_s > 0:
            return Reason(job=record.id, kind=ReasonKind.BACK_OFF, asked=wait_s, unit="s")
        return None

    def _shortage(self, record: JobRecord) -> Reason:
        """What the gang lacks beside the rest of the decision, with amounts and tips."""
        if self._worlds.spent > self._most_work:
            return Reason(job=record.id, kind=ReasonKind.UNDECIDED)
        if self.could_evict(record):
            held = self._drains.withheld(record, None)
            return held or Reason(job=record.id, kind=ReasonKind.UNDECIDED, subject=_EVICTS)
        lifts = self.blame(record)
        if lifts is None:
            spent = self._worlds.spent > self._most_work
            return Reason(job=record.id, kind=ReasonKind.UNDECIDED, subject="" if spent else _UNKNOWN)
        lifted = self._spot(record, lifts) if needs_place(lifts) else None
        if lifted is None and needs_place(lifts):
            return Reason(job=record.id, kind=ReasonKind.UNDECIDED, subject=_UNKNOWN)
        if not lifts:
            held = self._drains.withheld(record, lifted.hosts if lifted is not None else None)
            return held or Reason(job=record.id, kind=ReasonKind.UNDECIDED, subject=_FITS)
        reason = self._covered.lacking(record) if lifts[0] is GUARANTEE else None
        if reason is None:
            told = replace(record, job=self._covered.narrowed(record.job)) if only_inside(record) else record
            reason = reason_of(told, lifts, lifted, self._worlds, self._starts, self._policy)
        else:
            reason = of_lifts(reason, lifts)
        helps = tuple(f"starts at once {variant.text}" for variant in self.tips(record))
        return replace(reason, helps=helps)

    def blame(self, record: JobRecord) -> tuple[Lift, ...] | None:
        """The smallest set of lifts that lets the gang start; None where none was found or no work is left."""
        self._worlds.see(record)
        lifts = (GUARANTEE, *LIFTS) if self._covered.lacking(record) is not None else LIFTS
        some = [lift for lift in lifts if matters(lift, record, self._worlds, bool(self._starts))]
        for tried in sets(some, protected=bool(self._worlds.protected())):
            if self._worlds.spent > self._most_work:
                return None
            trial = self._trial(record, tried)
            if trial is not None and self._worlds.could(*trial):
                return tried.lifts
        return None

    def could_evict(self, record: JobRecord) -> bool:
        """Whether the gang would not fit as it is, and would if all jobs had left that it may still evict."""
        self._worlds.see(record)
        return (
            self._worlds.spent <= self._most_work
            and bool(self._worlds.victims())
            and not self._worlds.could(record)
            and self._worlds.without_victims(record)
        )

    def tips(self, record: JobRecord) -> tuple[Variant, ...]:
        """Changes of the gang with which it would start at once."""
        self._worlds.see(record)
        return tips(record, self._worlds, self._types, self._drains)

    def lifted(self, record: JobRecord, lifts: tuple[Lift, ...]) -> Placement | None:
        """Where the gang would be placed without these demands and rules; None where nowhere, or it makes no such."""
        trial = self._trial(record, Lifted.of(*lifts))
        return None if trial is None else self._worlds.placement(*trial)

    def _spot(self, record: JobRecord, lifts: tuple[Lift, ...]) -> Spot | None:
        trial = self._trial(record, Lifted.of(*lifts))
        return None if trial is None else self._worlds.spot(*trial, whole=needs_cards(lifts))

    def _trial(self, record: JobRecord, tried: Lifted) -> tuple[JobRecord, World, Confinement | None] | None:
        """The gang without these demands, the world without these rules, and where it must stay together then.

        None where it makes no such demand, or where there is not enough for it at any rate.
        """
        self._worlds.see(record)
        enough = self._worlds.any_enough if tried.opens else self._worlds.enough
        if not enough(record, tried.world):
            return None
        job = record.job
        for lift in tried.lifts:
            changed = lift.change(job) if lift.change is not None else job
            if changed is None:
                return None
            job = changed
        record = record if job is record.job else varied(record, job=job)
        return record, tried.world, ANYWHERE if tried.anywhere else None


def returned(snapshot: Snapshot, resizes: Sequence[Resize]) -> Snapshot:
    """The snapshot with those that return where they return to."""
    back = {act.job: act.placement for act in resizes}
    if not back:
        return snapshot
    jobs = tuple(
        replace(record, placement=back[record.id], job=as_started(record, back[record.id]))
        if record.id in back
        else record
        for record in snapshot.jobs
    )
    return unchecked(snapshot, jobs=jobs)


_FITS = "it fits, and the round ended before its turn"
_EVICTS = "others could be preempted for it, and the round ended before its turn"
_UNKNOWN = "no change of one or two demands was found that would let it start"
