"""How many workers of one request each domain still takes, kept up to date beside the books."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping

from ..model.host import Host
from ..model.ids import HostId, TeamId
from ..model.job import WorkerRequest
from ..model.topology import Layer
from .books import Books
from .layout import tree_path
from .seats import ANY_NUMBER, Seats

__all__ = ["ANY_NUMBER", "Path", "Rooms", "Tree", "depth"]

Path = tuple[str, ...]
"""A domain as the names from its site down to itself; () is the whole fleet."""


def depth(layer: Layer | None) -> int:
    """The length of a path to a domain of that layer; None is the whole fleet."""
    return 0 if layer is None else len(Layer) - layer.width


class Tree:
    """The domains of some hosts, in a fixed order."""

    def __init__(self, hosts: Iterable[Host]) -> None:
        self.path: dict[HostId, Path] = {host.id: tree_path(host) for host in hosts}
        self.host: dict[Path, HostId] = {path: name for name, path in self.path.items()}
        self.around: dict[HostId, tuple[Path, ...]] = {
            name: tuple([path[:end] for end in range(len(path) - 1, -1, -1)]) for name, path in self.path.items()
        }
        """The domains around each host, from its NVLink domain up to the whole fleet."""
        self.children: dict[Path, list[Path]] = {}
        self.rank: dict[Path, int] = {}
        for path in sorted(self.host):
            for end in range(len(path) + 1):
                node = path[:end]
                if node not in self.rank:
                    self.rank[node] = len(self.rank)
                    self.children[node] = []
                    if node:
                        self.children[node[:-1]].append(node)


class Rooms:
    """The room for workers of one request on cards of one type (None: without GPUs), by domain.

    With tensor groups of `tensor` workers, an NVLink domain and all wider ones count whole groups only. `closed` tells
    of each host whether it has no room at all now, whatever is free there. `seats` may be shared with other views of
    the same books; it must know all hosts of the tree that have such cards.
    """

    def __init__(
        self,
        tree: Tree,
        books: Books,
        request: WorkerRequest,
        team: TeamId,
        gpu_type: str | None,
        tensor: int,
        closed: Callable[[HostId], bool] | None = None,
        seats: Seats | None = None,
    ) -> None:
        self._tree, self._books, self._closed, self._tensor = tree, books, closed, tensor
        self._room: defaultdict[Path, int] = defaultdict(int)
        self._groups: defaultdict[Path, int] = defaultdict(int)
        self._seats = seats or Seats(on_type(tree.path, books, gpu_type), books, request, team, gpu_type)
        self._seats.catch_up()
        self._seen = len(books.changed)
        self._count()

    def __getitem__(self, node: Path) -> int:
        """Workers that fit in that domain, as far as `catch_up` has seen."""
        return self._room.get(node, 0)

    @property
    def by_domain(self) -> Mapping[Path, int]:
        """The same for all domains; those without room may be left out."""
        return self._room

    def nodes(self, number: int = 1) -> list[Path]:
        """The domains with room for `number` workers at least."""
        return [node for node, room in self._room.items() if room >= number]

    def catch_up(self) -> None:
        """Looks again at every host that was booked on since the last look."""
        changed = self._books.changed
        if self._seen < len(changed):
            self._seats.catch_up()
            for name in self._seats.hosts.intersection(changed[self._seen :]):
                if name in self._tree.path:
                    self._refresh(name)
            self._seen = len(changed)

    def _count(self) -> None:
        """Counts all hosts, then each layer from those within it."""
        rooms, paths, closed = self._room, self._tree.path, self._closed
        inner: dict[Path, int] = {}
        for name, room in self._seats.room.items():
            path = paths.get(name)
            if path is not None and (closed is None or not closed(name)):
                rooms[path] = room
                inner[path[:-1]] = inner.get(path[:-1], 0) + room
        if self._tensor > 1:
            self._groups.update(inner)
            inner = {nvlink: room // self._tensor * self._tensor for nvlink, room in inner.items()}
        while inner:
            rooms.update(inner)
            outer: dict[Path, int] = {}
            for path, room in inner.items():
                if path:
                    outer[path[:-1]] = outer.get(path[:-1], 0) + room
            inner = outer

    def _refresh(self, name: HostId) -> None:
        path = self._tree.path[name]
        room = 0
        if self._closed is None or not self._closed(name):
            room = self._seats.room.get(name, 0)
        change = room - self._room[path]
        if not change:
            return
        rooms = self._room
        rooms[path] = room
        around = self._tree.around[name]
        if self._tensor > 1:
            nvlink = around[0]
            self._groups[nvlink] += change
            change = self._groups[nvlink] // self._tensor * self._tensor - rooms[nvlink]
        for node in around:
            rooms[node] += change

    def fill(self, node: Path, number: int, size: int) -> dict[HostId, int]:
        """Which hosts of the domain take `number` workers: few domains at every layer, each the tightest that does.

        Takes multiples of `size` (a replica) from a domain while it can. The domain must have room for `number`.
        """
        name = self._tree.host.get(node)
        if name is not None:
            return {name: number}
        left = {child: room for child in self._tree.children[node] if (room := self[child])}
        rank, taken = self._tree.rank, defaultdict[Path, int](int)
        while number:
            enough = [child for child, room in left.items() if room >= number]
            if enough:
                taken[min(enough, key=lambda child: (left[child], rank[child]))] += number
                break
            child = min(left, key=lambda child: (-left[child], rank[child]))
            some = left[child] // size * size or left[child]
            taken[child] += some
            number -= some
            left[child] -= some
            if not left[child]:
                del left[child]
        hosts: dict[HostId, int] = {}
        for child, some in taken.items():
            hosts.update(self.fill(child, some, size))
        return hosts


def on_type(hosts: Iterable[HostId], books: Books, gpu_type: str | None) -> list[HostId]:
    """Those of the hosts that have a healthy card of that type (None: all of them)."""
    return [n for n in hosts if gpu_type is None or any(kind.gpu_type == gpu_type for kind in books.hosts[n].free)]
