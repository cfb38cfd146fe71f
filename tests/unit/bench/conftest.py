from collections.abc import Sequence
from typing import Any

import pytest

from phalanx.bench.workload import SimJob, Workload
from phalanx.model.host import Gpu, Host
from phalanx.model.ids import HostId, JobId, SiteId, TeamId
from phalanx.model.job import GpuTypeChoice, Job, Role, WorkerRequest
from phalanx.model.team import Team
from phalanx.model.topology import Site, TopologyPath


def host(name: str, gpus: int = 8, gpu_type: str = "A100", site: str = "s") -> Host:
    cards = tuple(Gpu(index=index, gpu_type=gpu_type, memory_mib=80 * 1024) for index in range(gpus))
    path = TopologyPath(site=SiteId(site))
    return Host(id=HostId(name), path=path, gpus=cards, cpu_milli=128_000, memory_mib=1024 * 1024)


def sim_job(
    name: str,
    submit_s: int,
    work_s: int,
    gpus: float = 1,
    workers: int = 1,
    team: str = "t",
    types: dict[str, int] | None = None,
    **more: Any,
) -> SimJob:
    choices = tuple(GpuTypeChoice(gpu_type=kind, throughput_milli=speed) for kind, speed in (types or {}).items())
    role = Role(count=workers, request=WorkerRequest(gpu_milli=round(gpus * 1000), cpu_milli=1_000), gpu_types=choices)
    job = Job(id=JobId(name), team=TeamId(team), roles=(role,), **{"walltime_limit_s": 10 * work_s + 3_600, **more})
    return SimJob(job=job, submit_s=submit_s, work_s=work_s)


def workload(jobs: Sequence[SimJob], hosts: Sequence[Host], **more: Any) -> Workload:
    return Workload(
        name="small",
        hosts=tuple(hosts),
        jobs=tuple(jobs),
        sites=tuple(Site(id=site) for site in dict.fromkeys(each.path.site for each in hosts)),
        teams=tuple(Team(id=team) for team in sorted({each.job.team for each in jobs})),
        **more,
    )


@pytest.fixture
def small():
    """Makers of hosts, jobs and workloads, as `small.host`, `small.job`, `small.workload`."""

    class Small:
        pass

    Small.host, Small.job, Small.workload = staticmethod(host), staticmethod(sim_job), staticmethod(workload)
    return Small
