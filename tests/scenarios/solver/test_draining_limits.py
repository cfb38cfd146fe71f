"""Drains under limits and reserved pools: a plan is on GPUs that its team, or its level, may hold when it starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from grains import all_proven
from small_worlds import NOW_S, POLICY, box, gang, queued, running, world

from phalanx.model.decision import Decision
from phalanx.model.ids import SiteId, TeamId
from phalanx.model.job import Preemptible
from phalanx.model.policy import Policy, ReservedPool
from phalanx.model.snapshot import JobRecord, Snapshot
from phalanx.model.team import GpuQuota, Team
from phalanx.solver.drains import named
from phalanx.solver.evict import greedy_plan
from phalanx.solver.solve import solve
from phalanx.solver.verify import verify, verify_starts

STARVES_S = 100_000
END_S = 3_600 - 600 + 30 + 10
"""When the work that ran 10 min of its hour is surely gone: limit, grace, clean."""


def pool(gpus: int, gpu_type: str = "H100") -> Policy:
    """That many GPUs of the site are kept for tiers 1 and 2."""
    return replace(POLICY, reserved=(ReservedPool(site=SiteId("s"), gpu_type=gpu_type, gpu_milli=1_000 * gpus),))


def limited(gpus: int) -> Sequence[Team]:
    """A lab of which a team may hold that many."""
    limit = (GpuQuota(gpu_type="H100", gpu_milli=1_000 * gpus),)
    return Team(id=TeamId("lab"), limit=limit), Team(id=TeamId("team"), parent=TeamId("lab")), Team(id=TeamId("other"))


def at_work(name: str, host: str, gpus: int, first: int = 0, limit_s: int = 3_600, **more: object) -> JobRecord:
    """Work that has run for ten minutes."""
    cards = tuple(range(first, first + gpus))
    return running(gang(name, 1, gpus, walltime_limit_s=limit_s, **more), (host, cards), ran_s=600)


def starving(name: str = "big", gpus: int = 8, waited_s: int = STARVES_S, **more: object) -> JobRecord:
    return queued(gang(name, 1, gpus, walltime_limit_s=7_200, **more), waited_s)


def decided(snapshot: Snapshot, policy: Policy) -> Decision:
    plan = greedy_plan(snapshot, policy)
    assert verify_starts(snapshot, policy, plan.starts, plan.preemptions, plan.reservations, plan.resizes) == ()
    decision = solve(snapshot, policy)
    assert verify(snapshot, policy, decision) == ()
    assert all_proven(decision)
    assert {plan.job for plan in plan.reservations} == {plan.job for plan in decision.reservations}
    return decision


def planned(decision: Decision) -> dict[str, int]:
    return {plan.job: plan.planned_start_s - NOW_S for plan in decision.reservations}


def started(decision: Decision) -> set[str]:
    return {start.job for start in decision.starts}


FLEET = (box("h1"), box("h2"))
KINDS = (
    pytest.param(pool(8), (), id="a pool leaves eight"),
    pytest.param(POLICY, limited(8), id="a limit of eight"),
)


@pytest.mark.parametrize(("policy", "teams"), KINDS)
class TestEightMayBeHeld:
    def test_the_plan_waits_for_what_counts_too(self, policy: Policy, teams: Sequence[Team]) -> None:
        """The second host is free, and stays so until the six GPUs of the first are."""
        snapshot = world(FLEET, at_work("six", "h1", 6), starving(), teams=teams)
        assert planned(decided(snapshot, policy)) == {"big": END_S}

    def test_who_would_still_count_then_does_not_start(self, policy: Policy, teams: Sequence[Team]) -> None:
        work = at_work("six", "h1", 6)
        long, short = gang("long", 1, 2, walltime_limit_s=50_000), gang("short", 1, 2, walltime_limit_s=1_200)
        decision = decided(world(FLEET, work, starving(), queued(long, 60), teams=teams), policy)
        assert (started(decision), planned(decision)) == (set(), {"big": END_S})
        decision = decided(world(FLEET, work, starving(), queued(long, 60), queued(short), teams=teams), policy)
        assert (started(decision), planned(decision)) == ({"short"}, {"big": END_S})

    def test_who_does_not_count_starts(self, policy: Policy, teams: Sequence[Team]) -> None:
        other = gang("other", 1, 2, tier=2, team="other", walltime_limit_s=50_000)
        decision = decided(world(FLEET, at_work("six", "h1", 6), starving(), queued(other), teams=teams), policy)
        assert started(decision) == {"other"}
        assert planned(decision) == {"big": END_S}

    def test_two_plans_count_together(self, policy: Policy, teams: Sequence[Team]) -> None:
        policy = replace(policy, time=replace(policy.time, drains_per_pool=2))
        first, second = starving("first", 6), starving("second", 6, STARVES_S - 10)
        decision = decided(world(FLEET, at_work("six", "h1", 6), first, second, teams=teams), policy)
        assert planned(decision) == {"first": END_S}
        decision = decided(
            world(FLEET, at_work("six", "h1", 6), first, starving("second", 2, STARVES_S - 10), teams=teams), policy
        )
        assert started(decision) == {"second"}
        assert planned(decision) == {"first": END_S}

    def test_who_never_has_room_takes_nobody_s_place(self, policy: Policy, teams: Sequence[Team]) -> None:
        stays = at_work("stays", "h1", 6, limit_s=600_000, preemptible=Preemptible.NEVER)
        behind = starving("behind", 8, STARVES_S - 10, tier=2, team="other")
        snapshot = world(FLEET, stays, at_work("six", "h2", 6, tier=2, team="other"), starving(), behind, teams=teams)
        assert [record.id for record in named(snapshot, policy)] == ["behind"]
        assert planned(decided(snapshot, policy)) == {"behind": END_S}

    def test_an_earlier_plan_is_refused(self, policy: Policy, teams: Sequence[Team]) -> None:
        snapshot = world(FLEET, at_work("six", "h1", 6), starving(), teams=teams)
        decision = solve(snapshot, policy)
        (plan,) = decision.reservations
        if plan.placement.hosts == ("h2",):
            early = replace(decision, reservations=(replace(plan, planned_start_s=plan.planned_start_s - 1),))
            messages = [fault.message for fault in verify(snapshot, policy, early)]
            assert any("6000 milli-GPU of H100 more than" in message for message in messages)

    def test_the_promise_is_kept_round_after_round(self, policy: Policy, teams: Sequence[Team]) -> None:
        snapshot = world(FLEET, at_work("six", "h1", 6), starving(), teams=teams)
        first = solve(snapshot, policy)
        long = queued(replace(gang("long", 1, 2, walltime_limit_s=50_000), tier=3), 90_000)
        later = replace(snapshot, now_s=NOW_S + 60, jobs=(*snapshot.jobs, long), reservations=first.reservations)
        decision = decided(later, policy)
        assert decision.reservations == first.reservations
        ended = replace(later, now_s=NOW_S + END_S, jobs=tuple(job for job in later.jobs if job.id != "six"))
        assert started(decided(ended, policy)) == {"big"}


def test_a_limit_that_is_lowered_takes_the_promise_with_a_cause() -> None:
    snapshot = world(FLEET, at_work("six", "h1", 6), starving(gpus=4, team="team"), teams=limited(8))
    first = decided(snapshot, POLICY)
    assert planned(first) == {"big": END_S}
    lower = replace(snapshot, teams=tuple(limited(6)), reservations=first.reservations)
    assert planned(decided(lower, POLICY)) == {"big": END_S}
    more = at_work("three", "h2", 3, limit_s=9_000, team="team")
    late = replace(snapshot, jobs=(*snapshot.jobs, more), teams=tuple(limited(6)), reservations=first.reservations)
    (plan,) = decided(late, POLICY).reservations
    assert plan.planned_start_s == NOW_S + 9_000 - 600 + 40
    assert plan.cause == "hosts lost, work overrunning or a limit lowered"
    none = replace(snapshot, teams=tuple(limited(3)), reservations=first.reservations)
    decision = decided(none, POLICY)
    assert (decision.reservations, decision.releases) == ((), tuple(plan.id for plan in first.reservations))


def test_level_two_drains_what_a_pool_keeps_for_it() -> None:
    beside = at_work("two", "h2", 2, tier=2, limit_s=50_000)
    six = at_work("six", "h1", 6, preemptible=Preemptible.NEVER)
    decision = decided(world(FLEET, six, beside, starving(tier=2)), pool(16))
    assert planned(decision) == {"big": END_S}
