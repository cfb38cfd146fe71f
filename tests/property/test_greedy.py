"""Whatever the world: the greedy breaks no rule, gives the same answer twice, and nothing that it left would fit."""

from __future__ import annotations

from hypothesis import given, settings
from strategies import policies, snapshots

from phalanx.model.policy import Policy
from phalanx.model.snapshot import Snapshot
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
