"""Starts gangs where no reservation is harmed, and finds the earliest time for those that must wait."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ...model.ids import JobId
from ...model.job import Job
from ...model.placement import Placement
from ...model.policy import Policy
from ...model.snapshot import JobRecord, Snapshot
from ...model.topology import Layer
from ...solver.books import Books
from ...solver.placing import Placer
from .booked import Booked
from .claimed import Only
from .floor import Floor, Ints
from .profile import Profile, Reservation
from .seating import everywhere, seat
from .tastes import Tightest, fullest_card
from .window import Promised, Window

_Shape = tuple[object, ...]


class Planner:
    """The books of now and the profile of what is to come, for one round.

    Gangs are placed by the engine's own placing, as `best_fit` does, and where that would harm a reservation, on the
    tightest hosts that do not. `monotone` says that reservations are never taken back within the round, so that what
    was refused to a gang need not be tried for a longer one of the same shape.
    """

    def __init__(self, snapshot: Snapshot, policy: Policy, *, monotone: bool = True) -> None:
        books = Books(snapshot, policy.reserved)
        self.floor = Floor(snapshot, policy)
        self.profile = Profile(snapshot, policy, self.floor)
        self.placer = Placer(snapshot, policy, books)
        self.snapshot, self._policy = snapshot, policy
        self._gone: set[JobId] = set()
        self._begun: list[tuple[JobRecord, Placement]] = []
        self._kept: list[Reservation] = []
        self._booked = Booked(self.floor, books, fullest_card)
        self._monotone = monotone
        self._limited = books.ledger.limited or any(team.guarantee for team in snapshot.teams)
        self._refused: dict[_Shape, int] = {}
        self._earliest: dict[_Shape, tuple[int, int]] = {}

    def start(self, record: JobRecord, only: Only = None) -> Placement | None:
        """Books the gang now, until its limit, where all reservations stay as they are; None where it cannot be."""
        length_s, shape = self.profile.limits.length_s(record), (self._shape(record.job), only is None)
        if self._monotone and length_s >= self._refused.get(shape, length_s + 1):
            return None
        placement = self._start(record, only)
        if placement is None:
            self._refused[shape] = length_s
        else:
            self._begun.append((record, placement))
        return placement

    def start_without(self, record: JobRecord, placement: Placement, leaving: Sequence[JobRecord]) -> bool:
        """Starts a gang that is booked already once these have left; False, with nothing changed, if that harms."""
        gone = self._gone | {victim.id for victim in leaving}
        profile = self._profile_without(gone)
        if not profile.start(record, placement):
            return False
        self.profile, self._gone = profile, gone
        self._begun.append((record, placement))
        # With room that was not there before, what was refused may fit, and earlier times may be found.
        self._refused, self._earliest = {}, {}
        return True

    def _profile_without(self, gone: set[JobId]) -> Profile:
        """What is to come if these have left, with all that was started and promised in this round."""
        staying = tuple(record for record in self.snapshot.jobs if record.id not in gone)
        profile = Profile(replace(self.snapshot, jobs=staying), self._policy, self.floor)
        for record, placement in self._begun:
            profile.take(record, placement)
        for promise in self._kept:
            profile.reserve(promise.use, profile.split(promise.start_s), profile.split(promise.end_s))
        return profile

    def _start(self, record: JobRecord, only: Only) -> Placement | None:
        """Books the gang where it harms no reservation, by the engine's placing if that can be."""
        length_s = self.profile.limits.length_s(record)
        placement = self.placer.place(record, only=only)
        if placement is not None and self.profile.start(record, placement):
            return placement
        if placement is not None:
            self.placer.remove(record, placement)
            window = Window(self.profile, 0, self.profile.slots(0, length_s))
            placement = self._booked.place(record, Tightest(), Promised(self._booked, window), only)
            if placement is not None and self.profile.start(record, placement):
                return placement
            if placement is not None:
                self.placer.remove(record, placement)
        return None

    def earliest(self, record: JobRecord, before_s: int | None = None) -> Reservation | None:
        """The earliest time from the next slot on, and before `before_s`, at which the gang has room until its limit.

        None where there is none, even when all running work has left, and while a limit of its team forbids its start,
        for whose end there is no promise.
        """
        if not self._booked.within_limits(record):
            return None
        length_s, shape = self.profile.limits.length_s(record), self._shape(record.job)
        known_length_s, known_s = self._earliest.get(shape, (length_s + 1, 0))
        first_s = known_s if self._monotone and length_s >= known_length_s else 0
        times = self.profile.times
        ends = np.searchsorted(times, np.array(times) + length_s)
        for start in np.flatnonzero(self._clear(record.job, ends)).tolist():
            at_s = times[start]
            if start == 0 or at_s < first_s:
                continue
            if before_s is not None and at_s >= before_s:
                break
            end = int(ends[start])
            if not self._holds(record.job, start, end):
                continue
            window, allowed = (
                Window(self.profile, start, end),
                self.floor.open_between(record.job, at_s, at_s + length_s),
            )
            if seat(record, self.floor, window, Tightest(), everywhere(allowed)) is not None:
                self._earliest[shape] = (length_s, at_s)
                return Reservation(at_s, at_s + length_s, window.use)
        return None

    def keep(self, promise: Reservation) -> Reservation | None:
        """Takes a reservation's part and returns it with its times as kept; None where that part is not free."""
        profile = self.profile
        start = profile.split(max(promise.start_s, profile.times[0]))
        end = profile.split(promise.end_s)
        if not profile.holds(promise.use, start, end):
            return None
        profile.reserve(promise.use, start, end)
        kept = Reservation(profile.times[start], profile.times[end], promise.use)
        self._kept.append(kept)
        return kept

    def release(self, kept: Reservation) -> None:
        """Gives back what `keep` took."""
        self._kept.remove(kept)
        self.profile.reserve(kept.use, self.profile.split(kept.start_s), self.profile.split(kept.end_s), -1)

    def _clear(self, job: Job, ends: Ints) -> NDArray[np.bool_]:
        """For each slot whether no slot up to its end lacks room in every domain for a role taken alone.

        On single hosts a domain must have room throughout; on wider domains this is only necessary.
        """
        layer, allowed = self.floor.confinement(job).required, self.floor.allowed(job)
        clear = np.zeros(len(ends), dtype=np.bool_)
        for types in self.floor.types(job):
            holds = np.logical_and.reduce(
                [
                    self._by_domain(self.profile.room(role.request, name) * allowed, layer) >= role.count
                    for role, name in zip(job.roles, types, strict=True)
                ]
            )
            if holds.size:
                if layer is not Layer.HOST:
                    holds = holds.any(axis=1, keepdims=True)
                barred = np.zeros((len(ends) + 1, holds.shape[1]), dtype=np.int32)
                np.cumsum(~holds, axis=0, out=barred[1:])
                clear |= (barred[ends] == barred[:-1]).any(axis=1)
        return clear

    def _holds(self, job: Job, start: int, end: int) -> bool:
        """Whether some domain has room for each role, taken alone, in all these slots."""
        layer, allowed = self.floor.confinement(job).required, self.floor.allowed(job)
        for types in self.floor.types(job):
            rooms = [
                self.profile.room(role.request, name)[start:end].min(axis=0) * allowed
                for role, name in zip(job.roles, types, strict=True)
            ]
            enough = [
                self._by_domain(room[np.newaxis], layer) >= role.count
                for role, room in zip(job.roles, rooms, strict=True)
            ]
            if np.logical_and.reduce(enough).any():
                return True
        return False

    def _by_domain(self, room: Ints, layer: Layer | None) -> Ints:
        if layer is Layer.HOST:
            return room
        of = self.floor.domains(layer)
        order = np.argsort(of, kind="stable")
        first = np.unique(of[order], return_index=True)[1]
        sums: Ints = np.add.reduceat(room[:, order], first, axis=1) if len(order) else room
        return sums

    def _shape(self, job: Job) -> _Shape:
        alone = self._limited or any(role.request.fractional for role in job.roles)
        team = job.team if alone else None
        rules = (job.topology, job.cross_site, job.sites, job.off_premises, job.tier <= 2, job.anti_affinity)
        return job.roles, rules, team, self._limited and job.level
