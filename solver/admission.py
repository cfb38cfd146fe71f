"""Admission: could this gang ever start here, and if not, which request near it could (RULES 10)."""

from __future__ import annotations

import difflib
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice

from ..model.decision import Reason, RuleFamily
from ..model.host import Host
from ..model.job import Job, Preemptible, Role, WorkerRequest
from ..model.policy import Policy
from ..model.snapshot import JobRecord, Snapshot
from .advice import Advice
from .causes import cause
from .covered import BY_HIGHER, Covered
from .empty_fleet import EmptyFleet
from .rights import only_inside
from .sizes import least
from .variants import (
    ANYTIME,
    Variant,
    any_site,
    fewer_gpus,
    fewer_workers,
    on_type,
    other_types,
    wider_layers,
    with_request,
)
from .wording import amount, sentence

_MOST_KNOWN = 50_000
"""Shapes of which the verdict is remembered, before all are forgotten."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """Whether a job may join the queue.

    `reason` says why not; `nearest` is the nearest request that could start ("with 80 GiB of memory per GPU"), empty
    where none was found; `warnings` are advice and refuse nothing.
    """

    accepted: bool
    reason: Reason | None = None
    nearest: str = ""
    warnings: tuple[str, ...] = ()


def admit(job: Job, snapshot: Snapshot, policy: Policy) -> Admission:
    """Tries the gang on the emptied fleet: every host ready, whole and empty.

    A gang of several roles that is not placed there is refused only where the numbers prove that it cannot be.
    """
    known = Admissions(snapshot, policy)
    reason = known.impossible(least(JobRecord(job=job, submitted_s=0)))
    warnings = Advice(snapshot, policy, known.fleet)(job)
    if reason is None:
        return Admission(accepted=True, warnings=warnings)
    reason = replace(reason, sentence=sentence(reason))
    return Admission(accepted=False, reason=reason, nearest=next(iter(reason.helps), ""), warnings=warnings)


_kept: deque[Admissions] = deque(maxlen=1)
"""What was found out about the fleet last."""


@contextmanager
def lent(snapshot: Snapshot, policy: Policy) -> Iterator[Admissions]:
    """What is known of the empty fleet: from the last time, where only work, states and usage differ since then."""
    try:
        known = _kept.pop()
    except IndexError:
        known = Admissions(snapshot, policy)
    if not known.hold_for(snapshot, policy):
        known = Admissions(snapshot, policy)
    yield known
    # Nobody else has it meanwhile, and of several only the last one stays.
    _kept.append(known)


class Admissions:
    """Whether jobs of one fleet can ever start: the same for all snapshots that differ in what comes and goes alone."""

    def __init__(self, snapshot: Snapshot, policy: Policy) -> None:
        self.fleet = EmptyFleet(snapshot, policy)
        self._hosts, self._sites, self._policy = snapshot.hosts, snapshot.sites, policy
        self._teams = _lasting(snapshot)
        self._causes: dict[tuple[object, ...], Reason | None] = {}
        self._near: dict[tuple[object, ...], tuple[str, ...]] = {}
        self._covered = Covered(self.fleet.snapshot)
        self._limited = any(team.limit or team.guarantee for team in snapshot.teams)

    def hold_for(self, snapshot: Snapshot, policy: Policy) -> bool:
        """Whether that fleet is the same when it is empty, with the same limits, guarantees and pools."""
        return (
            len(self._causes) + len(self._near) < _MOST_KNOWN
            and len(snapshot.hosts) == len(self._hosts)
            and policy == self._policy
            and snapshot.sites == self._sites
            and _lasting(snapshot) == self._teams
            and all(a is b or _same(a, b) for a, b in zip(snapshot.hosts, self._hosts, strict=True))
        )

    def impossible(self, record: JobRecord) -> Reason | None:
        """Why the gang can never start, with what near it could; None where it can, or where that is not proven.

        One that is never to be preempted has to fit on what a guarantee covers.
        """
        reason = self.never_fits(record)
        if reason is None:
            return None
        return replace(reason, job=record.id, helps=self._helps(record, reason))

    def never_fits(self, record: JobRecord) -> Reason | None:
        """As `impossible`, without what would help."""
        reason = self._fails(record)
        if reason is not None or not only_inside(record):
            return reason
        reason = self._covered.never(record.job)
        if reason is not None:
            return reason
        failed = self._fails(replace(record, job=self._covered.narrowed(record.job)))
        for covered in self._covered.choices(record.job):
            reason = self._fails(replace(record, job=covered))
            if reason is None:
                return None
            failed = failed or reason
        return None if failed is None else self._covered.only(record.job, failed)

    def _fails(self, record: JobRecord) -> Reason | None:
        """The demand that the empty fleet cannot meet, guarantees aside; None where none is proven."""
        shape = self._shape(record)
        if shape not in self._causes:
            self._causes[shape] = None if self.fleet.fits(record) else cause(record, self.fleet)
        return self._causes[shape]

    def _shape(self, record: JobRecord) -> tuple[object, ...]:
        job = record.job
        team = job.team if self._limited else None
        asks = job.roles, job.topology, job.cross_site, job.off_premises, job.sites, job.tier <= 2, team
        return *asks, self.fleet.pooled(record), only_inside(record)

    def _fits(self, record: JobRecord) -> bool:
        """Whether the gang fits on the empty fleet, inside a guarantee where it must be."""
        if not only_inside(record):
            return self.fleet.fits(record)
        choices = self._covered.choices(record.job)
        return any(self.fleet.fits(replace(record, job=covered)) for covered in choices)

    def _helps(self, record: JobRecord, reason: Reason) -> tuple[str, ...]:
        """The first variant that fits on the empty fleet, and what rights would do; nothing where none does."""
        shape = self._shape(record)
        if shape not in self._near:
            fitting = (
                variant.text for variant in self._variants(record) if self._fits(replace(record, job=variant.job))
            )
            found = [*islice(fitting, 1)]
            for text, preemptible in self._rights(record, reason):
                if self._fits(replace(record, job=replace(record.job, preemptible=preemptible))):
                    found.append(text)
            self._near[shape] = tuple(found)
        return self._near[shape]

    def _rights(self, record: JobRecord, reason: Reason) -> Iterator[tuple[str, Preemptible]]:
        """Ways to be preempted with which other rules would hold for it."""
        if only_inside(record):
            yield BY_HIGHER, Preemptible.BY_HIGHER
        if RuleFamily.RESERVED in reason.families:
            yield ANYTIME, Preemptible.ANYTIME

    def _variants(self, record: JobRecord) -> Iterator[Variant]:
        job = record.job
        types = tuple(sorted({gpu.gpu_type for host in self.fleet.snapshot.hosts for gpu in host.gpus}))
        for role in job.roles:
            for choice in role.gpu_types:
                for name in difflib.get_close_matches(choice.gpu_type, types, n=1, cutoff=0.5):
                    yield Variant(f"on {name}", on_type(job, name))
        yield from self._capped(job)
        yield from self._shrunk(record)
        yield from wider_layers(job, self.fleet.placer.confinement(job).required)
        yield from fewer_gpus(job, halving=False)
        yield from other_types(job, types)
        somewhere = any_site(job)
        if somewhere is not None:
            yield Variant("at any site, off premises too", somewhere)

    def _capped(self, job: Job) -> Iterator[Variant]:
        """Each worker's amounts cut to the most that one host or card of the allowed sites has."""
        hosts = self.fleet.kinds_of_hosts(job)
        if not hosts:
            return
        cards = [
            gpu.memory_mib
            for host in hosts
            for gpu in host.gpus
            if any(role.request.gpu_milli and role.throughput_milli(gpu.gpu_type) is not None for role in job.roles)
        ]
        for field, unit, what, values in (
            ("gpu_memory_mib", "MiB", "of memory per GPU", cards),
            ("cpu_milli", "milli-cores", "per worker", [host.cpu_milli for host in hosts]),
            ("memory_mib", "MiB", "of memory per worker", [host.memory_mib for host in hosts]),
            ("network_mbps", "Mbit/s", "per worker", [host.network_mbps for host in hosts]),
        ):
            for most in sorted(set(values), reverse=True):
                changed = with_request(job, _cap(field, most))
                if changed is not None:
                    yield Variant(f"with {amount(most, unit)} {what}", changed)

    def _shrunk(self, record: JobRecord) -> Iterator[Variant]:
        """The most workers of one role that fit, found by halving the interval: fewer workers never fit worse."""
        for role in record.job.roles:
            found = most_workers(record.job, role, lambda job: self._fits(replace(record, job=job)))
            if found is not None:
                yield found


