"""Which running jobs may return elsewhere or at another size in this round (docs/rounds.md, returners).

Named once before the solve; encoder, greedy and verifier read the same names, and state the rules about them
independently.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from ..model.host import Host
from ..model.ids import HostId
from ..model.job_state import JobState
from ..model.limits import grace_s
from ..model.policy import Policy
from ..model.snapshot import JobRecord, Snapshot
from .demand import candidates, loss, victims
from .drains import pools
from .order import value_milli
from .remember import remembered
from .rights import never
from .same import Same
from .sizes import settled, sizes

MOST_SHRINKERS = 16
"""Elastic jobs that one round considers to shrink."""

HOUR_S = 3_600


@dataclass(frozen=True, slots=True)
class Returners:
    """Jobs that may return smaller, and jobs that may return elsewhere at the size they have; a job may be both."""

    shrinkers: tuple[JobRecord, ...] = ()
    movers: tuple[JobRecord, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.shrinkers or self.movers)


NOBODY = Returners()
"""Nobody may return."""


@remembered
def returners(snapshot: Snapshot, policy: Policy) -> Returners:
    """The returners of the round, each in the order of the snapshot's jobs, at the sizes they have."""
    return _returners(Same(settled(snapshot)), policy)


@lru_cache(maxsize=4)
def _returners(same: Same, policy: Policy) -> Returners:
    return Returners(_shrinkers(same.snapshot, policy), _movers(same.snapshot, policy))


def smaller(record: JobRecord) -> tuple[int, ...]:
    """The sizes to which a settled shrinker may shrink, rising."""
    elastic = record.job.elastic
    role = record.job.role(elastic.role) if elastic is not None else None
    return tuple(size for size in sizes(record.job) if role is not None and size < role.count)


def return_loss(record: JobRecord, snapshot: Snapshot, policy: Policy) -> int:
    """What it costs that the settled job stops and starts anew now [mGPU*s]: its restart and the idle handover."""
    return loss(record, value_milli(record, policy), snapshot.now_s, policy)


def moves_left(snapshot: Snapshot, policy: Policy) -> int:
    """How many jobs may still be moved, or grow, in this hour."""
    since_s = snapshot.now_s - HOUR_S
    return max(0, policy.eviction.moves_per_hour - sum(at > since_s for r in snapshot.jobs for at in r.moves))


def saves_its_work(record: JobRecord, now_s: int, policy: Policy) -> bool:
    """Whether the running job may stop now and lose no work: long enough under way, and its grace lets it save."""
    checkpoint = record.job.checkpoint
    return (
        record.state is JobState.RUNNING
        and record.started_s is not None
        and now_s - record.started_s >= policy.eviction.min_run_s
        and checkpoint is not None
        and grace_s(record.job) >= checkpoint.write_s
        and not never(record)
        and not any(role.request.fractional for role in record.job.roles)
    )


@remembered
def unwanted(snapshot: Snapshot, policy: Policy) -> frozenset[HostId]:
    """The hosts that no candidate could use: it accepts none of their GPU types, or, without GPUs, not their site."""
    wanted = {pool for record in candidates(snapshot) for pool in pools(record.job, snapshot, policy)}

    def useful(host: Host) -> bool:
        names = {"", *(gpu.gpu_type for gpu in host.gpus)}
        return any((host.path.site, name) in wanted for name in names)

    return frozenset(host.id for host in snapshot.hosts if not (wanted and useful(host)))


def _shrinkers(snapshot: Snapshot, policy: Policy) -> tuple[JobRecord, ...]:
    if all(record.job.elastic is None for record in snapshot.jobs):
        return ()
    able = (r for r in victims(snapshot, policy) if smaller(r) and saves_its_work(r, snapshot.now_s, policy))
    return _cheapest(able, MOST_SHRINKERS, snapshot, policy, each_gpu=True)


def _movers(snapshot: Snapshot, policy: Policy) -> tuple[JobRecord, ...]:
    most = moves_left(snapshot, policy)
    room = bool(policy.objective.standard_gangs) and policy.objective.room_s > 0
    if not most or not policy.eviction.move_loss_s or not (room or candidates(snapshot)):
        return ()
    able = (record for record in snapshot.jobs if record.job.movable and _movable(record, snapshot, policy))
    return _cheapest(able, most, snapshot, policy, each_gpu=False)


def _movable(record: JobRecord, snapshot: Snapshot, policy: Policy) -> bool:
    checkpoint, limits = record.job.checkpoint, policy.eviction
    if checkpoint is None or not saves_its_work(record, snapshot.now_s, policy):
        return False
    handover_s = grace_s(record.job) + limits.clean_s + limits.launch_s
    lately = any(at > snapshot.now_s - HOUR_S for at in record.moves)
    return checkpoint.restart_s + handover_s <= limits.move_loss_s and not lately


def _cheapest(
    able: Iterable[JobRecord], most: int, snapshot: Snapshot, policy: Policy, *, each_gpu: bool
) -> tuple[JobRecord, ...]:
    """The cheapest to stop, whole or for each GPU; of equals the first by name."""

    def cost(record: JobRecord) -> tuple[int, str]:
        lost = return_loss(record, snapshot, policy)
        return lost // value_milli(record, policy) if each_gpu else lost, record.id

    chosen = {record.id for record in sorted(able, key=cost)[:most]}
    return tuple(record for record in snapshot.jobs if record.id in chosen)
