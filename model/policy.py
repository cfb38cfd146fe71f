"""The numbers of RULES.md, as data: the solver never branches on a policy's name."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from . import check
from .errors import InvalidInput
from .ids import SiteId
from .topology import Layer


@dataclass(frozen=True, slots=True, kw_only=True)
class FairShareStep:
    """Up to `share_milli` thousandths of its fair share, a team's next GPU earns a credit of `weight` hundredths."""

    share_milli: int
    weight: int

    def __post_init__(self) -> None:
        check.integer("share_milli", self.share_milli, 1)
        check.integer("weight", self.weight, 0, 10_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderPolicy:
    """Order inside a level. A GPU weighs `base_weight` hundredths, at most twice that with all credits.

    The multifactor weights fair share 10000 : size 1000 : age 500 divide the second hundred into 87 : 9 : 4.
    `age_full_s` is the wait at which the age credit is full; `fair_share` falls, so a team's gain is concave.
    `half_life_s` decays past usage. A CPU-only worker counts as `cpu_worker_milli` milli-GPU.
    """

    base_weight: int = 100
    size_weight: int = 9
    age_weight: int = 4
    age_full_s: int = 7 * 86_400
    fair_share: tuple[FairShareStep, ...] = (
        FairShareStep(share_milli=500, weight=87),
        FairShareStep(share_milli=1_000, weight=65),
        FairShareStep(share_milli=2_000, weight=30),
    )
    half_life_s: int = 7 * 86_400
    cpu_worker_milli: int = 50

    def __post_init__(self) -> None:
        check.integer("base_weight", self.base_weight, 1, 1_000_000)
        check.integer("size_weight", self.size_weight, 0, 1_000_000)
        check.integer("age_weight", self.age_weight, 0, 1_000_000)
        check.integer("age_full_s", self.age_full_s, 1, unit="s")
        check.integer("half_life_s", self.half_life_s, 1, unit="s")
        check.integer("cpu_worker_milli", self.cpu_worker_milli, 1, 1_000, "milli-GPU")
        check.ascending("fair_share", [step.share_milli for step in self.fair_share], "shares")
        weights = [step.weight for step in self.fair_share]
        if any(a < b for a, b in itertools.pairwise(weights)):
            raise InvalidInput("fair_share", f"weights {weights} rise", "falling weights, so that shares even out")


@dataclass(frozen=True, slots=True, kw_only=True)
class StandardGang:
    """A gang whose room is worth keeping: `workers` of `gpus` whole cards each inside one domain of `layer`."""

    workers: int
    gpus: int
    layer: Layer

    def __post_init__(self) -> None:
        check.integer("workers", self.workers, 1, 100_000)
        check.integer("gpus", self.gpus, 1, 1024, "GPUs")


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectivePolicy:
    """What the goals are worth (RULES 2). `horizon_s` is H: a started GPU is worth that many seconds of work.

    Each free card that its host's CPU, memory and network can serve is worth `usable_s`, and each standard gang that
    could still start on such cards `room_s` seconds of its GPUs. What is free of cards, parts of shared ones
    included, beyond what its host can serve to half of the demand costs `stranded_s`. Each domain beyond the first of a
    preferred layer costs a gang `spread_s` seconds of its GPUs, a pipeline that leaves a domain the same for its own.
    A GPU on a slower type loses `horizon_s` times its slowness. A GPU of the rarest type costs up to `scarce_s`, one of
    a type that jobs must have up to `wanted_s`.
    A host loads missing shards with at most `fetch_mbps` Mbit/s, and no faster than its network or a link above it.
    """

    horizon_s: int = 3_600
    usable_s: int = 60
    stranded_s: int = 600
    room_s: int = 10
    standard_gangs: tuple[StandardGang, ...] = (
        StandardGang(workers=4, gpus=8, layer=Layer.RACK),
        StandardGang(workers=1, gpus=8, layer=Layer.HOST),
        StandardGang(workers=1, gpus=4, layer=Layer.HOST),
    )
    spread_s: int = 120
    scarce_s: int = 30
    wanted_s: int = 600
    fetch_mbps: int = 8_000

    def __post_init__(self) -> None:
        for field in ("horizon_s", "usable_s", "stranded_s", "room_s", "spread_s", "scarce_s", "wanted_s"):
            check.integer(field, getattr(self, field), 0, 1_000_000, "s")
        check.integer("fetch_mbps", self.fetch_mbps, 1, 10**9, "Mbit/s")
        if self.horizon_s % 100:
            raise InvalidInput(
                "horizon_s", f"{self.horizon_s} s times a weight in hundredths is not whole", "a multiple of 100"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionPolicy:
    """Eviction limits (RULES 3), times in seconds.

    Only a gang whose restart and idle handover take at most `move_loss_s` is moved; 0 forbids moves. A job that would
    lose more than `max_loss_s` of each of its GPUs (work, restart, idle handover) is not evicted; None sets no bound.
    """

    min_run_s: int = 600
    max_evictions: int = 3
    evictions_window_s: int = 86_400
    clean_s: int = 10
    launch_s: int = 30
    moves_per_hour: int = 10
    move_loss_s: int = 300
    max_loss_s: int | None = None

    def __post_init__(self) -> None:
        if self.max_loss_s is not None:
            check.integer("max_loss_s", self.max_loss_s, 0, unit="s")


@dataclass(frozen=True, slots=True, kw_only=True)
class TimePolicy:
    """Limits, starvation and promises (RULES 5), times in seconds.

    A drain plans at most `plan_horizon_s` ahead, and tries at most `max_candidate_starts` times. A gang of
    `drain_at_once_gpus` or more that asks for more than `drain_at_once_milli` thousandths of what it accepts at any
    site is drained for before it starves, while its room is expected within `starve_after_s`; None: none is.
    """

    limit_team_s: int = 72 * 3_600
    limit_shared_s: int = 24 * 3_600
    limit_preemptible_s: int = 4 * 3_600
    starve_after_s: int = 2 * 3_600
    drains_per_pool: int = 1
    max_candidate_starts: int = 32
    plan_horizon_s: int = 7 * 86_400
    start_timeout_s: int = 300
    replace_grace_s: int = 300
    grow_after_s: int = 600
    drain_at_once_gpus: int = 64
    drain_at_once_milli: int | None = 333

    def __post_init__(self) -> None:
        check.integer("drain_at_once_gpus", self.drain_at_once_gpus, 0, unit="GPUs")
        if self.drain_at_once_milli is not None:
            check.integer("drain_at_once_milli", self.drain_at_once_milli, 0, 1_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class FailurePolicy:
    """Strikes and back-off (RULES 7), times in seconds."""

    backoff_base_s: int = 10
    backoff_max_s: int = 1_800
    max_failed_starts: int = 8
    evacuate_after_jobs: int = 3
    fast_failure_s: int = 60
    host_lost_after_s: int = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetPolicy:
    """Prices and notices (RULES 8), in percent: what preemptible work costs less, and the share spent that is told."""

    preemptible_off_percent: int = 70
    notice_percent: int = 80

    def __post_init__(self) -> None:
        check.integer("preemptible_off_percent", self.preemptible_off_percent, 0, 100, "percent")
        check.integer("notice_percent", self.notice_percent, 1, 100, "percent")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservedPool:
    """GPUs of one site and type set aside for tiers 1 and 2."""

    site: SiteId
    gpu_type: str
    gpu_milli: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SolvePolicy:
    """How hard a round tries. `budget_ms` is deterministic time (CP-SAT's own clock) in milliseconds, all goals."""

    budget_ms: int = 2_000
    seed: int = 1
    exact_columns: int = 40_000
    within_a_gang_milli: int = 10

    def __post_init__(self) -> None:
        check.integer("budget_ms", self.budget_ms, 0, 3_600_000, "ms")
        check.integer("seed", self.seed, 0, 2**31 - 1)
        check.integer("exact_columns", self.exact_columns, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """All numbers of a round. The defaults are RULES.md's."""

    order: OrderPolicy = OrderPolicy()
    objective: ObjectivePolicy = ObjectivePolicy()
    eviction: EvictionPolicy = EvictionPolicy()
    time: TimePolicy = TimePolicy()
    failure: FailurePolicy = FailurePolicy()
    budget: BudgetPolicy = BudgetPolicy()
    solve: SolvePolicy = SolvePolicy()
    reserved: tuple[ReservedPool, ...] = ()
    cross_site: bool = False
    production_off_premises: bool = False
