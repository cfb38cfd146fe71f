"""Teams' usage as time goes on: what they hold is charged, what they have used decays (RULES 1)."""

from __future__ import annotations

from dataclasses import replace

from ..model.elastic import as_placed
from ..model.ids import TeamId
from ..model.policy import Policy
from ..model.snapshot import JobRecord, Snapshot
from ..model.team import Team, Usage

_Amounts = tuple[int, int, int, int]
"""milli-GPU, milli-cores, MiB, Mbit/s."""


class TeamUsage:
    """The teams of a snapshot, brought up to any later time; each call must name a time no earlier than the last."""

    def __init__(self, snapshot: Snapshot, policy: Policy) -> None:
        self._half_life_s = policy.order.half_life_s
        self._at_s = snapshot.now_s
        self._teams = snapshot.teams
        self._held: dict[TeamId, _Amounts] = {}
        for record in snapshot.jobs:
            if record.state.holds_capacity:
                self._add(record, 1)

    def takes(self, record: JobRecord, now_s: int) -> None:
        """The job has its hosts from now on."""
        self.teams(now_s)
        self._add(record, 1)

    def leaves(self, record: JobRecord, now_s: int) -> None:
        """The job had its hosts until now."""
        self.teams(now_s)
        self._add(record, -1)

    def teams(self, now_s: int) -> tuple[Team, ...]:
        """The teams with their usage as of now."""
        passed_s, self._at_s = now_s - self._at_s, now_s
        if passed_s > 0 and self._teams:
            factor = 0.5 ** (passed_s / self._half_life_s)
            self._teams = tuple(self._later(team, passed_s, factor) for team in self._teams)
        return self._teams

    def _later(self, team: Team, passed_s: int, factor: float) -> Team:
        gpu, cpu, memory, network = self._held.get(team.id, (0, 0, 0, 0))
        used = team.usage
        usage = Usage(
            gpu_milli_s=round(used.gpu_milli_s * factor) + gpu * passed_s,
            cpu_milli_s=round(used.cpu_milli_s * factor) + cpu * passed_s,
            memory_mib_s=round(used.memory_mib_s * factor) + memory * passed_s,
            network_mbps_s=round(used.network_mbps_s * factor) + network * passed_s,
        )
        return team if usage == used else replace(team, usage=usage)

    def _add(self, record: JobRecord, sign: int) -> None:
        gpu, cpu, memory, network = self._held.get(record.job.team, (0, 0, 0, 0))
        job = record.job if record.placement is None else as_placed(record.job, record.placement)
        for role in job.roles:
            request, number = role.request, sign * role.count
            gpu += number * request.gpu_milli
            cpu += number * request.cpu_milli
            memory += number * request.memory_mib
            network += number * request.network_mbps
        self._held[record.job.team] = (gpu, cpu, memory, network)
