"""Why a gang could not start even on an empty fleet, with the numbers that prove it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from math import prod

from ..model.decision import Reason, ReasonKind, RuleFamily
from ..model.host import MILLI, Host
from ..model.ids import SiteId
from ..model.job import Job, Role
from ..model.snapshot import JobRecord
from ..model.topology import Layer
from .demand import card_takes
from .empty_fleet import EmptyFleet
from .placing import by_type
from .variants import LAYER_NAME

_MOST_CHOICES = 4_096
"""Choices of a GPU type for each role up to which limits are blamed; only gangs of many roles have more."""

Cause = Callable[[Job, EmptyFleet], Iterator[Reason]]


def cause(record: JobRecord, fleet: EmptyFleet) -> Reason | None:
    """The first demand that the empty fleet cannot meet, or None where no single one can be blamed."""
    found = next((reason for rule in CAUSES for reason in rule(record.job, fleet)), None)
    return found if found is not None or not fleet.pooled(record) else _pools(record.job, fleet)


def _sites(job: Job, fleet: EmptyFleet) -> Iterator[Reason]:
    """Pins and premises that leave no host."""
    if not fleet.kinds_of_hosts(job):
        yield _reason(job, RuleFamily.ELIGIBILITY, _nowhere(job, fleet), 1, 0, "sites")


def _nowhere(job: Job, fleet: EmptyFleet) -> str:
    """Why no allowed site has a host, in words."""
    known = {site.id: site for site in fleet.snapshot.sites}
    unknown = [name for name in job.sites if name not in known]
    if unknown:
        return f"pinned to {', '.join(unknown)}; the fleet has {', '.join(known) or 'no sites'}"
    away = [name for name in job.sites or known if not known[name].on_premises]
    if away and not fleet.sites(job):
        return f"it must stay on premises, and {', '.join(away)} is not"
    return f"no hosts at {', '.join(sorted(fleet.sites(job)))}" if fleet.sites(job) else "the fleet has no sites"


def _types(job: Job, fleet: EmptyFleet) -> Iterator[Reason]:
    """GPU types that no allowed site has."""
    here = {gpu.gpu_type for host in fleet.kinds_of_hosts(job) for gpu in host.gpus}
    anywhere = {gpu.gpu_type for host in fleet.snapshot.hosts for gpu in host.gpus}
    for role in _gpu_roles(job):
        asked = [choice.gpu_type for choice in role.gpu_types]
        if not here.intersection(asked or here):
            named = " or ".join(asked) or "GPU"
            if anywhere.intersection(asked or anywhere):
                where = ", ".join(sorted(fleet.sites(job)))
                yield _reason(job, RuleFamily.ELIGIBILITY, f"{named} only outside {where}", 1, 0, "sites")
            else:
                yield _reason(job, RuleFamily.ELIGIBILITY, named, 1, 0, "GPU types")


def _card_memory(job: Job, fleet: EmptyFleet) -> Iterator[Reason]:
    """More memory per GPU than any acceptable card has."""
    for role in _gpu_roles(job):
        cards = [
            (gpu.memory_mib, gpu.gpu_type)
            for host in fleet.kinds_of_hosts(job)
            for gpu in host.gpus
            if role.throughput_milli(gpu.gpu_type) is not None
        ]
        most, name = max(cards)
        if role.request.gpu_memory_mib > most:
            subject = f"of memory per GPU, and the largest acceptable card is an {name}"
            yield _reason(job, RuleFamily.ELIGIBILITY, subject, role.request.gpu_memory_mib, most, "MiB")


def _cards_per_worker(job: Job, fleet: EmptyFleet) -> Iterator[Reason]:
    """More GPUs per worker than any host has of one kind."""
    for role in _gpu_roles(job):
        most = max(_cards(role, host) for host in fleet.kinds_of_hosts(job))
        if role.request.whole_gpus > most:
            subject = f"of one kind on one host for each {role.name}"
            yield _reason(job, RuleFamily.CAPACITY, subject, role.request.gpu_milli, most * MILLI, "mGPU")


def _host_amounts(job: Job, fleet: EmptyFleet) -> Iterator[Reason]:
    """More CPU, memory or network per worker than any host with its cards has."""
    for role in job.roles:
        request = role.request
        hosts = [host for host in fleet.kinds_of_hosts(job) if _cards(role, host) >= max(1, request.whole_gpus)]
        if not request.gpu_milli:
            hosts = fleet.kinds_of_hosts(job)
        on = " with the GPUs it asks" if request.gpu_milli else ""
        for what, asked, unit, most in (
            ("CPU", request.cpu_milli, "milli-cores", max(host.cpu_milli for host in hosts)),
            ("memory", request.memory_mib, "MiB", max(host.memory_mib for host in hosts)),
            ("network", request.network_mbps, "Mbit/s", max(host.network_mbps for host in hosts)),
        ):
            if asked > most:
                yield _reason(job, RuleFamily.CAPACITY, f"of {what} on one host{on} per {role.name}", asked, most, unit)


def _workers(job: Job, fleet: EmptyFleet) -> Iterator[Reason]:
    """More workers of one role than all allowed sites, or than any one domain that the gang may choose, can hold."""
    for role in job.roles:
        everywhere = fleet.room(job, role, anywhere=True)
        unit = f"workers of role {role.name}" if len(job.roles) > 1 else "workers"
        if everywhere < role.count:
            yield _reason(job, RuleFamily.CAPACITY, "in the whole fleet", role.count, everywhere, unit)
    layer = fleet.placer.confinement(job).required
    if layer is not None:
        for role in job.roles:
            best = fleet.room(job, role)
            if best < role.count:
                unit = f"workers of role {role.name}" if len(job.roles) > 1 else "workers"
                family = RuleFamily.CAPACITY if layer is Layer.SITE else RuleFamily.TOPOLOGY
                yield _reason(job, family, f"inside one {LAYER_NAME[layer]}", role.count, best, unit)


def _together(job: Job, fleet: EmptyFleet) -> Iterator[Reason]:
    """Roles that fit one by one, and ask together for more than any one domain has."""
    layer = fleet.placer.confinement(job).required
    domains = fleet.domains(job)
    inside = f"for all roles together inside one {LAYER_NAME[layer]}" if layer else "for all roles together"
    members: dict[tuple[str, ...], list[Host]] = {domain: [] for domain in domains}
    tree = fleet.placer.tree(fleet.sites(job))
    for host in fleet.hosts(job):
        path = tree.path[host.id]
        members[next(path[:end] for end in range(len(path) + 1) if path[:end] in members)].append(host)
    counted = [(role.count, role.request) for role in job.roles]
    for what, unit, asked, most in (
        ("", "mGPU", job.gpu_milli, max(sum(h.gpu_milli for h in hosts) for hosts in members.values())),
        (
            "of CPU ",
            "milli-cores",
            sum(count * request.cpu_milli for count, request in counted),
            max(sum(h.cpu_milli for h in hosts) for hosts in members.values()),
        ),
        (
            "of memory ",
            "MiB",
            sum(count * request.memory_mib for count, request in counted),
            max(sum(h.memory_mib for h in hosts) for hosts in members.values()),
        ),
    ):
        if asked > most:
            yield _reason(job, RuleFamily.CAPACITY, what + inside, asked, most, unit)


def _limits(job: Job, fleet: EmptyFleet) -> Iterator[Reason]:
    """Room only on types of which the team, or one above it, may not hold that many."""
    ledger = fleet.placer.books.ledger
    roomy = [fleet.roomy(job, role) for role in job.roles]
    if not ledger.limited or prod(map(len, roomy)) > _MOST_CHOICES:
        return
    choices = [by_type(job, types) for types in product(*roomy)]
    exceeded = [(amounts, next(ledger.exceeded(job.team, amounts), None)) for amounts in choices]
    if exceeded and all(key is not None for _, key in exceeded):
        # Of several choices the one that is nearest to what the team may hold.
        short = [(amounts[key[1]] - ledger.limit(key), key, amounts[key[1]]) for amounts, key in exceeded if key]
        _, (team, gpu_type), milli = min(short)
        most = ledger.limit((team, gpu_type))
        subject = f"team {team} may hold {most / MILLI:g} {gpu_type}"
        yield _reason(job, RuleFamily.QUOTA, subject, milli, most, "mGPU")


def _pools(job: Job, fleet: EmptyFleet) -> Reason | None:
    """Room only on GPUs of which reserved pools leave too few to level 1."""
    nodes: dict[tuple[str, ...], list[tuple[str, ...]]] = {}
    for node in fleet.domains(job):
        nodes.setdefault(node[:1], []).append(node)
    short = list[tuple[int, int, str, int, str]]()
    for at, domains in nodes.items():
        sites = [fleet.site_at[name] for name in at] or sorted(fleet.sites(job))
        roomy = [
            [name for name in fleet.placer.types(role) if fleet.room_on(job, role, name, domains) >= role.count]
            for role in job.roles
        ]
        if prod(map(len, roomy)) > _MOST_CHOICES:
            return None
        for types in product(*roomy):
            where = ", ".join(sites)
            beside = _beside_pools(job, types, sites, fleet)
            lacks = [(milli - left, milli, name, left, where) for name, milli, left in beside]
            if not lacks:
                return None
            short.append(max(lacks))
    if not short:
        return None
    _, milli, gpu_type, left, where = min(short)
    return _reason(job, RuleFamily.RESERVED, f"{gpu_type} at {where}", milli, left, "mGPU")


def _beside_pools(
    job: Job, types: tuple[str | None, ...], sites: list[SiteId], fleet: EmptyFleet
) -> Iterator[tuple[str, int, int]]:
    """The types of which the gang asks more, in milli-GPU, than pools leave at all these sites together."""
    for name, milli in by_type(job, types).items():
        left = [fleet.left(site, name) for site in sites]
        total = sum(each for each in left if each is not None)
        if None not in left and milli > total:
            yield name, milli, total


CAUSES: tuple[Cause, ...] = (
    _sites,
    _types,
    _card_memory,
    _cards_per_worker,
    _host_amounts,
    _workers,
    _together,
    _limits,
)


def _gpu_roles(job: Job) -> list[Role]:
    return [role for role in job.roles if role.request.gpu_milli]


def _cards(role: Role, host: Host) -> int:
    """Cards of the kind of which the host has most, among those that serve the role."""
    kinds: dict[tuple[str, int], int] = {}
    for gpu in host.gpus:
        if role.throughput_milli(gpu.gpu_type) is not None and card_takes(role.request, gpu.memory_mib):
            kind = (gpu.gpu_type, gpu.memory_mib)
            kinds[kind] = kinds.get(kind, 0) + 1
    return max(kinds.values(), default=0)


def _reason(job: Job, family: RuleFamily, subject: str, asked: int, available: int, unit: str) -> Reason:
    return Reason(
        job=job.id,
        kind=ReasonKind.NEVER_FITS,
        families=(family,),
        subject=subject,
        asked=asked,
        available=available,
        unit=unit,
    )
