"""Jobs that start only inside a guarantee: what they may take, what the guarantee lacks for them, what would do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
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


class Covered:
    """The guarantees of one snapshot, and what of them is left beside the given starts."""

    def __init__(self, snapshot: Snapshot, starts: Iterable[Start] = ()) -> None:
        self._rights = rights_of(snapshot)
        self._left = Counter(self._rights.left)
        jobs = {record.id: record.job for record in snapshot.jobs}
        for start in starts:
            if start.inside_guarantee:
                self._left.subtract(self._rights.counted(jobs[start.job], start.placement))

    def choices(self, job: Job) -> Iterator[Job]:
        """The job on each choice of types for its GPU roles on which guarantees not yet in use cover all of it."""
        roles = [role for role in job.roles if role.request.gpu_milli]
        for types in islice(product(*(self._types(job, role) for role in roles)), _MOST_CHOICES):
            if roles and self._within(job, roles, types, self._rights.guarantee):
                on = {role.name: name for role, name in zip(roles, types, strict=True)}
                yield replace(job, roles=tuple(_on(role, on.get(role.name)) for role in job.roles))

    def only(self, job: Job, reason: Reason) -> Reason:
        """The reason of a job that would fit but for having to be covered."""
        types = sorted(
            {choice.gpu_type for covered in self.choices(job) for role in covered.roles for choice in role.gpu_types}
        )
        subject = f"{reason.subject} ({' or '.join(types)} only: no guarantee covers it on others)"
        return replace(reason, families=(*reason.families, RuleFamily.GUARANTEE), subject=subject)

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
        """Why guarantees can never cover the job, whatever runs; None where they can."""
        base = Reason(job=job.id, kind=ReasonKind.NEVER_FITS, families=(RuleFamily.GUARANTEE,))
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
        return Reason(
            job=record.id,
            kind=ReasonKind.GUARANTEE,
            families=(RuleFamily.GUARANTEE,),
            subject=self._said(record.job, self._left),
            asked=record.job.gpu_milli,
            unit="mGPU",
        )

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


def _on(role: Role, gpu_type: str | None) -> Role:
    """The role on that type alone; as it is for None."""
    if gpu_type is None:
        return role
    return replace(
        role, gpu_types=(GpuTypeChoice(gpu_type=gpu_type, throughput_milli=role.throughput_milli(gpu_type) or 1),)
    )
