"""Reservation, the cards: each planned card is in one plan, and clear of running work and of starts by its time.

Cards differ in when they are clear, and a plan may take any that is by its start. For plans of one level these sets are
nested in time, and a row for each time is the whole condition (Hall); plans of a higher level find cards of lower work
sooner, so with several levels a row is stated for each choice of a time a level, not later for higher ones.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ortools.sat.python.cp_model import CpModel, IntVar, LinearExprT

from ...model.host import MILLI, Gpu
from ...model.ids import JobId
from ..demand import CardKind
from ..held import HostClass
from ..later import LaterGang, usable_cards
from ..variables import Coming, Later, Variables

if TYPE_CHECKING:
    from .reservation import Due

Profile = tuple[tuple[LaterGang, int], ...]
"""A time for each level from the lowest up, by a gang of the level; levels left out have no plan in the row."""


def add_cards(model: CpModel, host: HostClass, variables: Variables, due: Due) -> None:
    """For each kind of cards of the host: those planned <= those clear and not taken by starts that are still there."""
    for kind, cards in usable_cards(host).items():
        planned = [part for part in variables.later(host.id) if part.slot.kind == kind]
        if planned:
            _Kind(model, host, kind, cards, planned, variables, due).add()


class _Kind:
    """The cards of one kind of one host."""

    def __init__(
        self,
        model: CpModel,
        host: HostClass,
        kind: CardKind,
        cards: Sequence[Gpu],
        planned: Sequence[Later],
        variables: Variables,
        due: Due,
    ) -> None:
        self._model, self._host, self._variables, self._due = model, host, variables, due
        self._cards, self._planned = cards, planned
        self._plans = variables.plans
        self._whole = variables.on_kind(host.id, kind)
        shared = {card.index: variables.fractions(host.id, card) for card in host.cards if card.kind == kind}
        self._fractions = {index: parts for index, parts in shared.items() if parts}
        self._over = sorted(
            {self._plans.over[p.gang.record.id] for parts in (self._whole, *self._fractions.values()) for p in parts}
        )
        self._free: dict[tuple[int, tuple[JobId, ...], int], IntVar] = {}

    def add(self) -> None:
        """One row for each choice of times between which cards become clear or starts are over."""
        alone = len({part.gang.id for part in self._planned}) == 1
        peers = {part.gang.record.level: part.gang for part in self._planned}
        times = {level: self._times(gang) for level, gang in peers.items()}

        def extend(profile: Profile, levels: Sequence[int]) -> Iterator[Profile]:
            if profile:
                yield profile
            for number, level in enumerate(levels):
                for start_s in times[level]:
                    if not profile or start_s <= profile[-1][1]:
                        yield from extend((*profile, (peers[level], start_s)), levels[number + 1 :])

        for profile in extend((), sorted(peers)):
            self._row(profile, alone=alone)

    def _times(self, gang: LaterGang) -> list[int]:
        """Of all planned starts here those behind which more becomes clear for the level: of equal ones the last."""
        last: dict[object, int] = {}
        # What stays only shrinks with time: where it is as many, it is the same.
        blocked: dict[int, object] = {}
        for start_s in sorted({start_s for part in self._planned for start_s in part.gang.starts}):
            late = len(self._over) - bisect_right(self._over, start_s)
            staying = len(self._plans.staying(self._host.id, gang, start_s))
            if staying not in blocked:
                blocked[staying] = tuple(self._blockers(card, gang, start_s) for card in self._cards)
            last[late, blocked[staying]] = start_s
        return list(last.values())

    def _row(self, profile: Profile, *, alone: bool) -> None:
        """Planned cards of each level by its time + whole cards of starts not over by the latest <= clear cards."""
        until = {gang.record.level: start_s for gang, start_s in profile}
        dues = [
            (part.role.request.whole_gpus, self._due(part, until[part.gang.record.level], alone=alone))
            for part in self._planned
            if part.gang.record.level in until
        ]
        planned = [cards * count for cards, count in dues if count is not None]
        if not planned:
            return
        whole = sum(part.role.request.whole_gpus * part.count for part in self._late(self._whole, profile[0][1]))
        clear = sum(self._clear(card, profile) for card in self._cards)
        self._model.add(sum(planned) + whole <= clear)

    def _late(self, parts: Sequence[Coming], start_s: int) -> list[Coming]:
        return [part for part in parts if self._plans.over[part.gang.record.id] > start_s]

    def _blockers(self, card: Gpu, gang: LaterGang, start_s: int) -> tuple[JobId, ...] | None:
        """Who must leave for the card to be clear by then; None where somebody on it stays at any rate."""
        on_it = [s for s in self._plans.staying(self._host.id, gang, start_s) if card.index in s.cards]
        if any(not stay.may_leave for stay in on_it):
            return None
        return tuple(sorted(stay.record.id for stay in on_it))

    def _clear(self, card: Gpu, profile: Profile) -> LinearExprT:
        """1 if the card is clear for some level of the profile by its time."""
        ways: list[IntVar] = []
        for gang, start_s in profile:
            blockers = self._blockers(card, gang, start_s)
            if blockers is None:
                continue
            late = self._late(self._fractions.get(card.index, ()), start_s)
            if not blockers and not late:
                return 1
            if len(blockers) == 1 and not late:
                ways.append(self._variables.gone(blockers[0]))
            else:
                ways.append(self._freed(card, blockers, late))
        ways = list({way.index: way for way in ways}.values())
        if len(ways) < 2:
            return ways[0] if ways else 0
        either = self._model.new_bool_var("")
        self._model.add(either <= sum(ways))
        return either

    def _freed(self, card: Gpu, blockers: tuple[JobId, ...], late: Sequence[Coming]) -> IntVar:
        """1 only if all blockers leave and none of these fractions comes to the card."""
        key = (card.index, blockers, len(late))
        if key not in self._free:
            free = self._model.new_bool_var(f"clear[{self._host.id},{card.index},{len(self._free)}]")
            for job in blockers:
                self._model.add(free <= self._variables.gone(job))
            for part in late:
                self._model.add(part.count <= MILLI - MILLI * free)
            self._free[key] = free
        return self._free[key]
