"""Whatever the world: the greedy breaks no rule, gives the same answer twice, and nothing that it left would fit."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from strategies import policies, snapshots

from phalanx.model.policy import Policy
from phalanx.model.snapshot import Snapshot
from phalanx.solver.evict import greedy_plan
from phalanx.solver.goals import values
from phalanx.solver.greedy import greedy
from phalanx.solver.verify import verify_starts


@settings(deadline=None, max_examples=300)
@given(snapshot=snapshots(), policy=policies())
def test_greedy_keeps_every_rule_and_is_deterministic(snapshot: Snapshot, policy: Policy) -> None:
    starts = greedy(snapshot, policy)
    assert verify_starts(snapshot, policy, starts) == ()
    assert greedy(snapshot, policy) == starts


@settings(deadline=None, max_examples=100)
@given(snapshot=snapshots(max_hosts=12, max_cards=8, max_jobs=20, max_workers=9, max_running=8), policy=policies())
def test_greedy_keeps_every_rule_on_larger_fleets(snapshot: Snapshot, policy: Policy) -> None:
    assert verify_starts(snapshot, policy, greedy(snapshot, policy)) == ()


def keeps_every_rule(snapshot: Snapshot, policy: Policy) -> None:
    plan = greedy_plan(snapshot, policy)
    assert verify_starts(snapshot, policy, plan.starts, plan.preemptions) == ()
    assert greedy_plan(snapshot, policy) == plan
    reached = [goal.value for goal in values(snapshot, policy, plan.starts, plan.preemptions)]
    assert reached >= [goal.value for goal in values(snapshot, policy, greedy(snapshot, policy))]


@settings(deadline=None, max_examples=300, suppress_health_check=list(HealthCheck))
@given(snapshot=snapshots(max_hosts=3, max_running=6), policy=policies())
def test_with_preemption_it_keeps_every_rule_and_is_never_worse_than_without(
    snapshot: Snapshot, policy: Policy
) -> None:
    keeps_every_rule(snapshot, policy)


@settings(deadline=None, max_examples=100, suppress_health_check=list(HealthCheck))
@given(snapshot=snapshots(max_hosts=8, max_cards=8, max_jobs=12, max_workers=6, max_running=16), policy=policies())
def test_with_preemption_on_larger_fleets(snapshot: Snapshot, policy: Policy) -> None:
    keeps_every_rule(snapshot, policy)
