"""A host: its GPUs, its place, what it offers, what state it is in, and which shards it has cached."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from . import check
from .errors import InvalidInput
from .ids import HostId, JobId
from .topology import TopologyPath

MILLI = 1000
"""One whole card in milli-GPU."""


class HostState(StrEnum):
    """What the host may be used for. Only a `ready` host takes new work; a drain reservation is not a host state."""

    READY = "ready"
    CORDONED = "cordoned"
    EVACUATING = "evacuating"
    SUSPECT = "suspect"
    DOWN = "down"
    MAINTENANCE = "maintenance"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One card, or one MIG slice, which is a device with a type and an inventory of its own.

    `index` is what CUDA_VISIBLE_DEVICES takes on that host; a slice names the physical card it is cut from.
    """

    index: int
    gpu_type: str
    memory_mib: int
    healthy: bool = True
    mig_parent: int | None = None

    def __post_init__(self) -> None:
        check.integer("index", self.index, 0, 1023)
        check.gpu_type("gpu_type", self.gpu_type)
        check.integer("memory_mib", self.memory_mib, 1, unit="MiB")
        check.optional_integer("mig_parent", self.mig_parent, 0, 1023)


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedDataset:
    """How much of one data set lies on this host's NVMe."""

    dataset: str
    digest: str
    shards: int
    shards_total: int
    size_mib: int

    def __post_init__(self) -> None:
        check.integer("shards", self.shards)
        check.integer("shards_total", self.shards_total, 1)
        check.integer("size_mib", self.size_mib, unit="MiB")
        if self.shards > self.shards_total:
            raise InvalidInput("shards", f"{self.shards} of {self.shards_total} shards", "at most all of them")


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A maintenance window: nothing is placed that would still run at `start_s`. Seconds since the epoch."""

    start_s: int
    end_s: int
    cause: str = ""

    def __post_init__(self) -> None:
        if self.end_s <= self.start_s:
            raise InvalidInput("end_s", f"the window ends at {self.end_s}, before it starts", "end_s > start_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Strike:
    """One start or run that failed fast on this host."""

    job: JobId
    at_s: int
    cause: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """One machine of the fleet.

    `cpu_milli` in milli-cores, `memory_mib` in MiB, `network_mbps` in Mbit/s: what gangs may book, after the
    system's own share. `spare` hosts are held back for replacing failed ones. `version` rises with each change of the
    stored row, so that a commit notices a host that moved since the snapshot.
    """

    id: HostId
    path: TopologyPath
    gpus: tuple[Gpu, ...] = ()
    cpu_milli: int
    memory_mib: int
    network_mbps: int = 0
    state: HostState = HostState.READY
    state_cause: str = ""
    state_since_s: int = 0
    spare: bool = False
    windows: tuple[Window, ...] = ()
    cached: tuple[CachedDataset, ...] = ()
    disk_free_mib: int = 0
    strikes: tuple[Strike, ...] = ()
    version: int = 0

    def __post_init__(self) -> None:
        check.name("id", self.id)
        check.integer("cpu_milli", self.cpu_milli, unit="milli-cores")
        check.integer("memory_mib", self.memory_mib, unit="MiB")
        check.integer("network_mbps", self.network_mbps, unit="Mbit/s")
        check.integer("disk_free_mib", self.disk_free_mib, unit="MiB")
        check.distinct("gpus", (gpu.index for gpu in self.gpus), "GPU index")

    @property
    def gpu_types(self) -> tuple[str, ...]:
        """The types of this host's healthy GPUs, each once, sorted."""
        return tuple(sorted({gpu.gpu_type for gpu in self.gpus if gpu.healthy}))

    @property
    def gpu_milli(self) -> int:
        """Capacity of the healthy GPUs in milli-GPU."""
        return MILLI * sum(gpu.healthy for gpu in self.gpus)

    def gpu(self, index: int) -> Gpu | None:
        """The card of that index, or None."""
        # Cards nearly always stand in the order of their indices, from 0 on.
        if 0 <= index < len(self.gpus) and self.gpus[index].index == index:
            return self.gpus[index]
        return next((gpu for gpu in self.gpus if gpu.index == index), None)
