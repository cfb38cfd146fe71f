"""Which whole cards of a host go to which start, where some cards may be used by some starts only."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ..model.ids import JobId
from .access import Reach

Left = Sequence[tuple[int, Collection[JobId]]]
"""Indices of the cards to give, each with the victims that leave it."""


def allot(asked: Sequence[tuple[int, Reach]], left: Left) -> list[list[int]]:
    """The cards of each start: as many as it asks, each free or left by victims of its reach alone.

    Starts come in the order given and take the lowest index that nobody has; where only cards that others have would
    do, these move on to others (augmenting paths), so that all are served if it is possible at all. Raises ValueError
    where it is not.
    """
    usable = [[index for index, jobs in left if reach.issuperset(jobs)] for _, reach in asked]
    owner: dict[int, int] = {}

    def serve(start: int, seen: set[int]) -> bool:
        untaken = next((index for index in usable[start] if index not in owner), None)
        if untaken is not None:
            owner[untaken] = start
            return True
        for index in usable[start]:
            if index not in seen:
                seen.add(index)
                if owner[index] != start and serve(owner[index], seen):
                    owner[index] = start
                    return True
        return False

    for start, (number, _) in enumerate(asked):
        for _ in range(number):
            if not serve(start, set()):
                raise ValueError(f"{number} cards are asked and {len(usable[start])} could be used")
    return [sorted(index for index, at in owner.items() if at == start) for start in range(len(asked))]
