"""Simple tastes: the first host that fits, a random one, the tightest."""

from __future__ import annotations

import random
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from ...model.ids import TeamId
from ...model.job import Job, Role, WorkerRequest
from ...solver.books import HostBook
from .floor import Ints, Types
from .seating import Share, few_hosts, first_hosts


def first_card(book: HostBook, request: WorkerRequest, team: TeamId, gpu_type: str) -> int | None:
    """The card of the lowest index that takes one fraction of the request."""
    takers = (
        index
        for index, card in sorted(book.cards.items())
        if card.kind.gpu_type == gpu_type and card.shares(request, team)
    )
    return next(takers, None)


def fullest_card(book: HostBook, request: WorkerRequest, team: TeamId, gpu_type: str) -> int | None:
    """The fullest card that takes one fraction of the request, empty ones last."""
    return book.share(request, team, gpu_type)


class First:
    """Domains and hosts in the order of the fleet."""

    def scores(self, job: Job, types: Types, of: Ints, domains: Ints, rooms: list[Ints]) -> Iterable[float]:
        """The place of the domain in the fleet."""
        return domains.astype(np.float64)

    def fill(self, job: Job, role: Role, gpu_type: str | None, hosts: Ints, room: Ints, number: int) -> Share:
        """Hosts in the order of the fleet."""
        return first_hosts(hosts, room, number)


class Tightest:
    """The domain with the least room to spare, in it few hosts."""

    def scores(self, job: Job, types: Types, of: Ints, domains: Ints, rooms: list[Ints]) -> Iterable[float]:
        """Workers that the domain would take besides, of the role that has least to spare."""
        spare = [
            np.bincount(of, weights=room)[domains] - role.count for role, room in zip(job.roles, rooms, strict=True)
        ]
        least: NDArray[np.float64] = np.minimum.reduce(spare)
        return least

    def fill(self, job: Job, role: Role, gpu_type: str | None, hosts: Ints, room: Ints, number: int) -> Share:
        """Few hosts, the last one tight."""
        return few_hosts(hosts, room, number)


class Anywhere:
    """Any domain, host and card that fits, drawn with this seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def scores(self, job: Job, types: Types, of: Ints, domains: Ints, rooms: list[Ints]) -> Iterable[float]:
        """Random numbers."""
        return (self._random.random() for _ in domains)

    def fill(self, job: Job, role: Role, gpu_type: str | None, hosts: Ints, room: Ints, number: int) -> Share:
        """Hosts in random order."""
        order = list(range(len(hosts)))
        self._random.shuffle(order)
        return first_hosts(hosts[order], room[order], number)

    def card(self, book: HostBook, request: WorkerRequest, team: TeamId, gpu_type: str) -> int | None:
        """A random card that takes the fraction."""
        takers = [
            index
            for index, card in sorted(book.cards.items())
            if card.kind.gpu_type == gpu_type and card.shares(request, team)
        ]
        return self._random.choice(takers) if takers else None
