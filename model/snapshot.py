"""Everything that one round may look at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from . import check
from .errors import InvalidInput
from .host import Host
from .ids import HostId, JobId
from .job import Job
from .job_state import JobState, StopCause
from .placement import Placement, Progress
from .reservation import Reservation
from .team import Team
from .topology import Link, Site


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRecord:
    """A job and where it stands.

    `attempt` is the number of its latest attempt (0 before the first); `placement` is set exactly while the state
    holds capacity. `not_before_s` is the end of a back-off. `evictions` are the times (s) it was preempted.
    `replacing`: hosts held for the next attempt until `replacing_until_s`: those of an attempt that lost one of them,
    or those to which it left to return. `resized_to`: the workers with which it left to return, of its elastic role if
    it has one, else of all; None where it did not. `moves`: the times (s) at which it left to be moved, or to grow.
    `version` rises with each change of the stored row.
    """

    job: Job
    state: JobState = JobState.QUEUED
    submitted_s: int
    state_since_s: int = 0
    attempt: int = 0
    placement: Placement | None = None
    planned_s: int | None = None
    started_s: int | None = None
    progress: Progress = Progress()
    stop_cause: StopCause | None = None
    inside_guarantee: bool = False
    demoted: bool = False
    evictions: tuple[int, ...] = ()
    failed_starts: int = 0
    restarts: int = 0
    not_before_s: int = 0
    replacing: tuple[HostId, ...] = ()
    replacing_until_s: int = 0
    moves: tuple[int, ...] = ()
    resized_to: int | None = None
    exit_code: int | None = None
    message: str = ""
    version: int = 0

    def __post_init__(self) -> None:
        check.integer("submitted_s", self.submitted_s, unit="s")
        check.integer("attempt", self.attempt, 0, 1_000_000)
        if self.state.holds_capacity and self.placement is None:
            raise InvalidInput("placement", f"job {self.job.id} is {self.state} without a placement", "a placement")
        if not self.state.holds_capacity and self.placement is not None:
            raise InvalidInput("placement", f"job {self.job.id} is {self.state} with a placement", "no placement")

    @property
    def id(self) -> JobId:
        """The job's name."""
        return self.job.id

    @property
    def level(self) -> int:
        """Priority level 3..0; 0 after a demotion for budget."""
        return 0 if self.demoted else self.job.level


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The world at `now_s` (seconds since the epoch), immutable.

    `store_version` is the store's, for the record; a plain `version` would collide with that of the document.
    """

    now_s: int
    sites: tuple[Site, ...]
    hosts: tuple[Host, ...]
    jobs: tuple[JobRecord, ...] = ()
    reservations: tuple[Reservation, ...] = ()
    teams: tuple[Team, ...] = ()
    links: tuple[Link, ...] = ()
    store_version: int = 0

    def __post_init__(self) -> None:
        check.integer("now_s", self.now_s, unit="s")
        check.distinct("sites", (site.id for site in self.sites), "site")
        check.distinct("hosts", (host.id for host in self.hosts), "host")
        check.distinct("jobs", (record.id for record in self.jobs), "job")
        check.distinct("teams", (team.id for team in self.teams), "team")
        self._check_references()

    @property
    def version(self) -> int:
        """The store's version that this was read at."""
        return self.store_version

    def _check_references(self) -> None:
        sites = {site.id for site in self.sites}
        for index, host in enumerate(self.hosts):
            if host.path.site not in sites:
                raise InvalidInput(
                    f"hosts[{index}].path.site", f"no site {host.path.site!r}", f"one of {sorted(sites)}"
                )
        hosts = {host.id: host for host in self.hosts}
        teams = {team.id for team in self.teams}
        for index, team in enumerate(self.teams):
            if team.parent is not None and team.parent not in teams:
                raise InvalidInput(f"teams[{index}].parent", f"no team {team.parent!r}", "one of the teams")
        for index, record in enumerate(self.jobs):
            if teams and record.job.team not in teams:
                raise InvalidInput(f"jobs[{index}].job.team", f"no team {record.job.team!r}", "one of the teams")
            _check_placement(index, record, hosts)
        _check_loops("teams", "parent", {team.id: (team.parent,) if team.parent else () for team in self.teams})
        _check_loops("jobs", "job.after", {record.id: record.job.after for record in self.jobs})


def _check_placement(index: int, record: JobRecord, hosts: dict[HostId, Host]) -> None:
    if record.placement is None:
        return
    roles = {role.name for role in record.job.roles}
    for number, worker in enumerate(record.placement.workers):
        host = hosts.get(worker.host)
        if host is not None and worker.role in roles and all(host.gpu(gpu) is not None for gpu in worker.gpus):
            continue
        where = f"jobs[{index}].placement.workers[{number}]"
        if host is None:
            raise InvalidInput(f"{where}.host", f"no host {worker.host!r}", "a host of the snapshot")
        if worker.role not in roles:
            raise InvalidInput(f"{where}.role", f"job {record.id} has no role {worker.role!r}", "one of its roles")
        missing = next(gpu for gpu in worker.gpus if host.gpu(gpu) is None)
        raise InvalidInput(f"{where}.gpus", f"host {host.id} has no GPU {missing}", "indices of its GPUs")


def _check_loops(field: str, edge: str, edges: Mapping[str, Sequence[str]]) -> None:
    """No node reaches itself; a depth-first walk with an explicit stack, for chains may be thousands long."""
    done: set[str] = set()
    for number, start in enumerate(edges):
        if not edges[start]:
            continue
        path: list[str] = []
        stack = [(start, False)]
        while stack:
            node, leaving = stack.pop()
            if leaving:
                done.add(path.pop())
            elif node in path:
                loop = " -> ".join([*path[path.index(node) :], node])
                raise InvalidInput(f"{field}[{number}].{edge}", f"a loop: {loop}", "an order that can be followed")
            elif node not in done and node in edges:
                path.append(node)
                stack.append((node, True))
                stack.extend((following, False) for following in edges[node])
