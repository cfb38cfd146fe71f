"""Elastic gangs and moves: what went wrong elsewhere (A6, V5), and what one round does with gangs that may return."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest
from grains import all_proven
from small_worlds import NOW_S, POLICY, ask, box, gang, queued, running, world

from phalanx.model.decision import Decision
from phalanx.model.job import CheckpointPolicy, Elastic, Parallelism, Preemptible
from phalanx.model.job_state import JobState, StopCause
from phalanx.model.policy import Policy
from phalanx.model.snapshot import JobRecord, Snapshot
from phalanx.solver.evict import greedy_plan
from phalanx.solver.solve import solve
from phalanx.solver.verify import verify, verify_starts

ROOMY = replace(POLICY, objective=replace(POLICY.objective, room_s=20))
"""A site to which room for standard gangs is worth twice the default."""


def saves(restart_s: int = 5, **more: int) -> CheckpointPolicy:
    return CheckpointPolicy(**{"interval_s": 60, "write_s": 5, "restart_s": restart_s, "grace_s": 5, **more})


def steady(name: str, *seats: tuple[str, Iterable[int]], **more: object) -> JobRecord:
    """A gang that runs since an hour and loses no work when it stops."""
    facts = {key: more.pop(key) for key in ("ran_s", "moves") if key in more}
    places = [(host, tuple(cards)) for host, cards in seats]
    job = gang(name, len(places), len(places[0][1]), **{"checkpoint": saves(), **more})
    return running(job, *places, **{"ran_s": 3_600, **facts})


def sizes(*numbers: int) -> Elastic:
    return Elastic(role="worker", sizes=numbers)


def decided(snapshot: Snapshot, policy: Policy = POLICY) -> Decision:
    """The decision, after the greedy alone and the verifier have had their say."""
    plan = greedy_plan(snapshot, policy)
    faults = verify_starts(snapshot, policy, plan.starts, plan.preemptions, plan.reservations, plan.resizes)
    assert faults == ()
    decision = solve(snapshot, policy)
    assert verify(snapshot, policy, decision) == ()
    assert all_proven(decision)
    assert solve(snapshot, policy) == decision
    return decision


def workers(decision: Decision) -> dict[str, int]:
    """How many workers each start or return has."""
    return {act.job: len(act.placement.workers) for act in (*decision.starts, *decision.resizes)}


class TestShrinking:
    def test_v5_one_worker_of_eleven_makes_way(self) -> None:
        one_each = tuple(range(1, 12))
        elastic = steady("v", *(("h", [i]) for i in range(11)), elastic=sizes(*one_each))
        decision = decided(world([box("h", 11)], elastic, gang("p", tier=1)))
        assert workers(decision) == {"p": 1, "v": 10}
        assert not decision.preemptions
        assert decision.starts[0].after == ("v",)

    def test_v5_the_greedy_shrinks_as_well(self) -> None:
        elastic = steady("v", *(("h", [i]) for i in range(11)), elastic=sizes(*range(1, 12)))
        plan = greedy_plan(world([box("h", 11)], elastic, gang("p", tier=1)), POLICY)
        assert [len(act.placement.workers) for act in plan.resizes] == [10]
        assert not plan.preemptions

    def test_only_sizes_that_whole_replicas_fill(self) -> None:
        shape = Parallelism(tensor=2, data=4)
        elastic = steady("v", *(("h", [i]) for i in range(8)), elastic=sizes(2, 3, 5, 6, 8), parallelism=shape)
        decision = decided(world([box("h")], elastic, gang("p", tier=1)))
        assert workers(decision) == {"p": 1, "v": 6}

    def test_not_for_an_equal(self) -> None:
        elastic = steady("v", *(("h", [i]) for i in range(8)), elastic=sizes(4, 8))
        decision = decided(world([box("h")], elastic, gang("p")))
        assert (decision.starts, decision.resizes) == ((), ())

    def test_what_would_lose_work_is_not_shrunk(self) -> None:
        slow = saves(write_s=60)
        elastic = steady("v", *(("h", [i]) for i in range(8)), elastic=sizes(4, 8), checkpoint=slow)
        decision = decided(world([box("h")], elastic, gang("p", tier=1)))
        assert [act.job for act in decision.preemptions] == ["v"]

    def test_a_shrunk_gang_counts_as_it_is(self) -> None:
        """It asked eight, and holds four: it may be evicted for these four only, and shrink to two."""
        job = gang("v", 8, elastic=sizes(2, 4, 8), checkpoint=saves())
        record = running(job, *(("h", [i]) for i in range(4)), ran_s=3_600)
        decision = decided(world([box("h", 4)], record, gang("p", tier=1)))
        assert workers(decision) == {"p": 1, "v": 2}
        spare = next(goal.value for goal in decision.goals if goal.name == "spare[1]")
        assert spare == -(3_600 * 2_000 + 4_000 * 50)


class TestSizes:
    def test_the_largest_size_that_fits_starts(self) -> None:
        decision = decided(world([box("h")], gang("e", 16, elastic=sizes(2, 4, 6, 16))))
        assert workers(decision) == {"e": 6}

    def test_never_more_than_asked(self) -> None:
        decision = decided(world([box("h")], gang("e", 4, elastic=sizes(2, 4, 8))))
        assert workers(decision) == {"e": 4}

    def test_but_what_left_to_grow_comes_back_larger(self) -> None:
        left = queued(gang("e", 4, elastic=sizes(2, 4, 8)), 100, attempt=1, resized_to=8)
        assert workers(decided(world([box("h")], left))) == {"e": 8}

    def test_two_share_what_is_there(self) -> None:
        jobs = [gang(name, 8, elastic=sizes(4, 8)) for name in ("a", "b")]
        decision = decided(world([box("h")], *jobs))
        assert sum(workers(decision).values()) == 8


class TestMoves:
    def crumbs(self, restart_s: int = 5) -> Snapshot:
        """Four hosts of eight cards, a job of two on each."""
        jobs = [steady(f"j{n}", (f"h{n}", (0, 1)), checkpoint=saves(restart_s)) for n in range(4)]
        return world([box(f"h{n}", rack="r") for n in range(4)], *jobs)

    def test_a6_three_moves_free_three_hosts(self) -> None:
        decision = decided(self.crumbs(), ROOMY)
        assert len(decision.resizes) == 3
        left = {act.job for act in decision.resizes}
        there = {host for act in decision.resizes for host in act.placement.hosts}
        assert there == {f"h{name[1]}" for name in {"j0", "j1", "j2", "j3"} - left}

    def test_a6_no_moves_where_a_restart_takes_long(self) -> None:
        assert decided(self.crumbs(300 * 60), ROOMY).resizes == ()

    def test_a6_no_moves_where_they_cost_more_than_the_room(self) -> None:
        assert decided(self.crumbs(120), ROOMY).resizes == ()

    def test_a6_no_more_moves_than_the_hour_allows(self) -> None:
        policy = replace(ROOMY, eviction=replace(ROOMY.eviction, moves_per_hour=2))
        snapshot = self.crumbs()
        moved = replace(snapshot.jobs[3], moves=(NOW_S - 600,))
        decision = decided(replace(snapshot, jobs=(*snapshot.jobs[:3], moved)), policy)
        assert len(decision.resizes) == 1

    @pytest.mark.parametrize("facts", [{"movable": False}, {"preemptible": Preemptible.NEVER, "tier": 1}])
    def test_a6_jobs_may_forbid_it(self, facts: dict[str, object]) -> None:
        jobs = [steady(f"j{n}", (f"h{n}", (0, 1)), **facts) for n in range(4)]
        assert decided(world([box(f"h{n}") for n in range(4)], *jobs), ROOMY).resizes == ()

    def test_a_gang_fits_after_two_of_its_own_level_moved_together(self) -> None:
        small = [steady(f"s{n}", (f"h{n}", (0,))) for n in range(2)]
        big = gang("big", 2, 4)
        fleet = [*(box(f"h{n}", 4) for n in range(2)), box("h2", 2)]
        decision = decided(world(fleet, *small, big))
        assert [start.job for start in decision.starts] == ["big"]
        assert len(decision.resizes) == 2
        assert set(decision.starts[0].after) == {act.job for act in decision.resizes}

    def test_not_for_a_lower_level(self) -> None:
        small = [steady(f"s{n}", (f"h{n}", (0, 1))) for n in range(2)]
        low = gang("low", 1, 4, preemptible=Preemptible.ANYTIME)
        decision = decided(world([box(f"h{n}", 4) for n in range(2)], *small, low))
        assert not decision.starts

    def test_a_move_is_cheaper_than_an_eviction(self) -> None:
        small = [steady(f"s{n}", (f"h{n}", (0, 1)), tier=4) for n in range(2)]
        decision = decided(world([box(f"h{n}", 4) for n in range(2)], *small, gang("high", 1, 4, tier=1)))
        assert [start.job for start in decision.starts] == ["high"]
        assert len(decision.resizes) == 1
        assert not decision.preemptions


class TestGrowing:
    def small(self, **more: object) -> JobRecord:
        job = gang("g", 4, elastic=sizes(2, 4, 8), checkpoint=saves())
        return running(job, *(("h", [i]) for i in range(4)), **{"ran_s": 3_600, **more})

    def test_into_what_nobody_waits_for(self) -> None:
        assert workers(solved(world([box("h")], self.small()))) == {"g": 8}

    def test_not_where_one_waits(self) -> None:
        waiting = gang("w", 1, 16)
        assert solved(world([box("h")], self.small(), waiting)).resizes == ()

    def test_beside_those_who_wait_for_other_hosts(self) -> None:
        """A gang that asks for A100 waits, and another starts there; the H100 are of no use to either."""
        waits, starts = gang("w", 1, 8, ["A100"]), gang("s", 1, 2, ["A100"])
        busy = running(gang("b", 1, 4), ("a", (0, 1, 2, 3)), ran_s=60)
        fleet = [box("h"), box("a", gpu_type="A100")]
        decision = solved(world(fleet, self.small(), busy, waits, starts))
        assert [start.job for start in decision.starts] == ["s"]
        assert [len(act.placement.workers) for act in decision.resizes] == [8]
        assert {act.placement.hosts for act in decision.resizes} == {("h",)}
        assert decision.resizes == solved(world(fleet, self.small(), busy)).resizes

    def test_not_where_one_waits_for_cores_there(self) -> None:
        cores = gang("w", request=ask(0, cpu=500))
        assert solved(world([box("h")], self.small(), cores)).resizes == ()

    def test_not_before_its_time_nor_twice_an_hour(self) -> None:
        policy = replace(POLICY, time=replace(POLICY.time, grow_after_s=3_601))
        assert solved(world([box("h")], self.small()), policy).resizes == ()
        assert solved(world([box("h")], self.small(moves=(NOW_S - 3_599,)))).resizes == ()
        assert solved(world([box("h")], self.small(moves=(NOW_S - 3_600,)))).resizes != ()

    def test_not_where_its_restart_costs_more(self) -> None:
        job = gang("g", 7, elastic=sizes(7, 8), checkpoint=saves(1_000))
        record = running(job, *(("h", [i]) for i in range(7)), ran_s=9_000)
        assert solved(world([box("h")], record)).resizes == ()

    def test_one_after_the_other(self) -> None:
        jobs = [
            running(gang(n, 2, elastic=sizes(2, 4), checkpoint=saves()), ("h", [i]), ("h", [i + 1]), ran_s=ran)
            for n, i, ran in (("a", 0, 4_000), ("b", 2, 5_000), ("c", 4, 6_000))
        ]
        assert workers(solved(world([box("h")], *jobs))) == {"c": 4}


def solved(snapshot: Snapshot, policy: Policy = POLICY) -> Decision:
    decision = solve(snapshot, policy)
    assert verify(snapshot, policy, decision) == ()
    return decision


class TestWhileItReturns:
    def test_its_new_hosts_are_held_while_it_stops(self) -> None:
        job = gang("m", 1, 2, checkpoint=saves())
        facts = {"stop_cause": StopCause.REQUEUED, "replacing": ("h2",), "replacing_until_s": NOW_S + 60}
        leaving = running(job, ("h1", (0, 1)), state=JobState.STOPPING, resized_to=1, **facts)
        fleet = [box("h1", 2), box("h2", 2)]
        waits = decided(world(fleet, leaving, gang("other", 1, 2)))
        assert not waits.starts
        assert "held for job m, which comes back to it" in waits.waiting[0].sentence
        assert decided(world(fleet, leaving, gang("above", 1, 2, tier=1))).starts
        late = replace(leaving, replacing_until_s=NOW_S)
        assert decided(world(fleet, late, gang("other", 1, 2))).starts

    def test_no_spare_is_opened_for_it(self) -> None:
        job = gang("m", 1, 2, checkpoint=saves())
        facts = {"replacing": ("h1",), "replacing_until_s": NOW_S + 60, "attempt": 1}
        fleet = [box("h1", 2, spare=True)]
        assert not decided(world(fleet, queued(job, resized_to=1, **facts))).starts
        assert decided(world(fleet, queued(job, **facts))).starts
