"""What limits and labels leave open, as work comes and goes: what limited teams hold, where jobs with a label are.

Kept up to date by the books with every worker, so that limits and labels see who has left and who is back.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy

from ..model.host import MILLI, Host
from ..model.ids import HostId, JobId, SiteId, TeamId
from ..model.job import Job
from ..model.placement import Placement, WorkerPlacement
from ..model.policy import ReservedPool
from ..model.snapshot import JobRecord, Snapshot
from ..model.topology import Layer
from .demand import placeable
from .ranks import Placed, most_kept

Key = tuple[TeamId, str]
"""A team with a limit, and a GPU type that the limit lists."""

Place = tuple[str, Layer, str]
"""A label, a layer that some job of the snapshot names with it, and a domain of that layer."""


class Ledger:
    """Limits and labels of one snapshot, with what is held of them now. Amounts in milli-GPU.

    What `reserved` pools leave to level 1 counts as a limit of all its jobs at the site.
    """

    def __init__(self, snapshot: Snapshot, reserved: Iterable[ReservedPool] = ()) -> None:
        self._limits: dict[TeamId, dict[str, int]] = {
            team.id: {quota.gpu_type: quota.gpu_milli for quota in team.limit} for team in snapshot.teams if team.limit
        }
        self._pool_at: dict[HostId, TeamId] = {}
        self._broken: set[tuple[HostId, int]] = set()
        self._demoted = {record.id for record in snapshot.jobs if record.demoted}
        self._pools: set[TeamId] = set()
        for pool in reserved:
            self._reserve(pool, snapshot.hosts)
        self._parent = {team.id: team.parent for team in snapshot.teams}
        self._line: dict[TeamId, tuple[TeamId, ...]] = {}
        self._counted: dict[Key, tuple[Key, ...]] = {}
        self._held: Counter[Key] = Counter()
        self._started: Counter[Key] = Counter()
        self._kept: dict[Key, int] = {}
        self._planned: dict[Key, int] = {}
        self._shut: set[Place] = set()
        self._layers: dict[str, tuple[Layer, ...]] = {}
        for record in snapshot.jobs:
            for rule in record.job.anti_affinity:
                if rule.layer not in self._layers.get(rule.label, ()):
                    self._layers[rule.label] = (*self._layers.get(rule.label, ()), rule.layer)
        self._running = {record.id for record in snapshot.jobs if record.placement is not None}
        self._known: dict[int, tuple[Job, WorkerPlacement, Sequence[tuple[Key, int]]]] = {}
        self._present: dict[Place, Counter[JobId]] = defaultdict(Counter)
        self._domain: dict[tuple[Layer, HostId], str] = {}
        self._members: dict[tuple[Layer, str], list[HostId]] = defaultdict(list)
        self._types: dict[tuple[HostId, int], str] = {}
        if self._limits:
            self._types = {(host.id, gpu.index): gpu.gpu_type for host in snapshot.hosts for gpu in host.gpus}
        for layer in {layer for layers in self._layers.values() for layer in layers}:
            for host in snapshot.hosts:
                domain = self._domain[layer, host.id] = host.path.domain(layer, host.id)
                self._members[layer, domain].append(host.id)

    def copy(self) -> Ledger:
        """The same limits and labels, with holdings of its own."""
        other = copy(self)
        other._held, other._started, other._kept = Counter(self._held), Counter(self._started), dict(self._kept)
        other._shut = set(self._shut)
        other._present = defaultdict(Counter, {place: Counter(jobs) for place, jobs in self._present.items()})
        return other

    def without(self, *, limits: bool = False, pools: bool = False) -> Ledger:
        """The same holdings without the limits of all teams, without what reserved pools keep, or without both."""
        other = self.copy()
        lifted = [name for name in self._limits if (pools if name in self._pools else limits)]
        other._limits = {name: by_type for name, by_type in self._limits.items() if name not in lifted}
        other._line, other._counted, other._known = {}, {}, {}
        if pools:
            other._pool_at, other._broken, other._pools = {}, set(), set()
        return other

    def _reserve(self, pool: ReservedPool, hosts: Iterable[Host]) -> None:
        name, cards = _reserve_of(pool.site), 0
        self._pools.add(name)
        for host in hosts:
            if host.path.site == pool.site and placeable(host):
                self._pool_at[host.id] = name
                self._broken.update((host.id, gpu.index) for gpu in host.gpus if not gpu.healthy)
                cards += sum(gpu.healthy and gpu.gpu_type == pool.gpu_type for gpu in host.gpus)
        self._limits.setdefault(name, {})[pool.gpu_type] = MILLI * cards - pool.gpu_milli

    @property
    def limited(self) -> bool:
        """Whether any team has a limit."""
        return bool(self._limits)

    def book(self, job: Job, worker: WorkerPlacement, sign: int) -> Iterable[HostId]:
        """A worker comes (sign 1) or goes (sign -1); gives the hosts that its labels now close or open."""
        known = self._known.get(id(worker))
        if known is None or known[0] is not job or known[1] is not worker:
            # A worker that is kept here is told from all others by its identity.
            known = self._known[id(worker)] = job, worker, self._amounts(job, worker)
        for key, milli in known[2]:
            self._held[key] += sign * milli
            if job.id not in self._running:
                self._started[key] += sign * milli
        return self._appear(job, worker.host, sign) if job.anti_affinity else ()

    def _appear(self, job: Job, host: HostId, sign: int) -> list[HostId]:
        moved: list[HostId] = []
        for label, layer, domain in self._places(_labels(job), host):
            jobs = self._present[label, layer, domain]
            before = bool(jobs)
            jobs[job.id] += sign
            if not jobs[job.id]:
                del jobs[job.id]
            if before != bool(jobs):
                moved.extend(self._members[layer, domain])
        return moved

    def keep_back(self, rank: int, leaving: Iterable[Placed], coming: Iterable[Placed]) -> list[HostId]:
        """From now on starts of that rank come: what they may not use of what victims leave is kept back.

        It is for higher ranks, less what the starts of these take (docs/rounds.md). Gives the hosts that this closes
        or opens.
        """
        freed: dict[Key, Counter[int]] = defaultdict(Counter)
        used: dict[Key, Counter[int]] = defaultdict(Counter)
        before, self._shut = self._shut, set()
        for amounts, placed in ((freed, leaving), (used, coming)):
            for at, record, placement in placed:
                for worker in placement.workers if self._limits else ():
                    for key, milli in self._amounts(record.job, worker):
                        amounts[key][at] += milli
                if amounts is freed and at >= rank:
                    self._shut |= self.places(record.job, placement)
        self._kept = {key: most_kept(rank, by_bar, used[key]) for key, by_bar in freed.items()}
        return [host for _, layer, domain in before ^ self._shut for host in self._members[layer, domain]]

    def withhold(self, planned: Mapping[tuple[str, str, str], int]) -> None:
        """From now on plans need so much of these limits and pools; replaces what they needed before."""
        self._planned = {
            (_reserve_of(SiteId(name)) if what == "pool" else TeamId(name), gpu_type): milli
            for (what, name, gpu_type), milli in planned.items()
        }

    def limits(self, job: Job, placement: Placement) -> set[Key]:
        """The limits that count the gang there."""
        return {key for worker in placement.workers if self._limits for key, _ in self._amounts(job, worker)}

    def places(self, job: Job, placement: Placement) -> set[Place]:
        """The domains of its labels where the gang has workers there."""
        labels = _labels(job)
        return {place for host in placement.hosts if labels for place in self._places(labels, host)}

    def tight_limits(self, job: Job) -> set[Key]:
        """The limits that leave less than the gang asks of the types that they list; all of it may not need them."""
        types = {gpu_type for team in self._line_of(job.team) for gpu_type in self._limits[team]}
        most = {gpu_type: _most_of(job, gpu_type) for gpu_type in types}
        pools = {(name, gpu_type) for name in set(self._pool_at.values()) for gpu_type in self._limits[name]}
        over = (key for key in pools if job.level == 1 and _most_of(job, key[1]) > self._room(key))
        return {*self.exceeded(job.team, most), *over}

    def closed(self, labels: Iterable[str], host: HostId) -> bool:
        """Whether a job with one of the labels is where no other with it may come to that host."""
        return any(self._present.get(place) or place in self._shut for place in self._places(labels, host))

    def exceeded(self, team: TeamId, asked: Mapping[str, int]) -> Iterator[Key]:
        """The limits, from the team's own upwards, that a start with these amounts by GPU type would go beyond."""
        for gpu_type, milli in asked.items():
            for name in self._limited(team, gpu_type):
                if milli > self._room((name, gpu_type)) and milli:
                    yield name, gpu_type

    def limits_team(self, team: TeamId) -> bool:
        """Whether the team, or one above it, has a limit."""
        return bool(self._line_of(team))

    def allows(self, team: TeamId, asked: Mapping[str, int]) -> bool:
        """Whether the team may start a gang that asks these amounts, by GPU type."""
        return not self._limits or next(self.exceeded(team, asked), None) is None

    def pooled(self, record: JobRecord) -> bool:
        """Whether reserved pools keep anything from the job."""
        return bool(self._pool_at) and record.level == 1

    def pools_allow(self, site: SiteId | None, asked: Mapping[str, int]) -> bool:
        """Whether level 1 may take these amounts, by GPU type, at the site (None: at each)."""
        return all(
            milli <= self._room((name, gpu_type))
            for name in (set(self._pool_at.values()) if site is None else {_reserve_of(site)})
            for gpu_type, milli in asked.items()
            if gpu_type in self._limits.get(name, ())
        )

    def least_limit(self, team: TeamId, gpu_type: str) -> int | None:
        """What the team could hold of that type at most, if all of it and of the teams above were its own."""
        return min((self._limits[name][gpu_type] for name in self._limited(team, gpu_type)), default=None)

    def _room(self, key: Key) -> int:
        return self.limit(key) - self._held[key] - self.kept(key) - self._planned.get(key, 0)

    def beside(self, job: Job, placement: Placement) -> tuple[Place, JobId, HostId] | None:
        """Another job with one of the gang's labels in a domain of the gang there, and the gang's host in it."""
        for host in placement.hosts:
            for place in self._places(sorted(_labels(job)), host):
                others = [name for name in self._present.get(place, ()) if name != job.id]
                if others:
                    return place, min(others), host
        return None

    def limit(self, key: Key) -> int:
        """What the team and all below it may hold of that type."""
        return self._limits[key[0]][key[1]]

    def held(self, key: Key) -> int:
        """What they hold of it now."""
        return self._held[key]

    def kept(self, key: Key) -> int:
        """What of it is kept back for higher levels."""
        return self._kept.get(key, 0)

    def returns(self, job: Job, worker: WorkerPlacement) -> bool:
        """Whether a worker of a stopped job may be back where it was, as far as what started since needs it gone."""
        if any(self._started[key] and milli > self._room(key) for key, milli in self._amounts(job, worker)):
            return False
        places = self._places(_labels(job), worker.host)
        return not any(name not in self._running for place in places for name in self._present.get(place, ()))

    def _amounts(self, job: Job, worker: WorkerPlacement) -> Sequence[tuple[Key, int]]:
        """What the worker holds of each limit that counts it."""
        if not self._limits or not worker.gpus:
            return ()
        role, gpu_type = job.role(worker.role), self._types[worker.host, worker.gpus[0]]
        if role is None:
            return ()
        keys = self._counted.get((job.team, gpu_type))
        if keys is None:
            limited = self._limited(job.team, gpu_type)
            keys = self._counted[job.team, gpu_type] = tuple((team, gpu_type) for team in limited)
        milli = role.request.gpu_milli if role.request.fractional else MILLI * len(worker.gpus)
        amounts = [(key, milli) for key in keys]
        pool = self._pool_at.get(worker.host)
        if pool is not None and gpu_type in self._limits[pool] and job.level == 1 and job.id not in self._demoted:
            lost = sum((worker.host, index) in self._broken for index in worker.gpus)
            amounts.append(((pool, gpu_type), milli * (len(worker.gpus) - lost) // len(worker.gpus)))
        return amounts

    def _places(self, labels: Iterable[str], host: HostId) -> Iterator[Place]:
        for label in labels:
            for layer in self._layers.get(label, ()):
                yield label, layer, self._domain[layer, host]

    def _limited(self, team: TeamId, gpu_type: str) -> Iterator[TeamId]:
        """The team and those above it that have a limit on the type."""
        return (name for name in self._line_of(team) if gpu_type in self._limits[name])

    def _line_of(self, team: TeamId) -> tuple[TeamId, ...]:
        """The team and those above it that have any limit."""
        if team not in self._line:
            line: list[TeamId] = []
            cursor: TeamId | None = team if self._limits else None
            while cursor is not None:
                if cursor in self._limits:
                    line.append(cursor)
                cursor = self._parent.get(cursor)
            self._line[team] = tuple(line)
        return self._line[team]


def _reserve_of(site: SiteId) -> TeamId:
    """The name under which the reserved pools of a site stand among the limits; no team has such a one."""
    return TeamId(f"reserved at {site}")


def _most_of(job: Job, gpu_type: str) -> int:
    """milli-GPU that the gang could take of the type."""
    return sum(role.gpu_milli for role in job.roles if role.throughput_milli(gpu_type) is not None)


def _labels(job: Job) -> set[str]:
    return {rule.label for rule in job.anti_affinity}
