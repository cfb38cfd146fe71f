"""From how many workers run where to which rank runs on which card: neighbours in rank are neighbours in the fleet."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby

from ..model.host import Host
from ..model.ids import HostId
from ..model.job import Job, Parallelism, Role
from ..model.placement import Placement, WorkerPlacement
from ..model.snapshot import JobRecord
from ..model.topology import Layer, TopologyPath
from .books import Books
from .demand import CardKind


@dataclass(frozen=True, slots=True)
class _Seat:
    """Where one worker sits before it has a rank: its host, and its card or the kind of its cards."""

    host: HostId
    kind: CardKind | None
    card: int | None


def lay_out(
    record: JobRecord,
    counts: Mapping[str, Mapping[tuple[HostId, CardKind | None], int]],
    books: Books,
    cards: Mapping[str, Sequence[tuple[HostId, int]]] | None = None,
    allotted: Mapping[tuple[HostId, CardKind], Sequence[int]] | None = None,
) -> Placement:
    """Gives every worker its rank and its cards, and books them.

    `counts` says for each role how many workers go to each host and kind of card (None: no GPU). Whole cards are the
    lowest free indices, or of those `allotted` to the gang on each host and kind. `cards` may fix host and card of each
    worker of a fractional role instead. Tensor groups lie
    inside one NVLink domain; as many pipeline replicas as the counts allow lie wholly inside an NVLink domain, a rack,
    a zone. Raises ValueError, with nothing booked, where the counts are not the gang's, split a tensor group or find
    too few free cards.
    """
    fixed, booked = cards or {}, []
    ranked = {role.name: _ranked(role, _seats(role, counts, fixed), books) for role in record.job.roles}
    # Cards that the caller fixed are taken first, so that no whole worker picks one of them.
    by_need = sorted(record.job.roles, key=lambda role: (role.name not in fixed, role.request.fractional))
    placed: dict[str, list[WorkerPlacement]] = {}
    try:
        for role in by_need:
            placed[role.name] = []
            for index, seat in enumerate(ranked[role.name]):
                gpus = _gpus(role, record.job, seat, books, allotted)
                worker = WorkerPlacement(role=role.name, index=index, host=seat.host, gpus=gpus)
                books.take(record.job, worker)
                booked.append(worker)
                placed[role.name].append(worker)
    except ValueError:
        for worker in booked:
            books.give(record.job, worker)
        raise
    return Placement(workers=tuple(worker for role in record.job.roles for worker in placed[role.name]))


def _seats(
    role: Role,
    counts: Mapping[str, Mapping[tuple[HostId, CardKind | None], int]],
    fixed: Mapping[str, Sequence[tuple[HostId, int]]],
) -> list[_Seat]:
    if role.name in fixed:
        seats = [_Seat(host, None, card) for host, card in fixed[role.name]]
    else:
        seats = [
            _Seat(host, kind, None) for (host, kind), number in counts.get(role.name, {}).items() for _ in range(number)
        ]
    if len(seats) != role.count:
        raise ValueError(f"role {role.name!r} has {role.count} workers, but {len(seats)} seats were given")
    return seats


def _gpus(
    role: Role,
    job: Job,
    seat: _Seat,
    books: Books,
    allotted: Mapping[tuple[HostId, CardKind], Sequence[int]] | None,
) -> tuple[int, ...]:
    """The cards of a worker in that seat; raises ValueError where they are not free."""
    book, request = books.hosts[seat.host], role.request
    if seat.card is not None:
        return (seat.card,)
    if seat.kind is None:
        return ()
    if request.fractional:
        card = book.share(request, job.team, seat.kind.gpu_type, seat.kind.memory_mib)
        if card is None:
            raise ValueError(f"no {seat.kind.gpu_type} of {seat.host} takes {request.gpu_milli} milli-GPU of {job.id}")
        return (card,)
    free = book.free.get(seat.kind, [])
    if allotted is not None:
        own = set(allotted.get((seat.host, seat.kind), ()))
        free = [index for index in free if index in own]
    if len(free) < request.whole_gpus:
        raise ValueError(
            f"{seat.host} has {len(free)} free {seat.kind.gpu_type}; job {job.id} was given {request.whole_gpus}"
        )
    return tuple(free[: request.whole_gpus])


def _ranked(role: Role, seats: list[_Seat], books: Books) -> list[_Seat]:
    """The seats in rank order."""

    def place(seat: _Seat) -> tuple[str, ...]:
        return tree_path(books.hosts[seat.host].host)

    seats = sorted(seats, key=lambda seat: (place(seat), seat.kind or CardKind("", 0), seat.card or 0))
    shape = role.parallelism or Parallelism(data=role.count)
    groups, rest = _nest([(place(seat), [seat]) for seat in seats], shape.tensor, (Layer.HOST, Layer.NVLINK))
    if rest:
        raise ValueError(
            f"role {role.name!r}: the workers given to an NVLink domain are no multiple of tensor {shape.tensor}"
        )
    replicas, rest = _nest(sorted(groups, key=lambda group: group[0]), shape.pipeline, tuple(Layer))
    crossing, _ = _nest(rest, shape.pipeline, ())
    near = sorted([*replicas, *crossing], key=lambda replica: replica[0])
    return [seat for _, members in near for seat in members]


_Block = tuple[tuple[str, ...], list[_Seat]]


def _nest(blocks: list[_Block], size: int, layers: tuple[Layer, ...]) -> tuple[list[_Block], list[_Block]]:
    """Joins blocks, sorted by path, `size` to one: first inside each domain of the narrowest layer, then of the next.

    Returns the joined blocks and those left over; without layers the whole is one domain.
    """
    if size == 1:
        return blocks, []
    joined: list[_Block] = []
    left = blocks
    for layer in layers if layers else (None,):
        over: list[_Block] = []
        for _, members in groupby(left, key=_domain(layer)):
            inside = list(members)
            whole = len(inside) // size * size
            for start in range(0, whole, size):
                group = inside[start : start + size]
                joined.append((group[0][0], [seat for _, seats in group for seat in seats]))
            over.extend(inside[whole:])
        left = over
    return joined, left


def _domain(layer: Layer | None) -> Callable[[_Block], tuple[str, ...]]:
    depth = 0 if layer is None else len(Layer) - layer.width
    return lambda block: block[0][:depth]


def tree_path(host: Host) -> tuple[str, ...]:
    """The names of the host's domains, from its site down to the host itself."""
    return _tree_path(host.path, host.id)


@lru_cache(maxsize=50_000)
def _tree_path(path: TopologyPath, name: HostId) -> tuple[str, ...]:
    return tuple([path.domain(layer, name) for layer in _WIDEST_FIRST])


_WIDEST_FIRST = tuple(sorted(Layer, key=lambda layer: -layer.width))
