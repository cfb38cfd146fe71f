"""What limits and labels leave open, as work comes and goes: what limited teams hold, where jobs with a label are.

Kept up to date by the books with every worker, so that limits and labels see who has left and who is back.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping

from ..model.host import MILLI
from ..model.ids import HostId, JobId, TeamId
from ..model.job import Job
from ..model.placement import WorkerPlacement
from ..model.snapshot import Snapshot
from ..model.topology import Layer

Place = tuple[str, Layer, str]
"""A label, a layer that some job of the snapshot names with it, and a domain of that layer."""


class Ledger:
    """Limits and labels of one snapshot, with what is held of them now. Amounts in milli-GPU."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._limits: dict[TeamId, dict[str, int]] = {
            team.id: {quota.gpu_type: quota.gpu_milli for quota in team.limit} for team in snapshot.teams if team.limit
        }
        self._parent = {team.id: team.parent for team in snapshot.teams}
        self._line: dict[TeamId, tuple[TeamId, ...]] = {}
        self._held: Counter[tuple[TeamId, str]] = Counter()
        self._started: Counter[tuple[TeamId, str]] = Counter()
        self._layers: dict[str, tuple[Layer, ...]] = {}
        for record in snapshot.jobs:
            for rule in record.job.anti_affinity:
                if rule.layer not in self._layers.get(rule.label, ()):
                    self._layers[rule.label] = (*self._layers.get(rule.label, ()), rule.layer)
        self._running = {record.id for record in snapshot.jobs if record.placement is not None}
        self._present: dict[Place, Counter[JobId]] = defaultdict(Counter)
        self._domain: dict[tuple[Layer, HostId], str] = {}
        self._members: dict[tuple[Layer, str], list[HostId]] = defaultdict(list)
        for layer in {layer for layers in self._layers.values() for layer in layers}:
            for host in snapshot.hosts:
                domain = self._domain[layer, host.id] = host.path.domain(layer, host.id)
                self._members[layer, domain].append(host.id)

    @property
    def limited(self) -> bool:
        """Whether any team has a limit."""
        return bool(self._limits)

    def book(self, job: Job, worker: WorkerPlacement, gpu_type: str | None, sign: int) -> Iterable[HostId]:
        """A worker comes (sign 1) or goes (sign -1); gives the hosts that its labels now close or open."""
        if self._limits and gpu_type is not None:
            milli = sign * _milli(job, worker)
            for team in self._limited(job.team, gpu_type):
                self._held[team, gpu_type] += milli
                if job.id not in self._running:
                    self._started[team, gpu_type] += milli
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

    def closed(self, labels: Iterable[str], host: HostId) -> bool:
        """Whether a job with one of the labels is where no other with it may come to that host."""
        return any(self._present.get(place) for place in self._places(labels, host))

    def room(self, team: TeamId, gpu_type: str) -> int | None:
        """What the team, and all above it, may come to hold of that type beside what they hold; None: no limit."""
        return min(
            (self._limits[name][gpu_type] - self._held[name, gpu_type] for name in self._limited(team, gpu_type)),
            default=None,
        )

    def allows(self, team: TeamId, asked: Mapping[str, int]) -> bool:
        """Whether the team may start a gang that asks these amounts, by GPU type."""
        if not self._limits:
            return True
        rooms = ((milli, self.room(team, gpu_type)) for gpu_type, milli in asked.items() if milli)
        return all(room is None or milli <= room for milli, room in rooms)

    def exceeded(self, team: TeamId, asked: Mapping[str, int]) -> tuple[TeamId, str] | None:
        """The first team, from its own upwards, that these amounts would take beyond its limit, and on which type."""
        for gpu_type, milli in asked.items():
            for name in self._limited(team, gpu_type):
                if milli and self._held[name, gpu_type] + milli > self._limits[name][gpu_type]:
                    return name, gpu_type
        return None

    def limit(self, team: TeamId, gpu_type: str) -> int:
        """The team's own limit on a type that it lists."""
        return self._limits[team][gpu_type]

    def held(self, team: TeamId, gpu_type: str) -> int:
        """What the team and all below it hold of a type that its limit lists."""
        return self._held[team, gpu_type]

    def returns(self, job: Job, worker: WorkerPlacement, gpu_type: str | None) -> bool:
        """Whether a worker of a stopped job may be back where it was, as far as what started since needs it gone."""
        if gpu_type is not None and self._limits:
            milli = _milli(job, worker)
            for team in self._limited(job.team, gpu_type):
                key = (team, gpu_type)
                if self._started[key] and self._held[key] + milli > self._limits[team][gpu_type]:
                    return False
        places = self._places(_labels(job), worker.host)
        return not any(name not in self._running for place in places for name in self._present.get(place, ()))

    def _places(self, labels: Iterable[str], host: HostId) -> Iterator[Place]:
        for label in labels:
            for layer in self._layers.get(label, ()):
                yield label, layer, self._domain[layer, host]

    def _limited(self, team: TeamId, gpu_type: str) -> Iterator[TeamId]:
        """The team and those above it that have a limit on the type."""
        if team not in self._line:
            line, cursor = [], team if self._limits else None
            while cursor is not None:
                if cursor in self._limits:
                    line.append(cursor)
                cursor = self._parent.get(cursor)
            self._line[team] = tuple(line)
        return (name for name in self._line[team] if gpu_type in self._limits[name])


def _labels(job: Job) -> set[str]:
    return {rule.label for rule in job.anti_affinity}


def _milli(job: Job, worker: WorkerPlacement) -> int:
    role = job.role(worker.role)
    if role is None or not worker.gpus:
        return 0
    return role.request.gpu_milli if role.request.fractional else MILLI * len(worker.gpus)
