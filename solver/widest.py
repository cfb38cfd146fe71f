"""The most workers of one request that any one domain takes, for all hosts at once and without choosing a place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..model.host import MILLI, Host
from ..model.ids import HostId, SiteId, TeamId
from ..model.job import WorkerRequest
from ..model.topology import Layer
from .bars import Bar
from .books import Books
from .columns import Ints
from .layout import tree_path
from .remember import remembered
from .rooms import ANY_NUMBER, depth

_HOST, _NVLINK = depth(Layer.HOST), depth(Layer.NVLINK)

_COUNT = 20
"""Work of counting over columns, beside what grows with the hosts; units as of `Work`."""


NDBools = np.ndarray[tuple[int], np.dtype[np.bool_]]

_NONE: frozenset[HostId] = frozenset()


class Grid:
    """Some hosts as rows, with the number of the domain of each layer that each is in; lasts as long as the hosts."""

    def __init__(self, hosts: tuple[Host, ...]) -> None:
        self.names = [host.id for host in hosts]
        self.row = {name: number for number, name in enumerate(self.names)}
        self._sites = [host.path.site for host in hosts]
        self._paths = [tree_path(host) for host in hosts]
        self._domains: dict[int, Ints] = {}
        self._groups: dict[int, Ints] = {}
        self._open: dict[tuple[object, ...], NDBools | None] = {}
        self._sets: dict[frozenset[HostId], NDBools] = {}

    @cached_property
    def site(self) -> tuple[list[SiteId], Ints]:
        """The sites, and the number of each host's among them."""
        known = {name: number for number, name in enumerate(dict.fromkeys(self._sites))}
        return list(known), np.fromiter((known[name] for name in self._sites), dtype=np.int64, count=len(self._sites))

    def domain(self, end: int) -> Ints:
        """The number of each host's domain, for paths of that length."""
        if end not in self._domains:
            known: dict[tuple[str, ...], int] = {}
            numbers = [known.setdefault(path[:end], len(known)) for path in self._paths]
            self._domains[end] = np.array(numbers, dtype=np.int64)
        return self._domains[end]

    def groups(self, end: int) -> Ints:
        """The number of the domain, for paths of that length, around each NVLink domain."""
        if end not in self._groups:
            inner, outer = self.domain(_NVLINK), self.domain(end)
            around = np.zeros(int(inner.max(initial=-1)) + 1, dtype=np.int64)
            around[inner] = outer
            self._groups[end] = around
        return self._groups[end]

    def open(
        self, sites: frozenset[SiteId], closed: frozenset[HostId], taking: frozenset[HostId] | None
    ) -> NDBools | None:
        """Which hosts are at these sites, not closed, and among those that take work (None: all do); None for all."""
        key = sites, closed, taking
        if key not in self._open:
            names, at = self.site
            rows = np.array([name in sites for name in names], dtype=bool)[at]
            if taking is not None:
                rows &= self._among(taking)
            if closed:
                rows &= ~self._among(closed)
            self._open[key] = None if rows.all() else rows
        return self._open[key]

    def _among(self, hosts: frozenset[HostId]) -> NDBools:
        if hosts not in self._sets:
            rows = np.zeros(len(self.names), dtype=bool)
            rows[[self.row[name] for name in hosts if name in self.row]] = True
            self._sets[hosts] = rows
        return self._sets[hosts]


@remembered
def grid_of(hosts: tuple[Host, ...]) -> Grid:
    """The grid of these hosts, shared by all who ask."""
    return Grid(hosts)


@dataclass(slots=True)
class Work:
    """What was spent so far, in units of about a microsecond: counted, not timed, so the same on every machine."""

    spent: int = 0


