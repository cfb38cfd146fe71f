"""The linear relaxation of a large round: which gangs start, who leaves for them, and workers by size on each host.

Rules are left out (CPU and memory beside cards, domains of gangs over several hosts, labels, windows, to whom freed
cards go), never tightened: every decision that keeps the rules is a point of it, so no goal exceeds its maximum here.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ..model.host import MILLI
from ..model.ids import HostId, JobId, TeamId
from ..model.job import Job, Role
from ..model.policy import Policy
from ..model.snapshot import JobRecord, Snapshot
from ..model.topology import Layer
from .confinements import confinements
from .demand import allowed_sites, candidates, card_takes, victims
from .held import HostClass
from .leaving import as_all_may_leave
from .lineage import Lineage
from .lp_bins import Bin, Pool, bins_of, even_merged
from .lp_model import LpModel
from .returning import returners, smaller
from .sizes import at_size, ways

_Class = tuple[int, int, frozenset[Pool]]
"""Workers of one size and level that may go to the same pools."""

SHARE = 0
"""The size of fractions, which count in milli-GPU; other sizes are whole cards of one worker."""

RETURNS = 9
"""The level at which returns are entered: above all, for what they take is their own or free."""


@dataclass(frozen=True, slots=True)
class Return:
    """A running job, how it may return, and the column that says whether it does."""

    now: JobRecord
    then: JobRecord
    column: int


class Relaxation:
    """The model, with the columns that goals are stated in.

    `starts`: each candidate at each of its sizes, and its column. `out`: the columns of each way in which a job leaves.
    """

    def __init__(self, snapshot: Snapshot, policy: Policy) -> None:
        self.model = LpModel()
        self.possible, returning = victims(snapshot, policy), returners(snapshot, policy)
        self.evicted = {record.id: self.model.column(1) for record in self.possible}
        self._snapshot, self._policy = snapshot, policy
        _, hosts = as_all_may_leave(snapshot, policy)
        self._most = _largest(hosts.values())
        bins = bins_of(hosts.values())
        self._confinement = confinements(snapshot, policy)
        self._room: Counter[Pool] = Counter()
        for each in bins:
            self._room[each.pool] = max(self._room[each.pool], each.cards)
        by_class: dict[_Class, Counter[int]] = defaultdict(Counter)
        self.starts = [
            (sized, self._column(sized, sized.level, by_class)) for r in candidates(snapshot) for sized in ways(r)
        ]
        smaller_ones = ((r, replace(r, job=at_size(r.job, n))) for r in returning.shrinkers for n in smaller(r))
        pairs = (*smaller_ones, *((record, record) for record in returning.movers))
        self.returns = [Return(now, then, self._column(then, RETURNS, by_class)) for now, then in pairs]
        self.out = {job: [column] for job, column in self.evicted.items()}
        for back in self.returns:
            self.out.setdefault(back.now.id, []).append(back.column)
        self._one_way()
        self._route(by_class, bins)
        self._limits()

    def _column(self, record: JobRecord, level: int, by_class: dict[_Class, Counter[int]]) -> int:
        """A column for the gang at its size, its workers entered among those of their class."""
        parts = self._asked(record.job)
        column = self.model.column(int(parts is not None))
        for size, pools, workers in parts or ():
            by_class[size, level, pools][column] += workers
        return column

    def _one_way(self) -> None:
        """A candidate starts at one size, and a running job leaves in one way."""
        sizes: dict[JobId, list[int]] = defaultdict(list)
        for record, column in self.starts:
            sizes[record.id].append(column)
        for columns in (*sizes.values(), *self.out.values()):
            if len(columns) > 1:
                self.model.at_most(dict.fromkeys(columns, 1), 1)

    def _asked(self, job: Job) -> list[tuple[int, frozenset[Pool], int]] | None:
        """Size, pools and number of the workers of each role with GPUs; None where some role fits nowhere."""
        sites = allowed_sites(job, self._snapshot, self._policy)
        on_one_host = self._confinement(job).required is Layer.HOST
        found = []
        for role in job.roles:
            request = role.request
            if not request.gpu_milli:
                continue
            size, workers = request.whole_gpus, role.count
            if on_one_host and size:
                size, workers = size * workers, 1
            if request.fractional:
                size, workers = SHARE, role.gpu_milli
            pools = frozenset(pool for pool in self._room if pool[0] in sites and self._serves(role, pool, size))
            if not pools:
                return None
            found.append((size, pools, workers))
        return found

    def _serves(self, role: Role, pool: Pool, size: int) -> bool:
        request, most = role.request, self._most[pool]
        return (
            role.throughput_milli(pool[1]) is not None
            and card_takes(request, most[3])
            and size <= self._room[pool]
            and request.cpu_milli <= most[0]
            and request.memory_mib <= most[1]
            and request.network_mbps <= most[2]
        )

    def _route(self, by_class: Mapping[_Class, Counter[int]], bins: list[Bin]) -> None:
        """What starts goes to pools, and what goes to a pool goes to its bins."""
        coming: dict[tuple[Pool, int], list[int]] = defaultdict(list)
        loads: dict[Pool, list[tuple[int, int, int]]] = defaultdict(list)
        for (size, level, pools), terms in by_class.items():
            most = sum(terms.values())
            parts = []
            for pool in sorted(pools):
                parts.append(self.model.column(most))
                coming[pool, size].append(parts[-1])
                loads[pool].append((level, parts[-1], MILLI * size or 1))
            self.model.at_most({**terms, **dict.fromkeys(parts, -1)}, 0)
        self._keep_back(loads, bins)
        sizes: dict[Pool, list[int]] = defaultdict(list)
        for pool, size in sorted(coming):
            sizes[pool].append(size)
        taking: dict[tuple[Pool, int], list[int]] = defaultdict(list)
        for each, fitting in even_merged(bins, sizes):
            for size, column in self._fill(each, fitting).items():
                taking[each.pool, size].append(column)
        for key, columns in coming.items():
            self.model.at_most({**dict.fromkeys(columns, 1), **dict.fromkeys(taking[key], -1)}, 0)

    def _keep_back(self, loads: Mapping[Pool, list[tuple[int, int, int]]], bins: list[Bin]) -> None:
        """In each pool, what victims of a level free is for higher levels; guarantees, where there are any, undo it."""
        if any(team.guarantee for team in self._snapshot.teams):
            return
        levels = {record.id: record.level for record in self.possible}
        least = self._least_levels()
        for level in sorted(set(levels.values())):
            freed: dict[Pool, Counter[int]] = defaultdict(Counter)
            free: Counter[Pool] = Counter()
            for each in bins:
                free[each.pool] += each.alike * each.free_milli
                for job, milli, _ in each.leaving:
                    for column in self.out[job]:
                        if least[column] <= level:
                            freed[each.pool][column] -= milli
            for pool, parts in loads.items():
                terms = {column: load for at, column, load in parts if at <= level}
                if terms:
                    self.model.at_most({**terms, **freed[pool]}, free[pool])

    def _least_levels(self) -> dict[int, int]:
        """By column of a job that leaves: from which level on what it leaves may be used by others."""
        least = {self.evicted[record.id]: record.level + 1 for record in self.possible}
        for each in self.returns:
            least[each.column] = each.now.level + (each.now is not each.then)
        return least

    def _fill(self, each: Bin, sizes: Sequence[int]) -> dict[int, int]:
        """The workers of each size in one bin: within its milli-GPU, and within its whole blocks of each size."""
        number, columns = each.alike, {size: self.model.column(most) for size, most in each.workers(sizes).items()}
        load = {column: MILLI * size if size else 1 for size, column in columns.items()}
        freed = {column: -milli for job, milli, _ in each.leaving for column in self.out[job]}
        self.model.at_most({**load, **freed}, number * each.free_milli)
        for block, least, most, job in each.blocks(columns):
            terms = {column: size // block for size, column in columns.items() if size >= block}
            out = dict.fromkeys(self.out[job], least - most) if job is not None else {}
            self.model.at_most({**terms, **out}, number * least)
        return columns

    def _limits(self) -> None:
        """Gangs that can only run on a type count in their teams' limits of it; so do those that leave or shrink."""
        teams = self._snapshot.teams
        limits = {(team.id, quota.gpu_type): quota.gpu_milli for team in teams for quota in team.limit or ()}
        if not limits:
            return
        line = Lineage(self._snapshot)
        types = {(host.id, gpu.index): gpu.gpu_type for host in self._snapshot.hosts for gpu in host.gpus}
        rows: dict[tuple[TeamId, str], dict[int, int]] = {key: {} for key in limits}
        room = dict(limits)
        for record in self._snapshot.jobs:
            for gpu_type, milli in _held(record, types).items():
                for team in line(record.job.team):
                    if (team, gpu_type) in limits:
                        room[team, gpu_type] -= milli
                        for column in self.out.get(record.id, ()):
                            rows[team, gpu_type][column] = -milli
        for record, column in self.starts:
            for gpu_type, milli in _bound(record.job).items():
                for team in line(record.job.team):
                    if (team, gpu_type) in limits:
                        rows[team, gpu_type][column] = milli
        for key, terms in rows.items():
            # A limit that running work exceeds already binds no more than what leaves.
            self.model.at_most(terms, max(0, room[key]))