def _lasting(snapshot: Snapshot) -> list[tuple[object, ...]]:
    """What of the teams bears on admission."""
    return [(team.id, team.parent, team.limit, team.guarantee) for team in snapshot.teams]


def _same(one: Host, other: Host) -> bool:
    """Whether the hosts are equal once they are ready and empty; a card that broke or was mended says no."""
    return (
        one.id == other.id
        and one.gpus == other.gpus
        and (one.cpu_milli, one.memory_mib, one.network_mbps) == (other.cpu_milli, other.memory_mib, other.network_mbps)
        and one.path == other.path
    )


def most_workers(job: Job, role: Role, fits: Callable[[Job], bool]) -> Variant | None:
    """The variant with most workers of the role, below what it asks, that fits; None where not even one does."""
    low, high, found = 1, role.count - 1, None
    while low <= high:
        middle = (low + high) // 2
        variant = fewer_workers(job, role, middle)
        if variant is None or fits(variant.job):
            found = variant or found
            low = middle + 1
        else:
            high = middle - 1
    return found


def _cap(field: str, most: int) -> Callable[[WorkerRequest], WorkerRequest]:
    def change(request: WorkerRequest) -> WorkerRequest:
        asked: int = getattr(request, field)
        return replace(request, **{field: most}) if asked > most else request

    return change