class Widest:
    """What one world's hosts take, as its books stand; what was asked before is remembered, so they must not change."""

    def __init__(self, grid: Grid, books: Books, work: Work, taking: frozenset[HostId] | None = None) -> None:
        self._grid, self._books, self._work, self._taking = grid, books, work, taking
        row = books.columns.row
        self._rows = np.fromiter((row[name] for name in grid.names), dtype=np.int64, count=len(grid.names))
        self._seats: dict[tuple[WorkerRequest, TeamId | None, str | None], Ints] = {}
        self._most: dict[tuple[object, ...], int] = {}
        self._shut: dict[frozenset[str], NDBools] = {}

    def most(
        self,
        request: WorkerRequest,
        team: TeamId,
        gpu_type: str | None,
        sites: frozenset[SiteId],
        bar: Bar,
        tensor: int,
        end: int,
    ) -> int:
        """The most workers on cards of that type at these sites, behind that bar, in one domain.

        `tensor` workers stay in one NVLink domain; `end` is the length of the path to the domain, 0 for all hosts.
        """
        asker = team if request.fractional else None
        key = request, asker, gpu_type, sites, bar, tensor, end
        if key not in self._most:
            self._work.spent += _COUNT + len(self._rows) // 16
            self._most[key] = self._count(self._open_to(request, asker, gpu_type, sites, bar), tensor, end)
        return self._most[key]

    def _open_to(
        self, request: WorkerRequest, team: TeamId | None, gpu_type: str | None, sites: frozenset[SiteId], bar: Bar
    ) -> Ints:
        seats = self._seats_of(request, team, gpu_type)
        there = self._grid.open(sites, bar.hosts, self._taking)
        if there is not None:
            seats = seats * there
        if bar.labels and seats.any():
            seats = seats * self._unlabelled(bar.labels)
        return seats

    def _count(self, seats: Ints, tensor: int, end: int) -> int:
        if not seats.any():
            return 0
        if end == _HOST:
            return int(seats.max())
        inside = self._grid.domain(end)
        if tensor > 1:
            groups = np.bincount(self._grid.domain(_NVLINK), weights=seats).astype(np.int64)
            seats, inside = groups // tensor * tensor, self._grid.groups(end)
        # Sums of whole numbers far below 2 ** 53 are exact.
        return int(np.bincount(inside, weights=seats).max())

    def _seats_of(self, request: WorkerRequest, team: TeamId | None, gpu_type: str | None) -> Ints:
        key = request, team, gpu_type
        if key not in self._seats:
            self._work.spent += _COUNT + len(self._rows) // 8
            columns, rows = self._books.columns, self._rows
            if team is None or gpu_type is None:
                self._seats[key] = columns.rooms(request, gpu_type, rows, ANY_NUMBER)
            else:
                seats = self._seats[key] = columns.fractions(request, gpu_type, rows, ANY_NUMBER)
                for number in self._shared:
                    book = self._books.hosts[self._grid.names[number]]
                    seats[number] = book.room(request, team, gpu_type, ANY_NUMBER)
        return self._seats[key]

    @cached_property
    def _shared(self) -> list[int]:
        """The hosts on which a healthy card has room beside workers."""
        return np.flatnonzero(np.isin(self._rows, self._books.columns.shared(self._rows))).tolist()

    def _unlabelled(self, labels: frozenset[str]) -> NDBools:
        """Which hosts are open to a job with these labels."""
        if labels not in self._shut:
            ledger = self._books.ledger
            self._shut[labels] = np.array([not ledger.closed(labels, name) for name in self._grid.names], dtype=bool)
        return self._shut[labels]

    @cached_property
    def free(self) -> Mapping[tuple[SiteId, str], int]:
        """milli-GPU free on healthy cards, by site and type."""
        sites, at = self._grid.site
        there = self._grid.open(frozenset(sites), _NONE, self._taking)
        free: dict[tuple[SiteId, str], int] = {}
        for gpu_type, cards in self._books.columns.empty(self._rows).items():
            cards = cards if there is None else cards * there
            for site, number in zip(sites, np.bincount(at, weights=cards, minlength=len(sites)), strict=True):
                free[site, gpu_type] = MILLI * int(number)
        for number in self._shared:
            for card in (
                ()
                if there is not None and not there[number]
                else self._books.hosts[self._grid.names[number]].cards.values()
            ):
                if card.healthy and not card.empty and card.milli > 0:
                    free[sites[at[number]], card.kind.gpu_type] += card.milli
        return free
