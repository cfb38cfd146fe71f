"""Drain reservations, derived data: who is promised hosts, when work leaves them, which starts are tried (RULES 5).

Pure and without a solver: the encoder, the greedy and the verifier read the same data, and state the rules about it
independently. Times in seconds since the epoch.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from ..model.host import MILLI
from ..model.ids import JobId, SiteId
from ..model.job import Job
from ..model.job_state import JobState
from ..model.limits import grace_s, ran_s, walltime_limit_s
from ..model.policy import Policy
from ..model.reservation import Reservation
from ..model.snapshot import JobRecord, Snapshot
from .demand import allowed_sites, candidates, placeable, surely_over_s, too_dear
from .drain_limits import Ahead
from .drain_soon import Soon
from .remember import remembered
from .rights import never, only_inside, rights_of

Pool = tuple[SiteId, str]
"""A site and a GPU type there; the empty type for gangs without GPUs."""

TIER_ONE_ONLY_AFTER = 2
"""So often a promise may be broken by higher levels; from then on only tier 1 comes before it."""


@dataclass(frozen=True, slots=True)
class Promise:
    """An earlier reservation of a gang that is still named; `start_s` is what it promised, now where that has passed.

    `level` is the level of its `keep` goal: the gang's, or 2 for one of level 1 that was broken twice.
    """

    record: JobRecord
    reservation: Reservation
    start_s: int
    level: int


def is_plain(record: JobRecord) -> bool:
    """Whether drains serve gangs of that kind: level >= 1, no fractions, no labels, no need to be inside."""
    job = record.job
    return (
        record.level >= 1
        and not (job.anti_affinity or only_inside(record))
        and not any(role.request.fractional for role in job.roles)
    )


class Pools:
    """Where gangs could have hosts set aside: their allowed sites and acceptable types of placeable hosts."""

    def __init__(self, snapshot: Snapshot, policy: Policy) -> None:
        self._snapshot, self._policy = snapshot, policy
        hosts = [host for host in snapshot.hosts if placeable(host)]
        self._sites = {host.path.site for host in hosts}
        self._there = Counter((host.path.site, gpu.gpu_type) for host in hosts for gpu in host.gpus if gpu.healthy)

    def __call__(self, job: Job) -> frozenset[Pool]:
        """The pools of that job."""
        sites = allowed_sites(job, self._snapshot, self._policy)
        gpu_roles = [role for role in job.roles if role.request.gpu_milli]
        if not gpu_roles:
            return frozenset((site, "") for site in self._sites & sites)
        return frozenset(
            (site, name)
            for site, name in self._there
            if site in sites and any(role.throughput_milli(name) is not None for role in gpu_roles)
        )

    def asks_for_more(self, job: Job, share_milli: int) -> bool:
        """Whether the gang asks for more than that share of the GPUs that it accepts, at any of its sites."""
        if 1_000 * job.gpu_milli <= share_milli * MILLI * min(self._there.values(), default=0):
            return False
        cards: Counter[SiteId] = Counter()
        for site, name in self(job):
            cards[site] += self._there[site, name]
        most = max(cards.values(), default=0)
        return most > 0 and 1_000 * job.gpu_milli > share_milli * MILLI * most


def pools(job: Job, snapshot: Snapshot, policy: Policy) -> frozenset[Pool]:
    """Where the gang could have hosts set aside; `Pools` tells it of many."""
    return _pools(snapshot, policy)(job)


@remembered
def pressing(snapshot: Snapshot, policy: Policy) -> frozenset[JobId]:
    """The gangs that need no waiting to be named: they ask for much of their pools, and room is expected soon."""
    share, least_milli = policy.time.drain_at_once_milli, policy.time.drain_at_once_gpus * MILLI
    large = [record for record in candidates(snapshot) if record.job.gpu_milli >= least_milli and is_plain(record)]
    if share is None or not large:
        return frozenset()
    pools_of, soon = _pools(snapshot, policy), Soon(snapshot, policy, Clear(snapshot, policy))
    return frozenset(
        record.id
        for record in large
        if pools_of.asks_for_more(record.job, share) and soon(record, pools_of(record.job))
    )


def last_start_s(record: JobRecord, snapshot: Snapshot, policy: Policy) -> int:
    """The last time for which a gang without a promise may be planned (s since the epoch).

    A drain keeps hosts idle no longer than its gang has waited; a pressing one is expected not to keep them for long.
    """
    ahead_s = policy.time.plan_horizon_s
    if record.id not in pressing(snapshot, policy):
        ahead_s = min(ahead_s, snapshot.now_s - record.submitted_s)
    return snapshot.now_s + ahead_s


@remembered
def _pools(snapshot: Snapshot, policy: Policy) -> Pools:
    return Pools(snapshot, policy)


def reservations_by_job(snapshot: Snapshot) -> dict[JobId, Reservation]:
    """The reservation of each job that has one; of several the first counts, and the others are to be released."""
    found: dict[JobId, Reservation] = {}
    for reservation in snapshot.reservations:
        found.setdefault(reservation.job, reservation)
    return found


@remembered
def named(snapshot: Snapshot, policy: Policy) -> tuple[JobRecord, ...]:
    """The gangs for which hosts may be reserved: the starving ones with the first claims on their pools, in order."""
    promised = reservations_by_job(snapshot)
    since_s, urgent = snapshot.now_s - policy.time.starve_after_s, pressing(snapshot, policy)
    starving = [
        record
        for record in candidates(snapshot)
        if (record.submitted_s <= since_s or record.id in promised or record.id in urgent) and is_plain(record)
    ]
    if not starving:
        return ()
    pools_of, taken = _pools(snapshot, policy), Counter[Pool]()
    starving.sort(key=lambda r: (-r.level, r.id not in promised, *_first(r, snapshot, policy), r.submitted_s, r.id))
    ahead = Ahead(snapshot, policy, Clear(snapshot, policy), lambda record: last_start_s(record, snapshot, policy))
    found = []
    for record in starving:
        wanted = pools_of(record.job)
        if all(taken[pool] >= policy.time.drains_per_pool for pool in wanted):
            continue
        # Who waits for a limit of its own team keeps nobody else from having hosts set aside.
        if record.id in promised or ahead(record, wanted):
            taken.update(wanted)
            found.append(record)
    return tuple(found)


def _first(record: JobRecord, snapshot: Snapshot, policy: Policy) -> tuple[int, int]:
    """Pressing gangs come first: those that are soon over, the largest before all, then those that run for long.

    What a large one leaves has room for the others, which a smaller one does not; and they wait for as long as it runs.
    """
    if record.id not in pressing(snapshot, policy):
        return 2, 0
    runs_s = record.job.walltime_estimate_s
    if runs_s is None:
        runs_s = surely_over_s(record, snapshot, policy) - snapshot.now_s
    return (0, -record.job.gpu_milli) if runs_s <= policy.time.starve_after_s else (1, 0)


@remembered
def promises(snapshot: Snapshot, policy: Policy) -> tuple[Promise, ...]:
    """The earlier reservations that still bind this round, in the order of the named gangs."""
    earlier = reservations_by_job(snapshot)
    found = []
    for record in named(snapshot, policy):
        reservation = earlier.get(record.id)
        if reservation is not None:
            often = reservation.broken >= TIER_ONE_ONLY_AFTER
            level = max(2, record.level) if often else record.level
            start_s = max(snapshot.now_s, reservation.planned_start_s)
            found.append(Promise(record, reservation, start_s, level))
    return tuple(found)


class Clear:
    """From when each job that holds capacity is out of the way of a plan for a gang at the latest; now or later.

    That is its sure end by its limit, or when the gang may evict it, if that is sooner.
    """

    def __init__(self, snapshot: Snapshot, policy: Policy) -> None:
        self._now_s, self._policy = snapshot.now_s, policy
        self._guaranteed = {team.id for team in snapshot.teams if team.guarantee}
        self._inside = rights_of(snapshot).inside
        self._known: dict[tuple[JobId, bool], int] = {}

    def __call__(self, record: JobRecord, gang: JobRecord) -> int:
        """When the job has cleared the way of that gang."""
        key = (record.id, self._may_be_evicted(record, gang))
        if key not in self._known:
            self._known[key] = self._clear_s(record, evicted=key[1])
        return self._known[key]

    def _may_be_evicted(self, record: JobRecord, gang: JobRecord) -> bool:
        limits = self._policy.eviction
        recent = sum(time > self._now_s - limits.evictions_window_s for time in record.evictions)
        return (
            record.level < gang.level
            and not never(record)
            and record.id not in self._inside
            and recent < limits.max_evictions
            and self._surely_cheap(record)
        )

    def _surely_cheap(self, record: JobRecord) -> bool:
        """Whether evicting the job surely loses no more than the policy allows, whenever that is."""
        most_s, saves = self._policy.eviction.max_loss_s, record.job.checkpoint
        if most_s is None:
            return True
        return (
            saves is not None
            and grace_s(record.job) >= saves.write_s
            and not too_dear(record, self._now_s, self._policy)
        )

    def _clear_s(self, record: JobRecord, *, evicted: bool) -> int:
        now_s, numbers, grace = self._now_s, self._policy.eviction, grace_s(record.job)
        if record.state is JobState.STOPPING:
            return max(now_s, record.state_since_s + grace) + numbers.clean_s
        begins_s = record.started_s
        if begins_s is None:
            planned_s = now_s if record.planned_s is None else record.planned_s
            begins_s = max(now_s, planned_s + numbers.launch_s)
        limit_s = walltime_limit_s(record, record.job.team in self._guaranteed, self._policy)
        over_s = max(now_s, begins_s) + max(0, limit_s - ran_s(record, now_s)) + grace + numbers.clean_s
        return min(over_s, max(now_s, begins_s + numbers.min_run_s)) if evicted else over_s


def clear_s(record: JobRecord, gang: JobRecord, snapshot: Snapshot, policy: Policy) -> int:
    """From when the job is out of the way of a plan for the gang; `Clear` does this for many."""
    return Clear(snapshot, policy)(record, gang)
