"""The fleet cut into parts, one for each team, with a strict queue inside each: what sites have before they share."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from ...model.decision import Decision, Start
from ...model.host import MILLI, Host
from ...model.ids import HostId, TeamId
from ...model.policy import Policy
from ...model.snapshot import JobRecord, Snapshot
from ...model.team import Team
from ...solver.books import Books
from ...solver.claims import Claims
from ...solver.confinements import Confinements
from ...solver.demand import candidates
from ...solver.empty_fleet import well
from .booked import Booked
from .decision import decision_of
from .fifo import Place, by_submission, serve
from .floor import Floor
from .tastes import First, first_card


class FifoPartitioned:
    """Each team owns hosts; in its part its gangs run strictly first come, first served, first fit.

    `parts` maps hosts to teams. Without it the parts are cut when the first round is decided, and stay: the hosts of
    each site and GPU type in the order of the fleet, so that racks stay whole, in proportion to the teams' weights.
    Hosts that join later are nobody's. Nothing is lent: an idle part helps no other team.

    Where the parts could not work at all, there is this way out, lest the comparison be with jobs that never run: a
    gang that its team's part could not hold even empty, or of a team without a part, waits in one more strict queue,
    over the whole fleet, which is served after all parts.
    """

    def __init__(self, parts: Mapping[HostId, TeamId] | None = None) -> None:
        self._parts = None if parts is None else dict(parts)
        self._fits: dict[tuple[object, ...], bool] = {}

    def __call__(self, snapshot: Snapshot, policy: Policy) -> Decision:
        """One round."""
        if self._parts is None:
            self._parts = cut(snapshot)
        hosts: dict[TeamId, list[Host]] = defaultdict(list)
        for host in snapshot.hosts:
            if host.id in self._parts:
                hosts[self._parts[host.id]].append(host)
        fleet = tuple(well(host) for host in snapshot.hosts)
        empty = _Parts(Snapshot(now_s=snapshot.now_s, sites=snapshot.sites, hosts=fleet), policy)
        queues: dict[TeamId, list[JobRecord]] = defaultdict(list)
        beyond: list[JobRecord] = []
        for record in by_submission(candidates(snapshot)):
            own = hosts.get(record.job.team, [])
            queue = queues[record.job.team] if self._holds(record, own, empty) else beyond
            queue.append(record)
        parts, claims, starts = _Parts(snapshot, policy), Claims(snapshot), list[Start]()
        for team, queue in queues.items():
            starts.extend(serve(queue, parts.placing(hosts[team]), True, claims))
        if beyond:
            starts.extend(serve(beyond, parts.placing(snapshot.hosts), True, claims))
        return decision_of(snapshot, policy, starts)

    def _holds(self, record: JobRecord, own: list[Host], empty: _Parts) -> bool:
        """Whether the part could hold the gang with nothing else on it and all its hosts well."""
        job = record.job
        key = (job.roles, job.topology, job.cross_site, job.sites, job.off_premises, job.tier <= 2, job.team, len(own))
        if key not in self._fits:
            self._fits[key] = empty.would_hold(record, [well(host) for host in own])
        return self._fits[key]


def cut(snapshot: Snapshot) -> dict[HostId, TeamId]:
    """Deals the hosts of each site and GPU type out to the teams in proportion to their weights, in runs."""
    shares = _shares(snapshot)
    groups: dict[tuple[str, tuple[str, ...]], list[Host]] = defaultdict(list)
    for host in snapshot.hosts:
        groups[host.path.site, host.gpu_types].append(host)
    parts: dict[HostId, TeamId] = {}
    owed = dict.fromkeys(shares, 0.0)
    for hosts in groups.values():
        size = {host.id: max(1, host.gpu_milli // MILLI) for host in hosts}
        whole = sum(size.values())
        for team, share in shares.items():
            owed[team] += share * whole
        left = list(hosts)
        # The team that is owed most takes hosts in a row until it has its due; what rounding leaves is made up later.
        while left and owed:
            team = min(owed, key=lambda name: (-owed[name], name))
            first = True
            while left and (first or owed[team] >= size[left[0].id] / 2):
                host = left.pop(0)
                parts[host.id] = team
                owed[team] -= size[host.id]
                first = False
    return parts


def _shares(snapshot: Snapshot) -> dict[TeamId, float]:
    """Each leaf of the tree of teams with its share of the fleet: its weight beside its siblings at every step down."""
    teams = {team.id: team for team in snapshot.teams}
    for record in snapshot.jobs:
        teams.setdefault(record.job.team, Team(id=record.job.team))
    weight: dict[TeamId | None, int] = defaultdict(int)
    for team in teams.values():
        weight[team.parent] += team.weight
    parents = {team.parent for team in teams.values()}
    shares = {}
    for team in teams.values():
        if team.id not in parents:
            share, cursor = 1.0, team
            while True:
                share *= cursor.weight / weight[cursor.parent]
                if cursor.parent is None:
                    break
                cursor = teams[cursor.parent]
            shares[team.id] = share
    return shares


class _Parts:
    """Places gangs on the first hosts of a part of the fleet, all parts on the same books."""

    def __init__(self, snapshot: Snapshot, policy: Policy) -> None:
        self._snapshot, self._policy = snapshot, policy
        self._books, self._confinement = Books(snapshot, policy.reserved), Confinements(snapshot, policy)

    def placing(self, hosts: Iterable[Host]) -> Place:
        """Places on those hosts."""
        floor, taste = Floor(self._snapshot, self._policy, hosts, self._confinement), First()
        supply = Booked(floor, self._books, first_card)
        return lambda record, only: supply.place(record, taste, only=only)

    def would_hold(self, record: JobRecord, hosts: Iterable[Host]) -> bool:
        """Whether the gang could be placed on those hosts; nothing stays booked."""
        placement = self.placing(hosts)(record, None)
        for worker in placement.workers if placement is not None else ():
            self._books.give(record.job, worker)
        return placement is not None
