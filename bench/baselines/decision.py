"""The decision of a baseline: its acts, with the goals they reach and bounds that are true but seldom tight."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ...model.decision import Certificate, Decision, Grain, Preemption, Stage, Start
from ...model.ids import JobId
from ...model.placement import Placement
from ...model.policy import Policy
from ...model.snapshot import JobRecord, Snapshot
from ...solver.bound import judge, uppers
from ...solver.demand import candidates
from ...solver.goals import values
from ...solver.prefetch import prefetches
from ...solver.reprieve import reprieve

Scheduler = Callable[[Snapshot, Policy], Decision]
"""What decides a round; it may be an object that keeps state from round to round."""


def decision_of(
    snapshot: Snapshot, policy: Policy, starts: Sequence[Start], preemptions: Sequence[Preemption] = ()
) -> Decision:
    """The decision that starts these gangs, stops these, and does nothing else.

    The bounds are what no decision can exceed even if every waiting gang could start; a goal counts as proven only
    where it reaches that. The certificate claims no search: no budget, no goals solved.
    """
    waiting = candidates(snapshot)
    bounds = uppers(snapshot, policy, frozenset(record.id for record in waiting))
    return Decision(
        snapshot_version=snapshot.version,
        now_s=snapshot.now_s,
        starts=tuple(starts),
        preemptions=tuple(preemptions),
        prefetches=prefetches(snapshot, policy, starts),
        goals=judge(snapshot, policy, values(snapshot, policy, starts, preemptions), bounds),
        certificate=Certificate(
            stage=Stage.GREEDY if waiting else Stage.NOTHING_TO_DO,
            grain=Grain.SINGLETONS,
            budget_ms=0,
            spent_ms=0,
            seed=policy.solve.seed,
        ),
    )


def preempting(snapshot: Snapshot, policy: Policy, starts: Sequence[Start], leaving: Iterable[JobId]) -> Decision:
    """The decision that starts these gangs once these jobs have left; of the latter, none that need not leave."""
    plan = reprieve(snapshot, policy, starts, leaving)
    return decision_of(snapshot, policy, plan.starts, plan.preemptions)


def start_of(record: JobRecord, placement: Placement, inside: bool = False) -> Start:
    """The next attempt of that job, there, inside its team's guarantee or outside."""
    return Start(job=record.id, attempt=record.attempt + 1, placement=placement, inside_guarantee=inside)
