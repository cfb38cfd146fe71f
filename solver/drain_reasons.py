"""Reasons that come from drain reservations: room that is held for others, and the plan of a gang that waits."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from ..model.decision import Reason, ReasonKind, RuleFamily
from ..model.ids import HostId
from ..model.limits import grace_s
from ..model.policy import Policy
from ..model.reservation import Reservation
from ..model.snapshot import JobRecord, Snapshot
from .demand import surely_over_s
from .drains import pools
from .wording import duration


class DrainReasons:
    """What the reservations of a decision mean for the jobs that wait."""

    def __init__(self, snapshot: Snapshot, policy: Policy, reservations: Sequence[Reservation]) -> None:
        self._snapshot, self._policy = snapshot, policy
        self._plans = {plan.job: plan for plan in reservations}

    def __bool__(self) -> bool:
        return bool(self._plans)

    def apart(self, record: JobRecord) -> tuple[object, ...]:
        """What tells its reason from those of equal requests: when it is over, where that is too late for plans."""
        binding = self._binding(record)
        return (surely_over_s(record, self._snapshot, self._policy), grace_s(record.job)) if binding else ()

    def _binding(self, record: JobRecord) -> list[Reservation]:
        """The plans whose room the job must leave alone: it might not be over when they start."""
        if not self._plans:
            return []
        over_s = surely_over_s(record, self._snapshot, self._policy)
        plans = [plan for plan in self._plans.values() if plan.planned_start_s < over_s and plan.job != record.id]
        return sorted(plans, key=lambda plan: (plan.planned_start_s, plan.job))

    def binds(self, record: JobRecord) -> bool:
        """Whether a plan holds any room from the job."""
        return bool(self._binding(record))

    def leaves(self, record: JobRecord, hosts: Collection[HostId]) -> bool:
        """Whether no plan holds one of these hosts from the job."""
        return self.withheld(record, hosts) is None

    def withheld(self, record: JobRecord, hosts: Collection[HostId] | None) -> Reason | None:
        """The reason of a job that would find room there, or somewhere after evictions (None), but for what is held."""
        binding = self._binding(record)
        if hosts is not None:
            binding = [plan for plan in binding if not set(hosts).isdisjoint(plan.placement.hosts)]
        elif binding:
            wanted = pools(record.job, self._snapshot, self._policy)
            jobs = {other.id: other.job for other in self._snapshot.jobs}
            binding = [p for p in binding if wanted & pools(jobs[p.job], self._snapshot, self._policy)]
        if not binding:
            return None
        now_s, numbers = self._snapshot.now_s, self._policy.eviction
        until_s = binding[0].planned_start_s - now_s
        left_s = until_s - numbers.launch_s - grace_s(record.job) - numbers.clean_s
        shorter = left_s > 0 and hosts is not None
        return Reason(
            job=record.id,
            kind=ReasonKind.RESERVED,
            families=(RuleFamily.RESERVATION,),
            subject=", ".join(plan.job for plan in binding),
            asked=surely_over_s(record, self._snapshot, self._policy) - now_s,
            available=until_s,
            unit="s",
            helps=(f"starts at once with a walltime limit of {duration(_floor(left_s))}",) if shorter else (),
        )

    def with_plan(self, reason: Reason) -> Reason:
        """The reason with when and where the job is planned to start, if it is."""
        plan = self._plans.get(reason.job)
        if plan is None:
            return reason
        return replace(
            reason, planned_in_s=plan.planned_start_s - self._snapshot.now_s, planned_hosts=plan.placement.hosts
        )


def _floor(seconds: int) -> int:
    """Down to what `duration` shows: whole minutes from an hour on, whole hours from a day on."""
    unit = 3_600 if seconds >= 86_400 else 60 if seconds >= 3_600 else 1
    return seconds - seconds % unit
