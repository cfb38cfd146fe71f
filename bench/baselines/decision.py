"""The decision of a baseline: its starts, with the goals they reach and bounds that are true but seldom tight."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...model.decision import Certificate, Decision, Grain, Stage, Start
from ...model.placement import Placement
from ...model.policy import Policy
from ...model.snapshot import JobRecord, Snapshot
from ...solver.bound import judge, uppers
from ...solver.demand import candidates
from ...solver.goals import values

Scheduler = Callable[[Snapshot, Policy], Decision]
"""What decides a round; it may be an object that keeps state from round to round."""


def decision_of(snapshot: Snapshot, policy: Policy, starts: Sequence[Start]) -> Decision:
    """The decision that starts these gangs and does nothing else.

    The bounds are what no decision can exceed even if every waiting gang could start; a goal counts as proven only
    where it reaches that. The certificate claims no search: no budget, no goals solved.
    """
    waiting = candidates(snapshot)
    bounds = uppers(snapshot, policy, frozenset(record.id for record in waiting))
    return Decision(
        snapshot_version=snapshot.version,
        now_s=snapshot.now_s,
        starts=tuple(starts),
        goals=judge(snapshot, policy, values(snapshot, policy, starts), bounds),
        certificate=Certificate(
            stage=Stage.GREEDY if waiting else Stage.NOTHING_TO_DO,
            grain=Grain.SINGLETONS,
            budget_ms=0,
            spent_ms=0,
            seed=policy.solve.seed,
        ),
    )


def start_of(record: JobRecord, placement: Placement) -> Start:
    """The next attempt of that job, there."""
    return Start(job=record.id, attempt=record.attempt + 1, placement=placement)
