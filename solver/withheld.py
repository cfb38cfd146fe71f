"""What victims freed and starts of a rank may not use: it is for the ranks that may evict them (docs/rounds.md)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from ..model.host import MILLI
from ..model.ids import HostId, TeamId
from .books import Books, HostBook
from .demand import card_memory
from .ranks import TOP, Placed


@dataclass(slots=True)
class Hold:
    """Amounts kept back on one host: milli-cores, MiB, Mbit/s, and of cards a team's milli-GPU and MiB."""

    amounts: tuple[int, int, int]
    cards: dict[int, tuple[TeamId, int, int]]

    def book(self, book: HostBook, sign: int) -> None:
        """Books it (sign 1) or gives it back (sign -1)."""
        book.book_amounts(*self.amounts, sign)
        for index, (team, milli, memory_mib) in self.cards.items():
            book.book_card(index, team, milli, memory_mib, sign)


class _Tally:
    """What some workers hold on one host, by rank or bar: of the host, and of each card."""

    def __init__(self) -> None:
        self.amounts: dict[int, list[int]] = defaultdict(lambda: [0, 0, 0])
        self.cards: dict[int, dict[int, list[int]]] = defaultdict(lambda: defaultdict(lambda: [0, 0]))
        self.team: dict[int, TeamId] = {}


def holds(rank: int, leaving: Iterable[Placed], coming: Iterable[Placed], books: Books) -> dict[HostId, Hold]:
    """For each host that victims leave what starts of the rank must not use there.

    Starts of ranks <= a fit into what is free now and what victims with bars below a free; against what is free in the
    end this lacks what victims with bars >= a free, less what starts above a take. The tightest a from the rank
    upwards counts.
    """
    freed, used = _tallies(leaving, books), _tallies(coming, books)
    found, nothing = {}, _Tally()
    for name, left in freed.items():
        taken = used.get(name, nothing)
        if max(left.amounts) >= rank:
            cpu, memory, network = _least(rank, left.amounts, taken.amounts, 3)
            cards = {}
            for index, by_bar in left.cards.items():
                if max(by_bar) >= rank:
                    milli, card_mib = _least(rank, by_bar, taken.cards[index], 2)
                    cards[index] = (left.team[index], milli, card_mib)
            found[name] = Hold((cpu, memory, network), cards)
    return found


def _least(rank: int, freed: dict[int, list[int]], used: dict[int, list[int]], width: int) -> list[int]:
    most = [0] * width
    # What is kept less what is taken only rises where starts of a rank are no longer above the limit.
    for limit in (rank, *(at for at in used if rank < at <= TOP)):
        for number in range(width):
            kept = sum(amounts[number] for at, amounts in freed.items() if at >= limit)
            taken = sum(amounts[number] for at, amounts in used.items() if at > limit)
            most[number] = max(most[number], kept - taken)
    return most


def _tallies(placed: Iterable[Placed], books: Books) -> dict[HostId, _Tally]:
    tallies: dict[HostId, _Tally] = defaultdict(_Tally)
    for at, record, placement in placed:
        requests = {role.name: role.request for role in record.job.roles}
        for worker in placement.workers:
            request, tally = requests[worker.role], tallies[worker.host]
            amounts = tally.amounts[at]
            for number, amount in enumerate((request.cpu_milli, request.memory_mib, request.network_mbps)):
                amounts[number] += amount
            for index in worker.gpus:
                card = tally.cards[index][at]
                card[0] += request.gpu_milli if request.fractional else MILLI
                card[1] += card_memory(request, books.hosts[worker.host].cards[index].kind.memory_mib)
                tally.team[index] = record.job.team
    return tallies
