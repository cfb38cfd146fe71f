"""What one round chose, why, and how good it is proven to be."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from .ids import HostId, JobId, ReservationId
from .job import DatasetRef
from .placement import Placement
from .reservation import Reservation


class GoalStatus(StrEnum):
    """How near a goal's value is to its bound: equal, within one gang, or not known to be near."""

    PROVEN = "proven"
    WITHIN_A_GANG = "within_a_gang"
    OPEN = "open"


@dataclass(frozen=True, slots=True, kw_only=True)
class GoalPart:
    """A named part of a goal that is a sum, in the goal's unit."""

    name: str
    value: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GoalResult:
    """One goal: its value and a bound that no decision can exceed while the goals before it keep their values.

    Both integers in `unit` ("mGPU", "mGPU*s", "changes"); more is better.
    """

    name: str
    unit: str
    value: int
    bound: int
    status: GoalStatus
    parts: tuple[GoalPart, ...] = ()

    @property
    def gap(self) -> int:
        """bound - value, at least 0."""
        return self.bound - self.value


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Start this attempt of a gang there, once the attempts of `after` (its victims) have left."""

    job: JobId
    attempt: int
    placement: Placement
    inside_guarantee: bool = False
    after: tuple[JobId, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Preemption:
    """Stop this attempt for the beneficiaries; `loss_gpu_s` is what that costs, in GPU-seconds."""

    job: JobId
    attempt: int
    beneficiaries: tuple[JobId, ...]
    loss_gpu_s: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Prefetch:
    """Load up to `mib` MiB of what the host lacks of a data set, at `mbps` Mbit/s at most, before `job` starts there.

    `start_s` is when it is expected to (seconds since the epoch). An order stands as long as the newest round gives it.
    """

    host: HostId
    dataset: DatasetRef
    job: JobId
    start_s: int
    mib: int
    mbps: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Resize:
    """Run an elastic gang at another size, as a new attempt at its next checkpoint."""

    job: JobId
    attempt: int
    placement: Placement


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """A waiting job that can never run on this fleet."""

    job: JobId
    reason: Reason


class RuleFamily(StrEnum):
    """The families of rules; each is one encoder, one verifier function, one test file and one reason."""

    CAPACITY = "capacity"
    GANG = "gang"
    ELIGIBILITY = "eligibility"
    TOPOLOGY = "topology"
    PREEMPTION = "preemption"
    RESERVATION = "reservation"
    QUOTA = "quota"
    AFFINITY = "affinity"
    GUARANTEE = "guarantee"
    RESERVED = "reserved"
    ELASTIC = "elastic"


class ReasonKind(StrEnum):
    """Why a job waits."""

    NEVER_FITS = "never_fits"
    HELD = "held"
    BLOCKED = "blocked"
    BACK_OFF = "back_off"
    BUSY = "busy"
    FRAGMENTED = "fragmented"
    TOPOLOGY = "topology"
    HOSTS_UNAVAILABLE = "hosts_unavailable"
    OUTRANKED = "outranked"
    QUOTA = "quota"
    AFFINITY = "affinity"
    GUARANTEE = "guarantee"
    POOL = "pool"
    MAINTENANCE = "maintenance"
    RESERVED = "reserved"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """Why one job waits, as data; `phalanx.solver.wording` renders it as a sentence.

    `families`: lifting these (at most two) would let it start. `asked` and `available` are amounts in `unit`;
    `subject` names what is short (a GPU type, a host, a job); `besides` what is short as well, where lifting one thing
    would not do; `helps` says what would let it start. A gang with a drain reservation is planned to start in
    `planned_in_s` seconds on `planned_hosts`.
    """

    job: JobId
    kind: ReasonKind
    families: tuple[RuleFamily, ...] = ()
    subject: str = ""
    asked: int = 0
    available: int = 0
    unit: str = ""
    besides: str = ""
    helps: tuple[str, ...] = ()
    planned_in_s: int | None = None
    planned_hosts: tuple[HostId, ...] = ()
    sentence: str = ""


class Stage(StrEnum):
    """The stage of the pipeline that a decision came from."""

    NOTHING_TO_DO = "nothing_to_do"
    GREEDY = "greedy"
    EXACT = "exact"


class Grain(StrEnum):
    """How gangs were told apart: each alone, alike ones together, so of the upper levels only, or on some hosts."""

    SINGLETONS = "singletons"
    MERGED = "merged"
    UPPER_LEVELS = "upper_levels"
    KERNEL = "kernel"


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """How the decision came about, enough to force the same again: the stage, the deterministic budget spent, the seed.

    `goals_solved` is how many goals the exact stage finished; `stopped` says what ended it ("", "budget", "deadline").
    """

    stage: Stage
    grain: Grain
    budget_ms: int
    spent_ms: int
    seed: int
    columns: int = 0
    rows: int = 0
    goals_solved: int = 0
    stopped: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The outcome of a round over the snapshot of version `snapshot_version`, taken at `now_s`."""

    snapshot_version: int
    now_s: int
    starts: tuple[Start, ...] = ()
    preemptions: tuple[Preemption, ...] = ()
    reservations: tuple[Reservation, ...] = ()
    releases: tuple[ReservationId, ...] = ()
    prefetches: tuple[Prefetch, ...] = ()
    resizes: tuple[Resize, ...] = ()
    rejections: tuple[Rejection, ...] = ()
    waiting: tuple[Reason, ...] = ()
    goals: tuple[GoalResult, ...] = ()
    certificate: Certificate
