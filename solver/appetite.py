"""What the jobs of a snapshot ask for: which GPU types they cannot do without, and what a GPU needs beside itself."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

from ..model.host import MILLI
from ..model.job import Role
from ..model.job_state import JobState
from ..model.snapshot import Snapshot
from .demand import card_takes
from .remember import remembered

Amounts = tuple[int, int, int]
"""Milli-cores, MiB and Mbit/s."""

_Largest = tuple[int, int, int, int, int]
"""Of a host: healthy cards of a type, the memory of the largest of them, and its CPU, memory and network in all."""

_AMOUNTS = (attrgetter("cpu_milli"), attrgetter("memory_mib"), attrgetter("network_mbps"))


@dataclass(frozen=True, slots=True)
class Appetite:
    """What the queued and the running jobs ask, taken together.

    `wanted`: for each GPU type of the fleet 0..1000 thousandths, the part of the demand that must have the type over
    the part of the fleet that is of it, at most 1; workers too large for the hosts of a type must have another.
    `beside`: milli-cores, MiB and Mbit/s a GPU that a quarter of the
    demand is content with: with less left beside it, a free card is as good as lost. `half`: what half of it is.
    """

    wanted: Mapping[str, int]
    beside: Amounts
    half: Amounts = (0, 0, 0)

    def served(self, free: int, left: Amounts) -> int:
        """How many of so many free cards a host can serve with so much left, to modest demand."""
        for amount, needed in zip(left, self.beside, strict=True):
            if needed and amount < free * needed:
                free = max(0, amount) // needed
        return free

    def stranded(self, milli: int, left: Amounts) -> int:
        """How much of so many free milli-GPU a host cannot serve with so much left, to half of the demand."""
        served = milli
        for amount, needed in zip(left, self.half, strict=True):
            if needed and MILLI * amount < served * needed:
                served = MILLI * amount // needed
        return milli - served


@remembered
def appetite(snapshot: Snapshot) -> Appetite:
    """The appetite of the jobs that wait in the queue or hold capacity; of all their roles with GPUs."""
    roles = [
        role
        for record in snapshot.jobs
        if record.state is JobState.QUEUED or record.state.holds_capacity
        for role in record.job.roles
        if role.request.gpu_milli
    ]
    if not roles:
        return Appetite({}, (0, 0, 0), (0, 0, 0))
    return Appetite(_wanted(snapshot, roles), beside(roles), beside(roles, part=2))


def beside(roles: Iterable[Role], part: int = 4) -> Amounts:
    """Milli-cores, MiB and Mbit/s for each GPU that a quarter of these roles, counted by GPUs, at most ask of each.

    Or another `part`, 2 for a half. Rounded down; zeros where none asks for a GPU.
    """
    asked = [role for role in roles if role.request.gpu_milli]
    least = (
        _part(sorted((amount(role.request) * MILLI // role.request.gpu_milli, role.gpu_milli) for role in asked), part)
        for amount in _AMOUNTS
    )
    cpu, memory, network = least
    return cpu, memory, network


def _part(rising: Sequence[tuple[int, int]], part: int) -> int:
    """The first of these (value, weight) with at least that part of the weight at or before it; 0 for none."""
    total = passed = 0
    for _, weight in rising:
        total += weight
    for value, weight in rising:
        passed += weight
        if part * passed >= total:
            return value
    return 0


def _wanted(snapshot: Snapshot, roles: Iterable[Role]) -> dict[str, int]:
    """A role that cannot take every type wants those it can, in proportion to their number."""
    cards: Counter[str] = Counter()
    largest: dict[str, set[_Largest]] = defaultdict(set)
    for host in snapshot.hosts:
        here: dict[str, list[int]] = defaultdict(list)
        for gpu in host.gpus:
            if gpu.healthy:
                here[gpu.gpu_type].append(gpu.memory_mib)
        for name, memory in here.items():
            cards[name] += len(memory)
            largest[name].add((len(memory), max(memory), host.cpu_milli, host.memory_mib, host.network_mbps))
    asked: Counter[tuple[str, ...]] = Counter()
    known: dict[object, tuple[str, ...]] = {}
    for role in roles:
        key = (role.gpu_types, role.request)
        if key not in known:
            known[key] = tuple(
                name
                for name in cards
                if role.throughput_milli(name) is not None and any(_holds(host, role) for host in largest[name])
            )
        asked[known[key]] += role.gpu_milli
    bound: Counter[str] = Counter()
    for accepted, milli in asked.items():
        if len(accepted) < len(cards):
            offered = sum(cards[name] for name in accepted)
            for name in accepted:
                bound[name] += milli * cards[name] // offered
    whole = asked.total() - asked[()]
    fleet = cards.total()
    return {
        name: min(MILLI, MILLI * bound[name] * fleet // (number * whole)) if whole else 0
        for name, number in cards.items()
    }


def _holds(host: _Largest, role: Role) -> bool:
    """Whether a host like that could hold one worker of the role, were it empty."""
    cards, card_memory, *amounts = host
    request = role.request
    return (
        request.whole_gpus <= cards
        and card_takes(request, card_memory)
        and all(amount(request) <= there for amount, there in zip(_AMOUNTS, amounts, strict=True))
    )
