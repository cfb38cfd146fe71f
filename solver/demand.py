"""What each waiting gang asks of the topology, derived once from the job and the fleet (RULES 4).

Pure and without a solver: the encoder, the greedy and the verifier read the same derived demands, and state the rules
about them independently.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from ..model.host import MILLI, Gpu, Host, HostState
from ..model.ids import HostId, JobId, SiteId, TeamId
from ..model.job import Job, Role, Strictness, WorkerRequest
from ..model.job_state import JobState, StopCause
from ..model.limits import grace_s, walltime_limit_s
from ..model.policy import Policy
from ..model.snapshot import JobRecord, Snapshot
from ..model.topology import Layer
from .remember import remembered
from .rights import Runner, may_evict, never, rights_of


@dataclass(frozen=True, slots=True)
class Confinement:
    """The layers in which all workers of a gang must (required) or would rather (preferred) share one domain.

    At most one required layer matters, the narrowest: domains of narrower layers lie inside those of wider ones.
    None allows a gang across sites.
    """

    required: Layer | None
    preferred: tuple[Layer, ...]


def confinement(job: Job, snapshot: Snapshot, policy: Policy) -> Confinement:
    """The gang's own constraints; without any, one host if it fits on one, else one site with one rack preferred.

    A gang leaves its site only where policy and job both allow it. `Confinements` does this for many gangs of a round.
    """
    across = policy.cross_site and job.cross_site
    if not job.topology:
        if any(fits_empty(job, host) for host in snapshot.hosts):
            return Confinement(Layer.HOST, ())
        preferred = (Layer.RACK, Layer.ZONE, Layer.SITE) if across else (Layer.RACK, Layer.ZONE)
        return Confinement(None if across else Layer.SITE, preferred)
    required = [c.layer for c in job.topology if c.strictness is Strictness.REQUIRED]
    if not across:
        required.append(Layer.SITE)
    narrowest = min(required, key=lambda layer: layer.width, default=None)
    wanted = {c.layer for c in job.topology if c.strictness is Strictness.PREFERRED}
    if any(role.parallelism is not None and role.parallelism.data > 1 for role in job.roles):
        wanted.add(Layer.ZONE)
    # A preferred layer at or above the required one is always met and costs nothing.
    limit = len(Layer) if narrowest is None else narrowest.width
    return Confinement(narrowest, tuple(layer for layer in Layer if layer in wanted and layer.width < limit))


def fits_empty(job: Job, host: Host) -> bool:
    """Whether every worker of the gang fits on this host with nothing else on it (its state does not matter)."""
    requests = [(role, role.request) for role in job.roles]
    if (
        sum(role.count * request.cpu_milli for role, request in requests) > host.cpu_milli
        or sum(role.count * request.memory_mib for role, request in requests) > host.memory_mib
        or sum(role.count * request.network_mbps for role, request in requests) > host.network_mbps
        or job.gpu_milli > host.gpu_milli
    ):
        return False
    cards = [_EmptyCard(CardKind.of(gpu), MILLI, gpu.memory_mib) for gpu in host.gpus if gpu.healthy]
    roles = sorted((role for role in job.roles if role.request.gpu_milli), key=lambda role: -role.request.gpu_milli)
    return _roles_fit(roles, cards)


@dataclass(frozen=True, slots=True, order=True)
class CardKind:
    """Cards of one host that nothing tells apart: equal type and equal memory (MiB)."""

    gpu_type: str
    memory_mib: int

    @staticmethod
    def of(gpu: Gpu) -> CardKind:
        """The kind of that card."""
        return _kind(gpu.gpu_type, gpu.memory_mib)


@cache
def _kind(gpu_type: str, memory_mib: int) -> CardKind:
    return CardKind(gpu_type, memory_mib)


def card_takes(request: WorkerRequest, memory_mib: int) -> bool:
    """Whether an empty card of that memory can serve the request."""
    return request.gpu_memory_mib <= memory_mib


def card_memory(request: WorkerRequest, memory_mib: int) -> int:
    """MiB that the request books on one card: all of it for whole cards, else what it asks or its fraction."""
    if not request.fractional:
        return memory_mib
    return request.gpu_memory_mib or request.gpu_milli * memory_mib // MILLI


@dataclass(frozen=True, slots=True)
class _EmptyCard:
    kind: CardKind
    milli: int
    memory_mib: int


def _roles_fit(roles: list[Role], cards: list[_EmptyCard]) -> bool:
    """Exact for whole cards; first fit decreasing for fractions, which never says yes to what does not fit."""
    if not roles:
        return True
    for gpu_type in sorted({card.kind.gpu_type for card in cards}):
        if roles[0].throughput_milli(gpu_type) is not None:
            left = _take(roles[0], gpu_type, cards)
            if left is not None and _roles_fit(roles[1:], left):
                return True
    return False


def _take(role: Role, gpu_type: str, cards: list[_EmptyCard]) -> list[_EmptyCard] | None:
    """The cards left after all workers of the role took theirs of that type; None where they do not fit."""
    request, left = role.request, list(cards)
    for _ in range(role.count):
        taken = _share(request, gpu_type, left) if request.fractional else _whole(request, gpu_type, left)
        if not taken:
            return None
    return left


def _whole(request: WorkerRequest, gpu_type: str, left: list[_EmptyCard]) -> bool:
    kinds = Counter(card.kind for card in left if card.kind.gpu_type == gpu_type and card.milli == MILLI)
    # The kind with the least memory that serves: larger cards stay for larger requests.
    for kind in sorted(kinds):
        if kinds[kind] >= request.whole_gpus and card_takes(request, kind.memory_mib):
            for _ in range(request.whole_gpus):
                left.remove(_EmptyCard(kind, MILLI, kind.memory_mib))
            return True
    return False


def _share(request: WorkerRequest, gpu_type: str, left: list[_EmptyCard]) -> bool:
    for number, card in enumerate(left):
        memory = card_memory(request, card.kind.memory_mib)
        if card.kind.gpu_type == gpu_type and card.milli >= request.gpu_milli and card.memory_mib >= memory:
            left[number] = _EmptyCard(card.kind, card.milli - request.gpu_milli, card.memory_mib - memory)
            return True
    return False


@remembered
def candidates(snapshot: Snapshot) -> tuple[JobRecord, ...]:
    """The waiting gangs that this round may start: queued, and not in a back-off."""
    return tuple(
        record for record in snapshot.jobs if record.state is JobState.QUEUED and record.not_before_s <= snapshot.now_s
    )


def placeable(host: Host) -> bool:
    """Whether the host takes new work of anybody: ready, and not a spare held back for replacing failed hosts."""
    return host.state is HostState.READY and not host.spare


def replacing(record: JobRecord, now_s: int) -> bool:
    """Whether the waiting gang lost a host so lately that the others, and spares, are held for it."""
    return record.state is JobState.QUEUED and now_s < record.replacing_until_s and record.resized_to is None


def _awaited(record: JobRecord, now_s: int) -> bool:
    """Whether hosts are held for the gang: it lost one, or it left or is leaving to return to them."""
    leaves = record.state is JobState.STOPPING and record.stop_cause is StopCause.REQUEUED
    return (record.state is JobState.QUEUED or leaves) and now_s < record.replacing_until_s


def comes_back(record: JobRecord, now_s: int) -> bool:
    """Whether hosts are held for the gang because it left, or is leaving, to return to them."""
    return record.resized_to is not None and _awaited(record, now_s)


@dataclass(frozen=True, slots=True)
class Held:
    """Whom a host is held for: gangs of one level that lost a host of theirs, or return to it."""

    level: int
    gangs: frozenset[JobId]


@remembered
def held_back(snapshot: Snapshot) -> dict[HostId, Held]:
    """The hosts that are held for gangs that lost one of theirs, or return to them; of several the highest level."""
    held: dict[HostId, Held] = {}
    for record in snapshot.jobs:
        for name in record.replacing if _awaited(record, snapshot.now_s) else ():
            level = max(record.level, held[name].level if name in held else 0)
            others = held[name].gangs if name in held and held[name].level == level else frozenset()
            held[name] = Held(level, others | {record.id} if record.level == level else others)
    return held


def open_to(host: Host, record: JobRecord, held: Mapping[HostId, Held], now_s: int) -> bool:
    """Whether the host takes that gang: spares replace lost hosts only, and a held host is for its gang or above it."""
    if host.state is not HostState.READY or (host.spare and not replacing(record, now_s)):
        return False
    owner = held.get(host.id)
    return owner is None or record.id in owner.gangs or owner.level < record.level


@remembered
def usable(snapshot: Snapshot) -> tuple[Host, ...]:
    """The hosts that may take some waiting gang: the placeable ones, and spares while a gang replaces a lost host."""
    spares = any(replacing(record, snapshot.now_s) for record in snapshot.jobs)
    return tuple(
        host for host in snapshot.hosts if placeable(host) or (spares and host.spare and host.state is HostState.READY)
    )


def allowed_sites(job: Job, snapshot: Snapshot, policy: Policy) -> frozenset[SiteId]:
    """Sites the gang may run on: its pins, and on premises only for production unless its job says otherwise."""
    on_premises_only = job.off_premises is False or (
        job.off_premises is None and job.tier <= 2 and not policy.production_off_premises
    )
    return frozenset(
        site.id
        for site in snapshot.sites
        if (not job.sites or site.id in job.sites) and (site.on_premises or not on_premises_only)
    )


@remembered
def victims(snapshot: Snapshot, policy: Policy) -> tuple[JobRecord, ...]:
    """The running jobs that this round may preempt (RULES 3), where some candidate may evict them, inside or not."""
    rights = rights_of(snapshot)
    starters = {
        rights.starter(record, inside=inside) for record in candidates(snapshot) for inside in rights.ways(record)
    }
    # Most rounds have few kinds of either, however many jobs they have.
    known: dict[Runner, bool] = {}

    def outranked(record: JobRecord) -> bool:
        runner = rights.runner(record)
        if runner not in known:
            known[runner] = any(may_evict(starter, runner) for starter in starters)
        return known[runner]

    return tuple(record for record in snapshot.jobs if _evictable(record, snapshot.now_s, policy) and outranked(record))


def _evictable(record: JobRecord, now_s: int, policy: Policy) -> bool:
    limits = policy.eviction
    recent = sum(time > now_s - limits.evictions_window_s for time in record.evictions)
    return (
        record.state is JobState.RUNNING
        and not never(record)
        and record.started_s is not None
        and now_s - record.started_s >= limits.min_run_s
        and recent < limits.max_evictions
        and not too_dear(record, now_s, policy)
    )


def too_dear(record: JobRecord, now_s: int, policy: Policy) -> bool:
    """Whether evicting the job now would lose more of each of its GPUs than the policy allows."""
    most_s = policy.eviction.max_loss_s
    return most_s is not None and loss(record, 1, now_s, policy) > most_s


def loss(record: JobRecord, milli: int, now_s: int, policy: Policy) -> int:
    """What preempting the job now costs, in mGPU*s: work lost, restart, and the idle handover of `milli` milli-GPU."""
    checkpoint, started = record.job.checkpoint, record.started_s or now_s
    grace = grace_s(record.job)
    if checkpoint is None:
        work = now_s - started
    elif grace >= checkpoint.write_s:
        work = 0
    elif record.progress.last_checkpoint_s is not None:
        work = now_s - max(started, record.progress.last_checkpoint_s)
    else:
        work = checkpoint.interval_s // 2
    restart = checkpoint.restart_s if checkpoint else 0
    handover = grace + policy.eviction.clean_s + policy.eviction.launch_s
    return milli * (max(0, work) + restart + handover)


def surely_over_s(record: JobRecord, snapshot: Snapshot, policy: Policy) -> int:
    """When (seconds since the epoch) the hosts of the gang are clean again at the latest, if it starts now."""
    guaranteed = record.job.team in _guaranteed(snapshot)
    running = walltime_limit_s(record, guaranteed, policy) + grace_s(record.job)
    return snapshot.now_s + policy.eviction.launch_s + running + policy.eviction.clean_s


@remembered
def _guaranteed(snapshot: Snapshot) -> frozenset[TeamId]:
    """The teams that have a guarantee of their own."""
    return frozenset(team.id for team in snapshot.teams if team.guarantee)


def ends_before(host: Host, now_s: int, over_s: int) -> bool:
    """Whether work that is over at `over_s` is gone from the host before its next maintenance window."""
    return all(window.end_s <= now_s or over_s <= window.start_s for window in host.windows)