def _held(record: JobRecord, types: Mapping[tuple[HostId, int], str]) -> Counter[str]:
    held: Counter[str] = Counter()
    for worker in record.placement.workers if record.placement else ():
        role = record.job.role(worker.role)
        for index in worker.gpus if role is not None else ():
            if role is not None and (worker.host, index) in types:
                held[types[worker.host, index]] += role.request.gpu_milli if role.request.fractional else MILLI
    return held


def _bound(job: Job) -> Counter[str]:
    """milli-GPU that the gang surely takes of a type: of its roles that accept no other."""
    bound: Counter[str] = Counter()
    for role in job.roles:
        if role.gpu_milli and len(role.gpu_types) == 1:
            bound[role.gpu_types[0].gpu_type] += role.gpu_milli
    return bound


def _largest(hosts: Iterable[HostClass]) -> dict[Pool, tuple[int, int, int, int]]:
    """The most CPU, memory and network that one empty host of each pool has, and memory that one card has."""
    most: dict[Pool, tuple[int, int, int, int]] = {}
    for host in hosts:
        own = host.host
        for kind in host.kinds:
            pool = (own.path.site, kind.gpu_type)
            amounts = (own.cpu_milli, own.memory_mib, own.network_mbps, kind.memory_mib)
            known = most.get(pool, amounts)
            most[pool] = (
                max(known[0], amounts[0]),
                max(known[1], amounts[1]),
                max(known[2], amounts[2]),
                max(known[3], amounts[3]),
            )
    return most
