"""The bins of the linear relaxation: the cards of one GPU type on each host, or on many alike, and what limits them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ..model.host import MILLI
from ..model.ids import JobId, SiteId
from .held import HostClass

Pool = tuple[SiteId, str]
"""The cards of one GPU type at one site."""


@dataclass(frozen=True, slots=True)
class Bin:
    """The cards of one type on one host that new work may come to use, or those of `alike` hosts without victims.

    `free_milli` now; `cards` that may become empty; by job that may leave what it frees [mGPU] and its cards.
    """

    pool: Pool
    alike: int
    free_milli: int
    cards: int
    leaving: tuple[tuple[JobId, int, int], ...]

    @property
    def most_milli(self) -> int:
        """milli-GPU of one of these hosts, everybody gone who may leave."""
        return self.free_milli + sum(freed for _, freed, _ in self.leaving)

    def workers(self, sizes: Iterable[int]) -> dict[int, int]:
        """The most workers of each size that fit at all."""
        most = {size: self.alike * (self.cards // size if size else self.most_milli) for size in sizes}
        return {size: number for size, number in most.items() if number}

    def blocks(self, sizes: Iterable[int]) -> list[tuple[int, int, int, JobId | None]]:
        """Sizes of which whole blocks limit what fits further than milli-GPU do: blocks before and after a job left.

        Where no block is cut short, so many cards hold as many workers as their milli-GPU do, and no row is needed.
        """
        found: list[tuple[int, int, int, JobId | None]] = []
        milli = self.most_milli
        for block in (size for size in sizes if size > 1):
            most = self.cards // block
            if not self.leaving and MILLI * block * most < milli:
                found.append((block, most, most, None))
            for job, freed, cards in self.leaving:
                least = (self.cards - cards) // block
                short = MILLI * block * most < milli or MILLI * block * least < milli - freed
                if least < most and short:
                    found.append((block, least, most, job))
        return found

    def even(self, sizes: Iterable[int]) -> bool:
        """Whether what fits is told by milli-GPU alone."""
        return not self.blocks(sizes) and all(
            MILLI * size * (self.cards // size) >= self.most_milli for size in sizes if size
        )


def bins_of(hosts: Iterable[HostClass]) -> list[Bin]:
    """The bins of these hosts; hosts that nobody may leave are merged where they are alike."""
    found: list[Bin] = []
    alike: Counter[tuple[Pool, int, int]] = Counter()
    for host in hosts:
        for gpu_type in sorted({kind.gpu_type for kind in host.kinds}):
            each = _bin(host, gpu_type)
            if each.leaving:
                found.append(each)
            elif each.free_milli:
                alike[each.pool, each.free_milli, each.cards] += 1
    found.extend(Bin(pool, number, milli, cards, ()) for (pool, milli, cards), number in sorted(alike.items()))
    return found


def even_merged(bins: Iterable[Bin], sizes: Mapping[Pool, Sequence[int]]) -> list[tuple[Bin, tuple[int, ...]]]:
    """The bins and the sizes that each takes; merged those of a pool that take the same and are limited by milli-GPU.

    Such bins take together exactly what one with the sum of their milli-GPU takes.
    """
    found: list[tuple[Bin, tuple[int, ...]]] = []
    even: dict[tuple[Pool, tuple[int, ...]], list[Bin]] = defaultdict(list)
    for each in bins:
        fitting = tuple(each.workers(sizes[each.pool]))
        if fitting and each.even(fitting):
            even[each.pool, fitting].append(each)
        elif fitting:
            found.append((each, fitting))
    for (pool, fitting), alike in even.items():
        milli: Counter[JobId] = Counter()
        for each in alike:
            for job, freed, _ in each.leaving:
                milli[job] += freed
        free = sum(each.alike * each.free_milli for each in alike)
        cards = sum(each.alike * each.cards for each in alike)
        # Cards are told of no job, so that no whole blocks are asked for.
        found.append((Bin(pool, 1, free, cards, tuple((job, freed, 0) for job, freed in milli.items())), fitting))
    return found


def _bin(host: HostClass, gpu_type: str) -> Bin:
    free = cards = 0
    milli: Counter[JobId] = Counter()
    on: Counter[JobId] = Counter()
    for card in host.cards:
        if card.kind.gpu_type == gpu_type:
            free += max(0, card.milli)
            cards += not card.fixed
            for holder in card.holders:
                milli[holder.job] += holder.milli
                on[holder.job] += not card.fixed
    return Bin((host.host.path.site, gpu_type), 1, free, cards, tuple((job, milli[job], on[job]) for job in milli))
