"""First come, first served, over the shared fleet: strict, or passing over what does not fit; first fit or best fit."""

from __future__ import annotations

from collections.abc import Callable

from ...model.decision import Decision, Start
from ...model.ids import JobId
from ...model.placement import Placement
from ...model.policy import Policy
from ...model.snapshot import JobRecord, Snapshot
from ...solver.books import Books
from ...solver.claims import Claims
from ...solver.demand import candidates
from ...solver.order import order
from ...solver.placing import Placer
from .booked import Booked
from .claimed import Only, by_rights, outside_first, types_of
from .decision import decision_of, preempting, start_of
from .evictor import Evictor
from .floor import Floor
from .tastes import Anywhere, First, first_card

Place = Callable[[JobRecord, Only], Placement | None]
"""Books a gang on the types that it may take, or returns None."""


def fifo(snapshot: Snapshot, policy: Policy) -> Decision:
    """Strict FIFO: by submission alone, and the first gang that does not fit blocks all behind it; first fit.

    The policy of a queue without priorities or backfill (Slurm's `sched/builtin` with equal priorities). A gang that
    no empty fleet could hold would block for ever; admission refuses such a job before it is queued.
    """
    return _serve(snapshot, policy, by_submission(candidates(snapshot)), first_fit_placing(snapshot, policy), True)


def first_fit(snapshot: Snapshot, policy: Policy) -> Decision:
    """By submission, passing over what does not fit; each gang on the first hosts in the order of the fleet."""
    return _serve(snapshot, policy, by_submission(candidates(snapshot)), first_fit_placing(snapshot, policy), False)


def best_fit(snapshot: Snapshot, policy: Policy) -> Decision:
    """Greedy packing with priorities: by level, then submission, passing over what does not fit; the tightest place.

    It shares the engine's own placing of one gang (`solver.placing`), so it knows every topology and card rule as well
    as Phalanx does, keeps racks together and spares empty hosts; what it lacks is fair share, the choice between
    gangs, and everything joint.
    """
    placer = Placer(snapshot, policy, Books(snapshot, policy.reserved))
    return _serve(snapshot, policy, by_level(snapshot, policy), engines(placer), False)


def best_fit_preempt(snapshot: Snapshot, policy: Policy) -> Decision:
    """As `best_fit`, and what does not fit takes the place of running jobs of lower levels, the cheapest first.

    One gang after the other, with the rights, the least run time, the bound on evictions, the grace and the prices of
    the rules; see `Evictor` for how victims are found.
    """
    placer = Placer(snapshot, policy, Books(snapshot, policy.reserved))
    evictor, claims, starts = Evictor(snapshot, policy, placer), Claims(snapshot), dict[JobId, Start]()
    for record, inside in by_rights(by_level(snapshot, policy), claims):
        if record.id in starts:
            continue
        evictor.begin(record.level, inside)
        only = types_of(record, inside, claims)
        placement = placer.place(record, only=only)
        if placement is not None:
            evictor.started(record, placement)
        else:
            placement = evictor.start(record, only)
        if placement is not None:
            starts[record.id] = start_of(record, placement, inside)
            if inside:
                claims.take(record.job, placement)
    return preempting(snapshot, policy, list(starts.values()), (victim.id for victim in evictor.chosen))


class RandomFit:
    """As `first_fit`, on random hosts and cards that fit; the floor that any packing must beat."""

    def __init__(self, seed: int = 1) -> None:
        self._taste = Anywhere(seed)

    def __call__(self, snapshot: Snapshot, policy: Policy) -> Decision:
        """One round."""
        supply = Booked(Floor(snapshot, policy), Books(snapshot, policy.reserved), self._taste.card)
        waiting = by_submission(candidates(snapshot))
        return _serve(
            snapshot, policy, waiting, lambda record, only: supply.place(record, self._taste, only=only), False
        )


def by_submission(waiting: tuple[JobRecord, ...]) -> list[JobRecord]:
    """First come first, names deciding between equals."""
    return sorted(waiting, key=lambda record: (record.submitted_s, record.id))


def by_level(snapshot: Snapshot, policy: Policy) -> list[JobRecord]:
    """The queue of RULES 1: level, then submission, where a team's own priorities permute its times."""
    place = order(snapshot, policy).place
    return sorted(candidates(snapshot), key=lambda record: place[record.id])


def first_fit_placing(snapshot: Snapshot, policy: Policy) -> Place:
    """Places on the first hosts, in the order of the fleet, that take the gang."""
    supply, taste = Booked(Floor(snapshot, policy), Books(snapshot, policy.reserved), first_card), First()
    return lambda record, only: supply.place(record, taste, only=only)


def engines(placer: Placer) -> Place:
    """Places as the engine does."""
    return lambda record, only: placer.place(record, only=only)


def serve(queue: list[JobRecord], place: Place, strict: bool, claims: Claims) -> list[Start]:
    """Starts in the order of the queue; where `strict`, none behind the first gang that does not fit."""
    starts = []
    for record, inside in outside_first(queue, claims):
        placement = place(record, types_of(record, inside, claims))
        if placement is not None:
            starts.append(start_of(record, placement, inside))
            if inside:
                claims.take(record.job, placement)
        elif strict:
            break
    return starts


def _serve(snapshot: Snapshot, policy: Policy, queue: list[JobRecord], place: Place, strict: bool) -> Decision:
    return decision_of(snapshot, policy, serve(queue, place, strict, Claims(snapshot)))
