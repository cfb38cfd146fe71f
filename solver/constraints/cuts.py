"""Rows that say together: every start can be given capacity that is free, or that a victim of its own leaves.

By Hall's condition (max-flow, min-cut) it is enough that for each set of starts what they ask fits into what is free
and what the victims leave that one of them may use. Of all sets with the same victims only the largest matters, so
there is one row for each union of reaches: with reaches in a chain, one for each reach.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from ortools.sat.python.cp_model import CpModel, LinearExpr, LinearExprT

from ...model.ids import JobId
from ..access import Reach
from ..classes import Gang

MOST_SETS = 64
"""Unions of reaches up to which rows are written; beyond that, how much each victim leaves to whom is decided."""


@dataclass(frozen=True, slots=True)
class Use:
    """What some workers take: amount x count, and bit i set if they may use what victim i of the place leaves."""

    amount: int
    count: LinearExprT
    reach: int


Gain = tuple[int, LinearExprT]
"""What one victim leaves: amount x 1 if it does."""


class Place:
    """The victims of one place, numbered: bit i stands for unit i, which some start reaches if it reaches all its jobs.

    A unit is one victim, or the victims that must leave together before anybody can use what they leave.
    """

    def __init__(self, units: Iterable[Collection[JobId]]) -> None:
        self._units = list(units)
        self._known: dict[Reach, int] = {}

    def bits(self, reach: Reach) -> int:
        """The units that this reach contains."""
        if reach not in self._known:
            self._known[reach] = sum(1 << i for i, unit in enumerate(self._units) if reach.issuperset(unit))
        return self._known[reach]

    def uses(self, gang: Gang, amount: int, count: LinearExprT, inside: LinearExprT | None) -> Iterator[Use]:
        """What `count` workers of the gang take here, of which `inside` (None: not told apart) start inside."""
        outer, inner = self.bits(gang.reach), self.bits(gang.widest_reach)
        if inside is None or outer == inner:
            yield Use(amount, count, inner if gang.only_inside else outer)
        else:
            yield Use(amount, count - inside, outer)
            yield Use(amount, inside, inner)


def closed_sets(reaches: Iterable[int], most: int | None = None) -> list[int]:
    """All unions of the given sets of victims (bits), rising; not all of them where they are more than `most`."""
    found: set[int] = set()
    for reach in sorted(set(reaches)):
        found |= {reach | other for other in found}
        found.add(reach)
        if most is not None and len(found) > most:
            break
    return sorted(found)


def fits(model: CpModel, uses: Sequence[Use], free: int, gains: Sequence[Gain]) -> None:
    """What is used fits into what is free and what the victims leave, each only for those who reach it.

    Where running work exceeds the place already (free < 0), that counts against every set of starts that uses
    anything there.
    """
    sets = closed_sets((use.reach for use in uses), MOST_SETS if free >= 0 else None)
    if len(sets) > MOST_SETS and free >= 0:
        _flow(model, uses, free, gains)
        return
    for reached in sets:
        asking = [use for use in uses if use.reach | reached == reached]
        used = LinearExpr.weighted_sum([use.count for use in asking], [use.amount for use in asking])
        left = [gain for bit, gain in enumerate(gains) if gain[0] and reached >> bit & 1]
        gained = LinearExpr.weighted_sum([gone for _, gone in left], [amount for amount, _ in left])
        if free >= 0:
            model.add(used <= free + gained)
            continue
        comes = model.new_bool_var("")
        for use in asking:
            model.add(use.count == 0).only_enforce_if(~comes)
        model.add(used <= free + gained).only_enforce_if(comes)


def _flow(model: CpModel, uses: Sequence[Use], free: int, gains: Sequence[Gain]) -> None:
    """The same with a variable for what each victim leaves to the starts of each reach."""
    shares = []
    given: list[list[LinearExprT]] = [[] for _ in gains]
    for reach in sorted({use.reach for use in uses}):
        share = model.new_int_var(0, free, "")
        shares.append(share)
        parts: list[LinearExprT] = [share]
        for bit, (amount, _) in enumerate(gains):
            if amount and reach >> bit & 1:
                part = model.new_int_var(0, amount, "")
                given[bit].append(part)
                parts.append(part)
        model.add(sum(use.amount * use.count for use in uses if use.reach == reach) <= sum(parts))
    model.add(sum(shares) <= free)
    for parts_of_one, (amount, left) in zip(given, gains, strict=True):
        if parts_of_one:
            model.add(sum(parts_of_one) <= amount * left)
