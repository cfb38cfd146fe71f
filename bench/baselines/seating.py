"""Seats one gang whole or not at all, by whatever taste: which domain first, which hosts in it, which card.

The rules (one domain of the required layer, one GPU type for each role, whole tensor groups in an NVLink domain) are
kept here; a taste only chooses among what they allow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

import numpy as np

from ...model.ids import TeamId
from ...model.job import Job, Role, WorkerRequest
from ...model.snapshot import JobRecord
from ...model.topology import Layer
from ...solver.books import HostBook
from .floor import Floor, Ints, Types

_TRIES = 16
"""Options that are tried for a gang of several roles; of one role the first always holds."""

Share = list[tuple[int, int]]
"""How many workers go to which host (its number on the floor)."""

CardChoice = Callable[[HostBook, WorkerRequest, TeamId, str], int | None]
"""Which card of the type one fraction of the team shares; None where none takes it."""


Allowed = Callable[[Types], Ints]
"""1 for each host that a gang may use with cards of these types, one for each role; else 0."""


def everywhere(mask: Ints) -> Allowed:
    """These hosts, whatever the types."""
    return lambda types: mask


class Supply(Protocol):
    """What there is to take, on each host of the floor."""

    def room(self, role: Role, team: TeamId, gpu_type: str | None) -> Ints:
        """Workers of the role with cards of that type (None: without GPUs) that each host takes now."""

    def take(self, job: Job, role: Role, gpu_type: str | None, host: int, number: int) -> None:
        """Takes that many workers of the role from the host."""

    def undo(self) -> None:
        """Gives back all that was taken since the last gang was seated."""


class Taste(Protocol):
    """What a baseline prefers."""

    def scores(self, job: Job, types: Types, of: Ints, domains: Ints, rooms: list[Ints]) -> Iterable[float]:
        """The cost of each of these domains for the gang, the least tried first; `of` tells the domain of each host."""

    def fill(self, job: Job, role: Role, gpu_type: str | None, hosts: Ints, room: Ints, number: int) -> Share:
        """Which of these hosts take `number` workers of the role, none more than its room."""


def seat(record: JobRecord, floor: Floor, supply: Supply, taste: Taste, allowed: Allowed) -> Types | None:
    """Takes every worker of the gang from the supply and returns the type of each role, or takes nothing: None."""
    job = record.job
    for types, hosts in _options(job, floor, supply, taste, allowed):
        if _fill(job, floor, supply, taste, types, hosts, allowed(types)):
            return types
        supply.undo()
    return None


def _options(job: Job, floor: Floor, supply: Supply, taste: Taste, allowed: Allowed) -> Iterator[tuple[Types, Ints]]:
    """Choices of types and a domain in which each role alone has room, the best first; then in the order of types."""
    layer = floor.confinement(job).required
    of = floor.domains(layer)
    tries = 1 if len(job.roles) == 1 else _TRIES
    found: list[tuple[float, int, int, Types]] = []
    for rank, types in enumerate(floor.types(job)):
        mask = allowed(types)
        rooms = [supply.room(role, job.team, name) * mask for role, name in zip(job.roles, types, strict=True)]
        domains = _open(job, floor, of, rooms, layer)
        if len(domains):
            costs = np.fromiter(taste.scores(job, types, of, domains, rooms), dtype=np.float64, count=len(domains))
            for number in np.argsort(costs, kind="stable")[:tries]:
                found.append((float(costs[number]), rank, int(domains[number]), types))
    found.sort(key=lambda option: option[:3])
    for _, _, domain, types in found[:tries]:
        yield types, np.flatnonzero(of == domain)


def _open(job: Job, floor: Floor, of: Ints, rooms: list[Ints], layer: Layer | None) -> Ints:
    """The domains in which every role alone has room, rising."""
    holds = np.ones(int(of.max(initial=-1)) + 1, dtype=np.bool_)
    for role, room in zip(job.roles, rooms, strict=True):
        tensor = role.parallelism.tensor if role.parallelism else 1
        if tensor > 1 and layer is not Layer.HOST:
            nvlink = floor.domains(Layer.NVLINK)
            first = np.unique(nvlink, return_index=True)[1]
            groups = np.bincount(nvlink, weights=room).astype(np.int64) // tensor
            total = np.bincount(of[first], weights=groups * tensor, minlength=len(holds))
        else:
            total = np.bincount(of, weights=room, minlength=len(holds))
        holds &= total >= role.count
    return np.flatnonzero(holds)


def _fill(job: Job, floor: Floor, supply: Supply, taste: Taste, types: Types, hosts: Ints, allowed: Ints) -> bool:
    """Takes all workers from these hosts, the most demanding role first; False where a role finds too little room."""
    chosen = zip(job.roles, types, strict=True)
    hardest = sorted(chosen, key=lambda pair: (pair[0].request.fractional, -pair[0].request.gpu_milli))
    for role, name in hardest:
        room = (supply.room(role, job.team, name) * allowed)[hosts]
        tensor = role.parallelism.tensor if role.parallelism else 1
        if tensor > 1 and len(hosts) > 1:
            share = _by_groups(job, floor, taste, role, name, hosts, room, tensor)
        else:
            share = taste.fill(job, role, name, hosts, room, role.count) if room.sum() >= role.count else []
        if sum(number for _, number in share) != role.count:
            return False
        for host, number in share:
            supply.take(job, role, name, host, number)
    return True


def _by_groups(
    job: Job, floor: Floor, taste: Taste, role: Role, name: str | None, hosts: Ints, room: Ints, tensor: int
) -> Share:
    """Whole tensor groups from each NVLink domain, in the order in which the taste would take single workers."""
    nvlink = floor.domains(Layer.NVLINK)[hosts]
    whole = {int(group): int(room[nvlink == group].sum()) // tensor * tensor for group in np.unique(nvlink)}
    left, share = role.count, list[tuple[int, int]]()
    wanted = taste.fill(job, role, name, hosts, room, int(room.sum()))
    domain = dict(zip(hosts.tolist(), nvlink.tolist(), strict=True))
    for group in dict.fromkeys(domain[host] for host, _ in wanted):
        number = min(whole[group], left)
        left -= number
        inside = nvlink == group
        if number:
            share.extend(taste.fill(job, role, name, hosts[inside], room[inside], number))
    return share if not left else []


def first_hosts(hosts: Ints, room: Ints, number: int) -> Share:
    """The hosts in this order, each as full as it takes."""
    share: Share = []
    for host, some in zip(hosts.tolist(), room.tolist(), strict=True):
        if not number:
            break
        taken = min(some, number)
        if taken:
            share.append((host, taken))
            number -= taken
    return share


def few_hosts(hosts: Ints, room: Ints, number: int) -> Share:
    """Few hosts: those with the most room first, the last one the tightest that holds the rest."""
    order = np.argsort(-room, kind="stable")
    hosts, room = hosts[order], room[order]
    share: Share = []
    while number:
        position = len(share)
        if room[position] >= number:
            enough = np.flatnonzero(room >= number)
            share.append((int(hosts[enough[-1]]), number))
            break
        share.append((int(hosts[position]), int(room[position])))
        number -= int(room[position])
    return share
