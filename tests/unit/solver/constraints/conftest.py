"""A small world for the encoder's families: each test builds one family alone, fixes counts, and asks if they fit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from ortools.sat.python import cp_model

from phalanx.model.host import Gpu, Host
from phalanx.model.ids import HostId, JobId, SiteId, TeamId
from phalanx.model.job import Job, Role
from phalanx.model.job_state import JobState
from phalanx.model.placement import Placement, WorkerPlacement
from phalanx.model.policy import Policy
from phalanx.model.snapshot import JobRecord, Snapshot
from phalanx.model.team import Team
from phalanx.model.topology import Site, TopologyPath
from phalanx.solver.classes import Instance, reduce
from phalanx.solver.variables import Variables

NOW_S = 10_000


class World:
    """Builders with the defaults that a test does not care about."""

    @staticmethod
    def host(name: str, gpus: int = 4, kind: str = "H100", memory: int = 80_000, **fields: Any) -> Host:
        place = {key: fields.pop(key) for key in ("zone", "rack", "nvlink") if key in fields}
        defaults = {"cpu_milli": 100_000, "memory_mib": 1_000_000, "network_mbps": 100_000}
        cards = tuple(Gpu(index=i, gpu_type=kind, memory_mib=memory) for i in range(gpus))
        path = TopologyPath(site=SiteId(fields.pop("site", "s")), **place)
        return Host(id=HostId(name), path=path, gpus=cards, **{**defaults, **fields})

    @staticmethod
    def job(name: str, *roles: Role, team: str = "t", **fields: Any) -> JobRecord:
        return JobRecord(job=Job(id=JobId(name), team=TeamId(team), roles=roles, **fields), submitted_s=0)

    @staticmethod
    def running(name: str, role: Role, *seats: tuple[str, tuple[int, ...]], **fields: Any) -> JobRecord:
        """A job that runs on these hosts and cards, long enough to be evicted."""
        workers = tuple(
            WorkerPlacement(role=role.name, index=index, host=HostId(host), gpus=gpus)
            for index, (host, gpus) in enumerate(seats)
        )
        return replace(
            World.job(name, role, **fields),
            state=JobState.RUNNING,
            attempt=1,
            placement=Placement(workers=workers),
            started_s=NOW_S - 3_600,
        )

    @staticmethod
    def instance(
        hosts: list[Host], jobs: list[JobRecord], teams: Iterable[Team] = (), policy: Policy | None = None
    ) -> Instance:
        sites = tuple(Site(id=site) for site in sorted({host.path.site for host in hosts}))
        fleet = Snapshot(now_s=NOW_S, sites=sites, hosts=tuple(hosts), jobs=tuple(jobs), teams=tuple(teams))
        return reduce(fleet, policy or Policy())

    @staticmethod
    def feasible(
        instance: Instance,
        family: Callable[[cp_model.CpModel, Instance, Variables], None],
        at: Mapping[tuple[str, str, str], int] | None = None,
        started: Mapping[str, bool] | None = None,
        cards: Mapping[tuple[str, str, str, int], int] | None = None,
        evicted: Mapping[str, bool] | None = None,
        inside: Mapping[str, bool] | None = None,
    ) -> bool:
        """Whether the family alone allows these counts: `at` by (job, role, host), `cards` by (job, role, host, card)."""
        model = cp_model.CpModel()
        variables = Variables(model, instance)
        family(model, instance, variables)
        for name, leaves in (evicted or {}).items():
            model.add(variables.evicted(JobId(name)) == leaves)
        for gang in instance.gangs:
            if started and gang.id in started:
                model.add(variables.started(gang) == started[gang.id])
            if inside and gang.id in inside:
                claimed = variables.inside(gang)
                assert claimed is not None, f"{gang.id} cannot start inside"
                model.add(claimed == inside[gang.id])
            for workers in gang.workers:
                for (job, role, host), count in (at or {}).items():
                    if (job, role) == (gang.id, workers.role.name):
                        slots = [slot for slot in workers.slots if slot.host == host]
                        assert slots, f"{job} has no slot on {host}"
                        model.add(sum(variables.workers_at(workers, slot) for slot in slots) == count)
                for (job, role, host, index), count in (cards or {}).items():
                    if (job, role) == (gang.id, workers.role.name):
                        card = next(card for card in instance.hosts[HostId(host)].cards if card.index == index)
                        variable = variables.on_card(workers, HostId(host), card)
                        assert variable is not None
                        model.add(variable == count)
        return cp_model.CpSolver().solve(model) in (cp_model.OPTIMAL, cp_model.FEASIBLE)


@pytest.fixture
def world() -> type[World]:
    return World
