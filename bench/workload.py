"""What is simulated: a fleet, the jobs that arrive at it with the work they really bring, and what goes wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..model.errors import InvalidInput
from ..model.host import MILLI, Host
from ..model.ids import HostId, TeamId
from ..model.job import Job
from ..model.policy import Policy
from ..model.snapshot import JobRecord, Snapshot
from ..model.team import Team
from ..model.topology import Link, Site
from ..solver.admission import Admissions
from ..solver.appetite import Amounts, beside


@dataclass(frozen=True, slots=True, kw_only=True)
class SimJob:
    """A job, when it is submitted, and the truth that no scheduler sees.

    `work_s` is how many seconds it computes on a type of throughput 1000. `carried_in` jobs fill the fleet before the
    measurement begins and are in no table. A gang that one rack could hold runs at `split_milli` thousandths of its
    speed where it stands in several.
    """

    job: Job
    submit_s: int
    work_s: int
    carried_in: bool = False
    split_milli: int = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """A host that dies at `at_s` with everything on it, and is back, empty, at `back_s`."""

    host: HostId
    at_s: int
    back_s: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A scenario, complete: the same one gives the same run.

    `jobs` are in order of submission. `synthetic` says in sentences what no trace told. `owners` are the hosts of each
    team in a partitioned fleet; empty where nobody owns hosts.
    """

    name: str
    hosts: tuple[Host, ...]
    jobs: tuple[SimJob, ...]
    sites: tuple[Site, ...]
    teams: tuple[Team, ...]
    links: tuple[Link, ...] = ()
    outages: tuple[Outage, ...] = ()
    owners: Mapping[HostId, TeamId] = field(default_factory=dict)
    failing_starts_milli: int = 0
    synthetic: tuple[str, ...] = ()
    left_out: int = 0

    def __post_init__(self) -> None:
        if not self.jobs:
            raise InvalidInput(self.name, "has no jobs", "at least one job in the chosen days")

    @property
    def gpu_milli(self) -> int:
        """milli-GPU of the fleet."""
        return sum(host.gpu_milli for host in self.hosts)

    @property
    def guaranteed_milli(self) -> dict[TeamId, int]:
        """milli-GPU that each team with a guarantee is guaranteed, all types together."""
        return {team.id: sum(quota.gpu_milli for quota in team.guarantee) for team in self.teams if team.guarantee}

    @property
    def beside(self) -> Amounts:
        """Milli-cores, MiB and Mbit/s that a quarter of the jobs, counted by GPUs, at most ask for each GPU."""
        roles = [role for each in self.jobs for role in each.job.roles]
        return beside(role for role in roles if role.request.gpu_milli)

    @property
    def span_s(self) -> int:
        """Seconds from 0 to the last submission."""
        return self.jobs[-1].submit_s

    @property
    def load(self) -> float:
        """GPU-seconds of work that arrive per GPU-second of the fleet until the last submission."""
        asked = sum(each.job.gpu_milli * each.work_s for each in self.jobs)
        return asked / max(1, self.gpu_milli * self.span_s)


def some_hosts(hosts: Sequence[Host], count: int | None) -> tuple[Host, ...]:
    """`count` hosts with the same mix of kinds as the whole list, the first ones of each kind; all for None."""
    if count is None or count >= len(hosts):
        return tuple(hosts)
    kinds = Counter(_kind(host) for host in hosts)
    exact = {kind: count * total / len(hosts) for kind, total in kinds.items()}
    left = {kind: int(share) for kind, share in exact.items()}
    for kind in sorted(exact, key=lambda kind: left[kind] - exact[kind])[: count - sum(left.values())]:
        left[kind] += 1
    chosen = []
    for host in hosts:
        if left[_kind(host)]:
            left[_kind(host)] -= 1
            chosen.append(host)
    return tuple(chosen)


def _kind(host: Host) -> tuple[str, ...]:
    return tuple(gpu.gpu_type for gpu in host.gpus)


def scaled(jobs: Sequence[SimJob], load: float) -> tuple[SimJob, ...]:
    """The jobs arriving `load` times as fast; carried-in ones stay at the start. InvalidInput for 0 or less."""
    if load <= 0:
        raise InvalidInput("load", f"{load} is no factor", "above 0; 2 lets the same jobs arrive twice as fast")
    return tuple(replace(each, submit_s=round(each.submit_s / load)) for each in jobs)


def runnable(workload: Workload, policy: Policy) -> Workload:
    """The workload without jobs that admission refuses on this fleet; `left_out` says how many those are."""
    empty = Snapshot(now_s=0, sites=workload.sites, hosts=workload.hosts, teams=workload.teams, links=workload.links)
    admissions = Admissions(empty, policy)
    kept = tuple(each for each in workload.jobs if _can_start(each.job, admissions))
    return replace(workload, jobs=kept, left_out=workload.left_out + len(workload.jobs) - len(kept))


def _can_start(job: Job, admissions: Admissions) -> bool:
    return admissions.never_fits(JobRecord(job=job, submitted_s=0)) is None


def gpus_of(job: Job) -> float:
    """GPUs of the whole gang, shares of cards included."""
    return job.gpu_milli / MILLI
