"""Admission: could this gang ever start here, and if not, which request near it could (RULES 10)."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from ..model.decision import Reason
from ..model.job import Job, Role, WorkerRequest
from ..model.policy import Policy
from ..model.snapshot import Snapshot
from .advice import Advice
from .causes import cause
from .covered import Covered, must_be_inside
from .empty_fleet import EmptyFleet
from .variants import Variant, any_site, fewer_gpus, fewer_workers, on_type, other_types, wider_layers, with_request
from .wording import amount, sentence


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
    return Admissions(snapshot, policy).admit(job)


class Admissions:
    """`admit` for many jobs of one fleet."""

    def __init__(self, snapshot: Snapshot, policy: Policy) -> None:
        self._fleet = EmptyFleet(snapshot, policy)
        self._causes: dict[tuple[object, ...], Reason | None] = {}
        self._near: dict[tuple[object, ...], str] = {}
        self._covered = Covered(snapshot)
        self._limited = any(team.limit for team in snapshot.teams)
        self._advice = Advice(snapshot, policy, self._fleet)

    def admit(self, job: Job) -> Admission:
        """As the function of that name."""
        asked = job
        if must_be_inside(job) and self.never_fits(job) is None and self._covered.never(job) is None:
            asked = self._covered.narrowed(job)
        reason = self.never_fits(asked)
        if reason is not None:
            nearest = self.nearest(asked)
            helps = (nearest,) if nearest else ()
            reason = replace(reason, helps=helps)
            reason = replace(reason, sentence=sentence(reason))
            return Admission(accepted=False, reason=reason, nearest=nearest, warnings=self._advice(job))
        reason = self._covered.never(job)
        if reason is not None:
            nearest = self._inside(job) or reason.helps[0]
            reason = replace(reason, helps=tuple(dict.fromkeys((nearest, *reason.helps))))
            reason = replace(reason, sentence=sentence(reason))
            return Admission(accepted=False, reason=reason, nearest=nearest, warnings=self._advice(job))
        return Admission(accepted=True, warnings=self._advice(job))

    def never_fits(self, job: Job) -> Reason | None:
        """Why the gang can never start; None where it can, or where that cannot be ruled out."""
        shape = self._shape(job)
        if shape not in self._causes:
            self._causes[shape] = None if self._fleet.fits(job) else cause(job, self._fleet)
        reason = self._causes[shape]
        return None if reason is None else replace(reason, job=job.id)

    def _shape(self, job: Job) -> tuple[object, ...]:
        team = job.team if self._limited else None
        return job.roles, job.topology, job.cross_site, job.off_premises, job.sites, job.tier <= 2, team

    def _inside(self, job: Job) -> str:
        """The most of the job that its team's guarantee could cover, in words; "" for none."""
        for role in job.roles:
            found = most_workers(job, role, lambda part: self._covered.fits(part) and self._fleet.fits(part))
            if found is not None and self._covered.fits(found.job):
                return found.text
        return ""

    def nearest(self, job: Job) -> str:
        """The text of the first variant that fits on the empty fleet, "" where none does."""
        shape = self._shape(job)
        if shape not in self._near:
            fitting = (variant.text for variant in self._variants(job) if self._fleet.fits(variant.job))
            self._near[shape] = next(fitting, "")
        return self._near[shape]

    def _variants(self, job: Job) -> Iterator[Variant]:
        types = tuple(sorted({gpu.gpu_type for host in self._fleet.snapshot.hosts for gpu in host.gpus}))
        for role in job.roles:
            for choice in role.gpu_types:
                for name in difflib.get_close_matches(choice.gpu_type, types, n=1, cutoff=0.5):
                    yield Variant(f"on {name}", on_type(job, name))
        yield from self._capped(job)
        yield from self._shrunk(job)
        yield from wider_layers(job, self._fleet.placer.confinement(job).required)
        yield from fewer_gpus(job, halving=False)
        yield from other_types(job, types)
        somewhere = any_site(job)
        if somewhere is not None:
            yield Variant("at any site, off premises too", somewhere)

    def _capped(self, job: Job) -> Iterator[Variant]:
        """Each worker's amounts cut to the most that one host or card of the allowed sites has."""
        hosts = self._fleet.hosts(job)
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

    def _shrunk(self, job: Job) -> Iterator[Variant]:
        """The most workers of one role that fit, found by halving the interval: fewer workers never fit worse."""
        for role in job.roles:
            found = most_workers(job, role, self._fleet.fits)
            if found is not None:
                yield found


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
