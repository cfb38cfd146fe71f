"""Jobs that start only inside a guarantee: what they may take, what the guarantee lacks for them, what would do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import islice, product

from ..model.decision import Reason, ReasonKind, RuleFamily, Start
from ..model.host import MILLI
from ..model.job import GpuTypeChoice, Job, Role
from ..model.snapshot import JobRecord, Snapshot
from .rights import Key, only_inside, rights_of

BY_HIGHER = "with preemptible: by_higher"
"""What lets any such job start like others."""

_MOST_CHOICES = 256
"""Choices of a GPU type for each role that are looked at."""


def must_be_inside(job: Job) -> bool:
    """Whether the job, not demoted, starts only inside a guarantee."""
    return only_inside(JobRecord(job=job, submitted_s=0))


class Covered:
    """The guarantees of one snapshot, and what of them is left beside the given starts."""

    def __init__(self, snapshot: Snapshot, starts: Iterable[Start] = ()) -> None:
        self._rights = rights_of(snapshot)
        self._left = Counter(self._rights.left)
        jobs = {record.id: record.job for record in snapshot.jobs}
        for start in starts:
            if start.inside_guarantee:
                self._left.subtract(self._rights.counted(jobs[start.job], start.placement))

    def narrowed(self, job: Job) -> Job:
        """The job with its GPU roles on types alone of which a guarantee covers the role."""
        return replace(job, roles=tuple(self._narrowed(job, role) for role in job.roles))

    def _narrowed(self, job: Job, role: Role) -> Role:
        choices = tuple(
            GpuTypeChoice(gpu_type=name, throughput_milli=role.throughput_milli(name) or 1)
            for name in self._types(job, role)
            if self._rights.guaranteed(job.team, name) >= role.gpu_milli
        )
        return replace(role, gpu_types=choices) if choices else role

    def _types(self, job: Job, role: Role) -> list[str]:
        """The acceptable types for which the job's team has a holder."""
        names = sorted({gpu_type for _, gpu_type in self._rights.guarantee}) if role.request.gpu_milli else []
        return [n for n in names if role.throughput_milli(n) is not None and self._rights.holder(job.team, n)]

    def never(self, job: Job) -> Reason | None:
        """Why the job can never start inside, whatever runs; None where it can, or need not."""
        if not must_be_inside(job):
            return None
        base = Reason(job=job.id, kind=ReasonKind.NEVER_FITS, families=(RuleFamily.GUARANTEE,), helps=(BY_HIGHER,))
        roles = [role for role in job.roles if role.request.gpu_milli]
        if not roles:
            return replace(base, subject="it uses no GPUs, so no guarantee covers it")
        if not any(self._rights.holder(job.team, name) for _, name in self._rights.guarantee):
            subject = f"it is tier {job.tier}, and team {job.team} has no guarantee"
            return replace(base, families=(RuleFamily.PREEMPTION,), subject=subject)
        if self._fits(job, self._rights.guarantee):
            return None
        return replace(base, subject=self._said(job, self._rights.guarantee), asked=job.gpu_milli, unit="mGPU")

    def lacking(self, record: JobRecord) -> Reason | None:
        """Why the guarantee has no room for the job now; None where it has, or where the job may start outside."""
        if not only_inside(record) or self._fits(record.job, self._left):
            return None
        reason = Reason(
            job=record.id,
            kind=ReasonKind.GUARANTEE,
            families=(RuleFamily.GUARANTEE,),
            subject=self._said(record.job, self._left),
            asked=record.job.gpu_milli,
            unit="mGPU",
        )
        return replace(reason, helps=(BY_HIGHER,)) if self._fits(record.job, self._rights.guarantee) else reason

    def fits(self, job: Job) -> bool:
        """Whether the guarantees, with nothing in use, cover the whole job."""
        return self._fits(job, self._rights.guarantee)

    def _fits(self, job: Job, left: Mapping[Key, int]) -> bool:
        """Whether some choice of a covered type for each role is within what is left."""
        roles = [role for role in job.roles if role.request.gpu_milli]
        choices = product(*(self._types(job, role) for role in roles))
        return bool(roles) and any(self._within(job, roles, types, left) for types in islice(choices, _MOST_CHOICES))

    def _within(self, job: Job, roles: list[Role], types: Iterable[str], left: Mapping[Key, int]) -> bool:
        asked: Counter[Key] = Counter()
        for role, gpu_type in zip(roles, types, strict=True):
            holder = self._rights.holder(job.team, gpu_type)
            if holder is not None:
                asked[holder, gpu_type] += role.gpu_milli
        return all(milli <= left[key] for key, milli in asked.items())

    def _said(self, job: Job, left: Mapping[Key, int]) -> str:
        """What is left of the guarantees for the types that the job accepts, in words."""
        accepted = sorted({name for role in job.roles for name in self._types(job, role)})
        if not accepted:
            return f"no guarantee of team {job.team} is of a GPU type that it accepts"
        parts = []
        for name in accepted:
            holder = self._rights.holder(job.team, name)
            if holder is not None:
                whole, rest = self._rights.guarantee[holder, name], max(0, left[holder, name])
                has = (
                    f"{rest / MILLI:g} of {whole / MILLI:g} {name} left"
                    if rest != whole
                    else f"{whole / MILLI:g} {name}"
                )
                parts.append(f"the guarantee of team {holder} has {has}")
        return ", ".join(parts)
