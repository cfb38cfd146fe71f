"""A site may bound what one eviction loses of each GPU: who would lose more stays, whoever waits."""

from __future__ import annotations

from dataclasses import replace

import pytest
from grains import all_proven
from small_worlds import NOW_S, POLICY, box, gang, queued, running, world

from phalanx.model.decision import Decision, RuleFamily
from phalanx.model.errors import InvalidInput
from phalanx.model.job import CheckpointPolicy, Job
from phalanx.model.policy import EvictionPolicy, Policy
from phalanx.model.snapshot import JobRecord, Snapshot
from phalanx.solver.drains import clear_s
from phalanx.solver.evict import greedy_plan
from phalanx.solver.solve import solve
from phalanx.solver.verify import verify, verify_starts

HANDOVER_S = 30 + 10 + 30
"""Grace of a job without a checkpoint policy, clean, launch."""


def bounded(most_s: int | None) -> Policy:
    return replace(POLICY, eviction=replace(POLICY.eviction, max_loss_s=most_s))


def works(name: str, host: str, ran_s: int = 7_200, gpus: int = 8, **more: object) -> JobRecord:
    return running(gang(name, 1, gpus, tier=4, **more), (host, tuple(range(gpus))), ran_s=ran_s)


def decided(snapshot: Snapshot, policy: Policy) -> Decision:
    plan = greedy_plan(snapshot, policy)
    assert verify_starts(snapshot, policy, plan.starts, plan.preemptions) == ()
    decision = solve(snapshot, policy)
    assert verify(snapshot, policy, decision) == ()
    assert all_proven(decision)
    assert {act.job for act in plan.preemptions} == {act.job for act in decision.preemptions}
    return decision


def leave(snapshot: Snapshot, policy: Policy) -> list[str]:
    return [act.job for act in decided(snapshot, policy).preemptions]


def high(**more: object) -> Job:
    return gang("high", 1, 8, tier=1, **more)


def test_to_the_second() -> None:
    snapshot = world([box("h1")], works("low", "h1"), high())
    assert leave(snapshot, bounded(7_200 + HANDOVER_S)) == ["low"]
    assert leave(snapshot, bounded(7_200 + HANDOVER_S - 1)) == []
    assert leave(snapshot, bounded(None)) == ["low"]


def test_the_bound_is_of_each_gpu_and_counts_work_restart_and_handover() -> None:
    saves = CheckpointPolicy(interval_s=600, write_s=60, restart_s=100, grace_s=40)
    snapshot = world([box("h1")], works("low", "h1", checkpoint=saves), high())
    lost_s = 600 // 2 + 100 + 40 + 10 + 30
    assert leave(snapshot, bounded(lost_s)) == ["low"]
    assert leave(snapshot, bounded(lost_s - 1)) == []


def test_several_that_lose_little_go_where_the_one_that_fits_may_not() -> None:
    halves = [
        running(gang(f"half{n}", 1, 4, tier=4), ("h2", tuple(range(4 * n, 4 * n + 4))), ran_s=5_000) for n in (0, 1)
    ]
    young = running(gang("young", 1, 8, tier=3), ("h1", tuple(range(8))), ran_s=20_000)
    snapshot = world([box("h1"), box("h2")], young, *halves, high())
    assert leave(snapshot, bounded(6_000)) == ["half0", "half1"]
    assert leave(snapshot, bounded(4_000)) == []


def test_who_waits_is_told() -> None:
    decision = decided(world([box("h1")], works("low", "h1"), high()), bounded(3_600))
    (reason,) = decision.waiting
    assert reason.families == (RuleFamily.PREEMPTION,)
    assert reason.subject == "low would lose 2 h 1 min on each GPU of at most 1 h"


def test_the_verifier_refuses_the_victim() -> None:
    snapshot = world([box("h1")], works("low", "h1"), high())
    plan = greedy_plan(snapshot, POLICY)
    found = verify_starts(snapshot, bounded(3_600), plan.starts, plan.preemptions)
    assert "job low may not be preempted: it would lose 7270 s of each GPU, of at most 3600 s" in [
        violation.message for violation in found
    ]


def test_plans_reckon_only_with_who_surely_may_go() -> None:
    gang_ = queued(high())
    loses = works("loses", "h1", walltime_limit_s=50_000)
    slow = CheckpointPolicy(interval_s=600, write_s=60, grace_s=30)
    sometimes = works("sometimes", "h1", checkpoint=slow, walltime_limit_s=50_000)
    saves = works("saves", "h1", checkpoint=replace(slow, write_s=10), walltime_limit_s=50_000)
    for record, unbound_s, bound_s in ((loses, 0, 42_840), (sometimes, 0, 42_840), (saves, 0, 0)):
        snapshot = world([box("h1")], record, gang_)
        assert clear_s(record, gang_, snapshot, bounded(None)) - NOW_S == unbound_s
        assert clear_s(record, gang_, snapshot, bounded(3_600)) - NOW_S == bound_s


def test_a_bound_is_no_negative_number() -> None:
    with pytest.raises(InvalidInput):
        EvictionPolicy(max_loss_s=-1)
