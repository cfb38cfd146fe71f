"""What is asked: a job is one gang; a gang has roles; a role has `count` identical workers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from . import check
from .errors import InvalidInput
from .host import MILLI
from .ids import JobId, SiteId, TeamId
from .topology import Layer


class Strictness(StrEnum):
    """Whether a topology constraint must hold or is only worth something."""

    REQUIRED = "required"
    PREFERRED = "preferred"


class Preemptible(StrEnum):
    """When a job may be evicted by priority: never (reserved pool or guarantee only), by a higher level, or anytime.

    `anytime` puts the job at level 0, at the preemptible price.
    """

    NEVER = "never"
    BY_HIGHER = "by_higher"
    ANYTIME = "anytime"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerRequest:
    """What one worker needs.

    `gpu_milli`: below 1000 a fraction of one card, else whole cards (a multiple of 1000), 0 for none.
    `gpu_memory_mib`: for whole cards the least memory a card must have; for a fraction the memory booked on its card
    (0 books the same fraction of the card's memory as of the card).
    """

    gpu_milli: int = 0
    gpu_memory_mib: int = 0
    cpu_milli: int = 0
    memory_mib: int = 0
    network_mbps: int = 0

    def __post_init__(self) -> None:
        check.integer("gpu_milli", self.gpu_milli, 0, 1024 * MILLI, "milli-GPU")
        if self.gpu_milli > MILLI and self.gpu_milli % MILLI:
            raise InvalidInput(
                "gpu_milli",
                f"{self.gpu_milli} milli-GPU is neither a fraction of one card nor whole cards",
                "1 to 999, or a multiple of 1000",
            )
        check.integer("gpu_memory_mib", self.gpu_memory_mib, unit="MiB")
        check.integer("cpu_milli", self.cpu_milli, unit="milli-cores")
        check.integer("memory_mib", self.memory_mib, unit="MiB")
        check.integer("network_mbps", self.network_mbps, unit="Mbit/s")
        if self.gpu_milli == 0 and self.cpu_milli == 0 and self.memory_mib == 0:
            raise InvalidInput("", "the worker asks for nothing", "GPUs, CPU cores or memory above 0")

    @property
    def whole_gpus(self) -> int:
        """Number of whole cards; 0 for a fraction."""
        return self.gpu_milli // MILLI

    @property
    def fractional(self) -> bool:
        """Whether the worker shares one card."""
        return 0 < self.gpu_milli < MILLI


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuTypeChoice:
    """An acceptable GPU type and the speed of this job on it, in thousandths of its speed on the reference type."""

    gpu_type: str
    throughput_milli: int = 1000

    def __post_init__(self) -> None:
        check.gpu_type("gpu_type", self.gpu_type)
        check.integer("throughput_milli", self.throughput_milli, 1, 1_000_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parallelism:
    """How the workers of a role form groups; rank = (data x pipeline + stage) x tensor + slot.

    Workers of one tensor group stay inside one NVLink domain (required); stages of one pipeline want to be near the
    next stage, and the replicas of the data-parallel group in one zone (preferred).
    """

    tensor: int = 1
    pipeline: int = 1
    data: int = 1

    def __post_init__(self) -> None:
        for field in ("tensor", "pipeline", "data"):
            check.integer(field, getattr(self, field), 1, 100_000)

    @property
    def workers(self) -> int:
        """Workers that the three degrees multiply to."""
        return self.tensor * self.pipeline * self.data


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """`count` identical workers. All GPU workers of a role run on one GPU type.

    `gpu_types` empty: any type, at equal speed.
    """

    name: str = "worker"
    count: int = 1
    request: WorkerRequest
    gpu_types: tuple[GpuTypeChoice, ...] = ()
    parallelism: Parallelism | None = None

    def __post_init__(self) -> None:
        check.name("name", self.name)
        check.integer("count", self.count, 1, 100_000, "workers")
        check.distinct("gpu_types", (choice.gpu_type for choice in self.gpu_types), "GPU type")
        if self.gpu_types and not self.request.gpu_milli:
            raise InvalidInput("gpu_types", "a worker without GPUs names GPU types", "no gpu_types, or gpu_milli > 0")
        if self.parallelism and self.parallelism.workers != self.count:
            p = self.parallelism
            raise InvalidInput(
                "parallelism",
                f"tensor {p.tensor} x pipeline {p.pipeline} x data {p.data} is {p.workers}, but count is {self.count}",
                "their product equal to count",
            )

    @property
    def gpu_milli(self) -> int:
        """milli-GPU of all its workers."""
        return self.count * self.request.gpu_milli

    def throughput_milli(self, gpu_type: str) -> int | None:
        """Relative speed on that type in thousandths; None where the type is not acceptable."""
        if not self.gpu_types:
            return 1000
        for choice in self.gpu_types:
            if choice.gpu_type == gpu_type:
                return choice.throughput_milli
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyConstraint:
    """All workers of the gang inside one domain of this layer: required, or preferred."""

    layer: Layer
    strictness: Strictness = Strictness.REQUIRED


@dataclass(frozen=True, slots=True, kw_only=True)
class AntiAffinity:
    """No two jobs that carry the same label in one domain of this layer."""

    label: str
    layer: Layer = Layer.HOST

    def __post_init__(self) -> None:
        check.name("label", self.label)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointPolicy:
    """How the job saves its work, in seconds; `uri` is where (any fsspec address).

    `grace_s` is how long the job may take from the warning to its exit.
    """

    interval_s: int
    write_s: int = 0
    restart_s: int = 0
    grace_s: int = 30
    uri: str = ""

    def __post_init__(self) -> None:
        check.integer("interval_s", self.interval_s, 1, unit="s")
        check.integer("write_s", self.write_s, unit="s")
        check.integer("restart_s", self.restart_s, unit="s")
        check.integer("grace_s", self.grace_s, 0, 86_400, "s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Elastic:
    """World sizes at which the workers of one role can run, rising; the role's count must be one of them."""

    role: str
    sizes: tuple[int, ...]

    def __post_init__(self) -> None:
        check.name("role", self.role)
        check.ascending("sizes", self.sizes, "world sizes")
        for index, size in enumerate(self.sizes):
            check.integer(f"sizes[{index}]", size, 1, 100_000, "workers")


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetRef:
    """The data set that every worker reads; sizes say what a host without it must fetch."""

    name: str
    digest: str = ""
    size_mib: int = 0
    shards: int = 1

    def __post_init__(self) -> None:
        check.integer("size_mib", self.size_mib, unit="MiB")
        check.integer("shards", self.shards, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyValue:
    """One label or environment variable."""

    key: str
    value: str

    def __post_init__(self) -> None:
        if not self.key or "=" in self.key or "\0" in self.key + self.value:
            raise InvalidInput("key", f"{self.key!r} is not usable as a key", "a non-empty text without '='")


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """What every rank runs, with the torchrun-style variables in its environment."""

    argv: tuple[str, ...]
    env: tuple[KeyValue, ...] = ()
    workdir: str = ""

    def __post_init__(self) -> None:
        if not self.argv or not self.argv[0]:
            raise InvalidInput("argv", "the command is empty", "a program and its arguments")
        check.distinct("env", (pair.key for pair in self.env), "variable")


_LEVEL = {1: 3, 2: 2, 3: 1, 4: 1}
"""The priority level of each tier."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One request. Times in seconds; `priority` orders a team's own jobs inside a level (higher first).

    `topology` empty: the default confinement (one host where it fits on one, else one site, one rack preferred).
    `queue_deadline_s` and `start_timeout_s` count from submission and from planning. `finish_by_s` is absolute.
    """

    id: JobId
    team: TeamId
    roles: tuple[Role, ...]
    name: str = ""
    user: str = ""
    tier: int = 3
    priority: int = 0
    preemptible: Preemptible = Preemptible.BY_HIGHER
    topology: tuple[TopologyConstraint, ...] = ()
    cross_site: bool = False
    off_premises: bool | None = None
    sites: tuple[SiteId, ...] = ()
    anti_affinity: tuple[AntiAffinity, ...] = ()
    walltime_limit_s: int | None = None
    walltime_estimate_s: int | None = None
    checkpoint: CheckpointPolicy | None = None
    elastic: Elastic | None = None
    dataset: DatasetRef | None = None
    queue_deadline_s: int | None = None
    start_timeout_s: int | None = None
    finish_by_s: int | None = None
    after: tuple[JobId, ...] = ()
    movable: bool = True
    max_restarts: int = 3
    labels: tuple[KeyValue, ...] = ()
    command: Command | None = None

    def __post_init__(self) -> None:
        check.name("id", self.id)
        check.name("team", self.team)
        check.integer("tier", self.tier, 1, 4)
        check.integer("priority", self.priority, -1_000_000, 1_000_000)
        check.integer("max_restarts", self.max_restarts, 0, 1000)
        if not self.roles:
            raise InvalidInput("roles", "the job has no roles", "at least one role")
        check.distinct("roles", (role.name for role in self.roles), "role")
        check.distinct("topology", (constraint.layer for constraint in self.topology), "layer")
        check.distinct("after", self.after, "dependency")
        if self.id in self.after:
            raise InvalidInput("after", f"job {self.id} waits for itself", "other jobs only")
        for field in ("walltime_limit_s", "walltime_estimate_s", "queue_deadline_s", "start_timeout_s"):
            check.optional_integer(field, getattr(self, field), 1, unit="s")
        check.optional_integer("finish_by_s", self.finish_by_s, unit="s")
        self._check_elastic()

    def _check_elastic(self) -> None:
        if self.elastic is None:
            return
        role = self.role(self.elastic.role)
        if role is None:
            raise InvalidInput("elastic.role", f"no role {self.elastic.role!r}", "the name of one of the job's roles")
        if role.count not in self.elastic.sizes:
            raise InvalidInput(
                "elastic.sizes",
                f"{role.count} workers are asked, but the sizes are {list(self.elastic.sizes)}",
                "the role's count among the sizes",
            )

    @property
    def gpu_milli(self) -> int:
        """milli-GPU of the whole gang."""
        return sum(role.gpu_milli for role in self.roles)

    @property
    def gpus(self) -> int:
        """GPUs of the whole gang, rounded up to whole cards; for display."""
        return math.ceil(self.gpu_milli / MILLI)

    @property
    def workers(self) -> int:
        """Workers of all roles."""
        return sum(role.count for role in self.roles)

    def role(self, name: str) -> Role | None:
        """The role of that name, or None."""
        for role in self.roles:
            if role.name == name:
                return role
        return None

    @property
    def level(self) -> int:
        """The static priority level 3..0 that the solver orders by (RULES 1), before any demotion for budget."""
        if self.preemptible is Preemptible.ANYTIME:
            return 0
        return _LEVEL[self.tier]
