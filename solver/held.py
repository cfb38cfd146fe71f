"""What each placeable host has free, and what the jobs that may leave it would free there.

A job may leave in ways that differ in who may use what it frees: a possible victim, and an elastic gang that returns
smaller, under its own name; a gang that is moved under another one (`moved_id`).
"""

from __future__ import annotations

from dataclasses import dataclass

from ..model.host import MILLI, Host
from ..model.ids import HostId, JobId, TeamId
from .access import Reach
from .demand import CardKind


@dataclass(frozen=True, slots=True)
class Holder:
    """The part of one card of a job that may leave: milli-GPU and MiB; `whole` if the card is its alone.

    `ways`: the names under which it may leave.
    """

    job: JobId
    milli: int
    memory_mib: int
    whole: bool
    ways: tuple[JobId, ...]


@dataclass(frozen=True, slots=True)
class Card:
    """A healthy card that new work may come to use: its room now, whose it is, and who may leave it.

    `team`: the team that shares it, None while nobody does. `fixed`: somebody is on it who stays. `ways`: the sets of
    those who must leave for it to be empty, one for each choice of how they do.
    """

    index: int
    kind: CardKind
    milli: int
    memory_mib: int
    team: TeamId | None
    fixed: bool
    holders: tuple[Holder, ...]
    ways: tuple[frozenset[JobId], ...]

    @property
    def free(self) -> bool:
        """Whether the card carries no worker now."""
        return not self.fixed and not self.holders

    @property
    def leaving(self) -> tuple[JobId, ...]:
        """Those who may leave the card, in each way."""
        return tuple(way for holder in self.holders for way in holder.ways)

    def may_empty(self, reach: Reach) -> bool:
        """Whether work that may use what these leave can find the card empty."""
        if not self.fixed:
            # Asked of each card by each shape of work: a loop takes half the time of `any`.
            for way in self.ways:
                if way <= reach:
                    return True
        return False

    def most_room(self, team: TeamId, reach: Reach) -> tuple[int, int]:
        """The most milli-GPU and MiB that fractions of that team could come to find on the card, these victims gone."""
        if self.may_empty(reach):
            return MILLI, self.kind.memory_mib
        if self.team not in (None, team):
            return 0, 0
        leaving = [holder for holder in self.holders if any(way in reach for way in holder.ways)]
        milli = self.milli + sum(holder.milli for holder in leaving)
        return max(0, milli), max(0, self.memory_mib + sum(holder.memory_mib for holder in leaving))


@dataclass(frozen=True, slots=True)
class Freed:
    """What one job frees on a host beside cards if it leaves in one way: milli-cores, MiB, Mbit/s."""

    job: JobId
    way: JobId
    cpu_milli: int
    memory_mib: int
    network_mbps: int


@dataclass(frozen=True, slots=True)
class HostClass:
    """One host: free CPU (milli-cores), memory (MiB), network (Mbit/s), its cards, and what may be freed.

    Amounts are negative where running work exceeds the host, as while a stopping victim and its beneficiary overlap.
    """

    host: Host
    cpu_milli: int
    memory_mib: int
    network_mbps: int
    cards: tuple[Card, ...]
    freed: tuple[Freed, ...]

    @property
    def id(self) -> HostId:
        """The host's name."""
        return self.host.id

    @property
    def kinds(self) -> tuple[CardKind, ...]:
        """Kinds of its usable cards, each once, sorted."""
        return tuple(sorted({card.kind for card in self.cards}))

    def alike(self) -> list[list[Card]]:
        """The cards in groups: those of a group are empty, or become so in the same ways, and have equal room."""
        groups: dict[object, list[Card]] = {}
        for card in self.cards:
            key = (card.kind, card.milli, card.memory_mib, card.team, card.holders, card.index if card.fixed else -1)
            groups.setdefault(key, []).append(card)
        return list(groups.values())
