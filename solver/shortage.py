"""What a gang lacks, in amounts, once it is known which lifted demands would let it start."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..model.decision import Reason, ReasonKind, Start
from ..model.host import Host, HostState
from ..model.ids import HostId
from ..model.job import Job, Role
from ..model.job_state import JobState
from ..model.placement import Placement
from ..model.policy import Policy
from ..model.snapshot import JobRecord
from ..model.topology import Layer
from .demand import loss
from .lifts import (
    BUSY,
    CARD_MEMORY,
    CPU,
    HOSTS,
    LABEL,
    LIMIT,
    MEMORY,
    NETWORK,
    OUTRANKED,
    PROTECTED,
    RESERVE,
    SITE,
    TOPOLOGY,
    WINDOW,
    Lift,
)
from .remember import remembered
from .rights import never
from .rooms import depth
from .unusable import at_limit, beside_label, enters_maintenance, reserved
from .variants import LAYER_NAME
from .wording import PEERS, duration
from .world_view import Spot
from .worlds import Worlds


def needs_place(lifts: tuple[Lift, ...]) -> bool:
    """Whether the reason that these lifts stand for speaks of where the gang would be placed with them."""
    return not lifts or needs_cards(lifts) or lifts[0] in (LIMIT, RESERVE, WINDOW, OUTRANKED, HOSTS)


def needs_cards(lifts: tuple[Lift, ...]) -> bool:
    """Whether it speaks of the very ranks and cards there."""
    return lifts == (PROTECTED,) or lifts[:1] == (LABEL,)


def reason_of(
    record: JobRecord,
    lifts: tuple[Lift, ...],
    lifted: Spot | None,
    worlds: Worlds,
    starts: Sequence[Start],
    policy: Policy,
) -> Reason:
    """The reason that these lifts stand for; of two, the first gives the amounts.

    `lifted` is where the gang would be placed with them, where that matters.
    """
    told = None if lifted is None else _placed(record, lifts[0], lifted, worlds, starts)
    reason = of_lifts(told or _demand(record, lifts[0], worlds), lifts)
    if lifts == (PROTECTED,) and lifted is not None and lifted.placement is not None:
        return replace(reason, subject=_protected(record, lifted.placement, worlds, policy))
    if lifts == (BUSY,) and worlds.lower():
        return replace(reason, besides=PEERS)
    return reason


def of_lifts(reason: Reason, lifts: tuple[Lift, ...]) -> Reason:
    """The reason with the families of these lifts, and what all but the first say is short besides."""
    families = tuple(dict.fromkeys(lift.family for lift in lifts))
    return replace(reason, families=families, besides=", ".join(lift.besides for lift in lifts[1:]))


def _protected(record: JobRecord, lifted: Placement, worlds: Worlds, policy: Policy) -> str:
    """The jobs in the way of that placement that may not be preempted now, and why, at most three."""
    others = worlds.in_the_way(record, lifted)
    return _some([f"{other.id} {_protection(other, worlds, policy)}" for other in others])


def _protection(record: JobRecord, worlds: Worlds, policy: Policy) -> str:
    if record.state is not JobState.RUNNING:
        return f"is {record.state}"
    if never(record):
        return "may never be preempted"
    if worlds.covered(record):
        return "is inside the guarantee of its team"
    now_s, limits = worlds.now_s, policy.eviction
    ran_s = now_s - (record.started_s if record.started_s is not None else now_s)
    if ran_s < limits.min_run_s:
        return f"has run for {duration(ran_s)} of at least {duration(limits.min_run_s)}"
    recent = sum(time > now_s - limits.evictions_window_s for time in record.evictions)
    if recent < limits.max_evictions and limits.max_loss_s is not None:
        lost = duration(loss(record, 1, now_s, policy))
        return f"would lose {lost} on each GPU of at most {duration(limits.max_loss_s)}"
    return f"was preempted {recent} times in {duration(limits.evictions_window_s)}"


def _base(record: JobRecord, worlds: Worlds) -> Reason:
    asked, free = record.job.gpu_milli, worlds.free(record.job)
    return Reason(job=record.id, kind=ReasonKind.BUSY, asked=asked, available=min(free, asked), unit="mGPU")


def _placed(record: JobRecord, lift: Lift, lifted: Spot, worlds: Worlds, starts: Sequence[Start]) -> Reason | None:
    """The reason of a rule or of hosts, told by the place that the gang would have; None for any other."""
    base, job = _base(record, worlds), record.job
    if lift is LIMIT:
        return at_limit(base, job, lifted, worlds)
    if lift is RESERVE:
        return reserved(base, lifted, worlds)
    if lift is LABEL and lifted.placement is not None:
        return beside_label(base, job, lifted.placement, worlds)
    if lift is WINDOW:
        return enters_maintenance(base, record, lifted, worlds)
    if lift is OUTRANKED:
        on_hosts = _by_host(starts)
        ahead = [starts[number].job for number in sorted({n for host in lifted.hosts for n in on_hosts.get(host, ())})]
        return replace(base, kind=ReasonKind.OUTRANKED, subject=_some(ahead))
    if lift is HOSTS:
        return replace(base, kind=ReasonKind.HOSTS_UNAVAILABLE, subject=_unavailable(record, lifted, worlds))
    return None


@remembered
def _by_host(starts: Sequence[Start]) -> dict[HostId, list[int]]:
    """The numbers of the starts on each host."""
    found: dict[HostId, list[int]] = {}
    for number, start in enumerate(starts):
        for host in start.placement.hosts:
            found.setdefault(host, []).append(number)
    return found


def _demand(record: JobRecord, lift: Lift, worlds: Worlds) -> Reason:
    """The reason of a demand of the gang itself, or of what is in use."""
    base, job = _base(record, worlds), record.job
    if lift in (CPU, MEMORY, NETWORK):
        return _host_amount(base, job, lift, worlds)
    if lift is TOPOLOGY:
        return _topology(base, job, worlds)
    if lift is SITE:
        sites = ", ".join(sorted(worlds.sites(job)))
        return replace(base, subject=f"{types_of(job)} at {sites}")
    if lift is CARD_MEMORY:
        memory = max(role.request.gpu_memory_mib for role in job.roles)
        return replace(base, subject=f"{types_of(job)} with {memory // 1024} GiB each")
    return _in_use(base, job, lift, worlds)


def _in_use(base: Reason, job: Job, lift: Lift, worlds: Worlds) -> Reason:
    free = worlds.free(job)
    if lift is BUSY and free >= job.gpu_milli > 0:
        return replace(base, kind=ReasonKind.FRAGMENTED, subject=types_of(job), available=free)
    if not job.gpu_milli:
        return _busy_hosts(base, job, worlds)
    return replace(base, subject=types_of(job))


def _busy_hosts(base: Reason, job: Job, worlds: Worlds) -> Reason:
    """A gang without GPUs: the workers that would have room now, each role counted alone."""
    return replace(base, subject="hosts", asked=job.workers, available=_best(job, job.roles, worlds), unit="workers")


def _host_amount(base: Reason, job: Job, lift: Lift, worlds: Worlds) -> Reason:
    """What the workers of the role that lacks most ask of the resource, and what they could have in the best domain."""
    field, unit = _FIELD[lift.name]
    lacks: list[tuple[int, int, int]] = []
    for role in job.roles:
        each = int(getattr(role.request, field))
        best = _best(job, (role,), worlds)
        if each:
            lacks.append((best - role.count, role.count * each, best * each))
    _, asked, available = min(lacks)
    return replace(base, subject=lift.name, asked=asked, available=available, unit=unit)


_FIELD = {"CPU": ("cpu_milli", "milli-cores"), "memory": ("memory_mib", "MiB"), "network": ("network_mbps", "Mbit/s")}


def _topology(base: Reason, job: Job, worlds: Worlds) -> Reason:
    """What the best domain of the required layer could give of what the gang asks there."""
    layer = worlds.confinement(job).required
    # Roles are counted alone, and do not all fit together: that is what is told.
    workers = min(job.workers - 1, _best(job, job.roles, worlds))
    return replace(
        base,
        kind=ReasonKind.TOPOLOGY,
        subject=LAYER_NAME[layer or Layer.NVLINK],
        asked=job.workers,
        available=workers,
        unit="workers",
    )


def _best(job: Job, roles: Sequence[Role], worlds: Worlds) -> int:
    """The most workers of these roles, each counted alone, that one domain of the required layer takes now."""
    if len(roles) == 1:
        return min(roles[0].count, worlds.most(job, roles[0]))
    placer, sites = worlds.view().placer, worlds.sites(job)
    end = depth(placer.confinement(job).required)
    best = 0
    for node in {path[:end] for path in placer.tree(sites).host}:
        workers = 0
        for role in roles:
            rooms = (placer.rooms(role, job.team, name, sites)[node] for name in placer.types(role))
            workers += min(role.count, max(rooms, default=0))
        best = max(best, workers)
    return best


def _unavailable(record: JobRecord, lifted: Spot, worlds: Worlds) -> str:
    """The hosts of that placement which take no work now, and why, at most three."""
    used = set(lifted.hosts)
    named = [f"{host.id} is {_standing(host, worlds)}" for host in worlds.unavailable() if host.id in used]
    named.extend(f"{host} enters maintenance before it is over" for _, host in worlds.windows(record, used))
    return _some(named) or f"broken GPUs of {_some(lifted.hosts)}"


def _standing(host: Host, worlds: Worlds) -> str:
    if host.state is not HostState.READY:
        return host.state.value
    gangs = worlds.held[host.id].gangs if host.id in worlds.held else ()
    return f"held for job {', '.join(sorted(gangs))}, which comes back to it" if gangs else "a spare"


def types_of(job: Job) -> str:
    """The acceptable GPU types in words."""
    names = dict.fromkeys(choice.gpu_type for role in job.roles for choice in role.gpu_types)
    return " or ".join(names) or "any type"


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more
