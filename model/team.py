"""Teams as a tree, with what each is guaranteed, weighs and may not exceed."""

from __future__ import annotations

from dataclasses import dataclass

from . import check
from .errors import InvalidInput
from .ids import TeamId


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuQuota:
    """An amount of one GPU type, in milli-GPU."""

    gpu_type: str
    gpu_milli: int

    def __post_init__(self) -> None:
        check.gpu_type("gpu_type", self.gpu_type)
        check.integer("gpu_milli", self.gpu_milli, unit="milli-GPU")


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What a team has used, decayed with the policy's half-life, in unit-seconds of each resource."""

    gpu_milli_s: int = 0
    cpu_milli_s: int = 0
    memory_mib_s: int = 0
    network_mbps_s: int = 0

    def __post_init__(self) -> None:
        for field in ("gpu_milli_s", "cpu_milli_s", "memory_mib_s", "network_mbps_s"):
            check.integer(field, getattr(self, field), 0, 10**18)


@dataclass(frozen=True, slots=True, kw_only=True)
class Team:
    """One node of the tree of teams.

    `guarantee` is per GPU type; `limit` None is no limit; `weight` is its share beside its siblings;
    `budget_gpu_s` the month's GPU-seconds, None without a budget; `spent_gpu_s` what of it is gone.
    """

    id: TeamId
    parent: TeamId | None = None
    weight: int = 100
    guarantee: tuple[GpuQuota, ...] = ()
    limit: tuple[GpuQuota, ...] | None = None
    usage: Usage = Usage()
    budget_gpu_s: int | None = None
    spent_gpu_s: int = 0

    def __post_init__(self) -> None:
        check.name("id", self.id)
        check.integer("weight", self.weight, 1, 1_000_000)
        check.distinct("guarantee", (quota.gpu_type for quota in self.guarantee), "GPU type")
        check.distinct("limit", (quota.gpu_type for quota in self.limit or ()), "GPU type")
        check.optional_integer("budget_gpu_s", self.budget_gpu_s, unit="GPU-second")
        check.integer("spent_gpu_s", self.spent_gpu_s, unit="GPU-second")
        if self.parent == self.id:
            raise InvalidInput("parent", f"team {self.id} is its own parent", "another team, or none")
