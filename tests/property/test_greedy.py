"""Whatever the world: the greedy breaks no rule, gives the same answer twice, and nothing that it left would fit."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import HealthCheck, given, settings
from small_worlds import carried_out
from strategies import contested, policies, snapshots

from phalanx.model.policy import Policy
from phalanx.model.snapshot import Snapshot
from phalanx.solver.evict import greedy_plan
from phalanx.solver.goals import values
from phalanx.solver.greedy import greedy
from phalanx.solver.plan import Plan, assemble
from phalanx.solver.rights import may_evict, rights_of
from phalanx.solver.verify import verify_starts
from phalanx.solver.verify_planned import Planned


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
    acts = (plan.starts, plan.preemptions, plan.reservations, plan.resizes)
    assert verify_starts(snapshot, policy, *acts) == ()
    assert greedy_plan(snapshot, policy) == plan
    reached = [goal.value for goal in values(snapshot, policy, *acts)]
    assert reached >= [goal.value for goal in values(snapshot, policy, greedy(snapshot, policy))]


@settings(deadline=None, max_examples=200, suppress_health_check=list(HealthCheck))
@given(snapshot=contested(), policy=policies())
def test_with_preemption_it_keeps_every_rule_and_is_never_worse_than_without(
    snapshot: Snapshot, policy: Policy
) -> None:
    keeps_every_rule(snapshot, policy)


@settings(deadline=None, max_examples=40, suppress_health_check=list(HealthCheck))
@given(snapshot=contested(max_hosts=6, max_cards=4, max_jobs=10), policy=policies())
def test_with_preemption_on_larger_fleets(snapshot: Snapshot, policy: Policy) -> None:
    keeps_every_rule(snapshot, policy)


@settings(deadline=None, max_examples=100, suppress_health_check=list(HealthCheck))
@given(snapshot=contested(), policy=policies())
def test_victims_are_outranked_by_a_start_and_none_could_stay(snapshot: Snapshot, policy: Policy) -> None:
    plan = greedy_plan(snapshot, policy)
    records = {record.id: record for record in snapshot.jobs}
    started = {start.job: start for start in plan.starts}
    rights = rights_of(snapshot)
    for act in plan.preemptions:
        runner = rights.runner(records[act.job])
        assert act.beneficiaries
        for job in act.beneficiaries:
            assert may_evict(rights.starter(records[job], inside=started[job].inside_guarantee), runner)
        others = [other.job for other in plan.preemptions if other is not act]
        fewer = assemble(snapshot, policy, plan.starts, others, drains(snapshot, plan))
        assert verify_starts(snapshot, policy, fewer.starts, fewer.preemptions, fewer.reservations) != ()


def drains(snapshot: Snapshot, plan: Plan) -> list[Planned]:
    records = {record.id: record for record in snapshot.jobs}
    return [Planned(records[r.job], r.placement, r.planned_start_s) for r in plan.reservations]


@settings(deadline=None, max_examples=100, suppress_health_check=list(HealthCheck))
@given(snapshot=contested(), policy=policies())
def test_victims_that_queue_again_make_nobody_else_leave(snapshot: Snapshot, policy: Policy) -> None:
    # Of victims at several levels the higher may evict the lower when it comes back, so all run at one level; and hosts
    # that were held for a gang open to all others once it starts.
    jobs = [replace(record, demoted=bool(record.placement), replacing=()) for record in snapshot.jobs]
    snapshot = replace(snapshot, jobs=tuple(r for r in jobs if r.placement or len(r.job.roles) == 1))
    plan = greedy_plan(snapshot, policy)
    assert greedy_plan(carried_out(snapshot, plan), policy).preemptions == ()
