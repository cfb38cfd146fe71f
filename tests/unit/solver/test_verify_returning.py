"""The verifier on gangs of several sizes and on jobs that return: for each rule a plan inside and one outside."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import pytest
from small_worlds import NOW_S, POLICY, ask, begin, box, gang, placement, queued, running, world

from phalanx.model.decision import Resize, Start
from phalanx.model.host import HostState
from phalanx.model.ids import JobId
from phalanx.model.job import AntiAffinity, CheckpointPolicy, Elastic, Parallelism, Preemptible, TopologyConstraint
from phalanx.model.policy import Policy, ReservedPool
from phalanx.model.snapshot import JobRecord, Snapshot
from phalanx.model.team import GpuQuota, Team
from phalanx.model.topology import Layer
from phalanx.solver.explain import reasons
from phalanx.solver.goals import values
from phalanx.solver.plan import assemble
from phalanx.solver.returning import returners
from phalanx.solver.sizes import at_size, settled, start_sizes
from phalanx.solver.verify import verify_starts

Seats = Sequence[tuple[str, Sequence[int]]]
Broken = list[tuple[str, str, str]]
SAVES = CheckpointPolicy(interval_s=60, write_s=5, restart_s=5, grace_s=5)
SITE = (TopologyConstraint(layer=Layer.SITE),)


def sizes(*numbers: int) -> Elastic:
    return Elastic(role="worker", sizes=numbers)


def ran(name: str, *seats: tuple[str, Iterable[int]], **more: object) -> JobRecord:
    """A job that runs since an hour and saves its work."""
    facts = {key: more.pop(key) for key in ("ran_s", "moves", "evictions") if key in more}
    places = [(host, tuple(cards)) for host, cards in seats]
    job = gang(name, len(places), len(places[0][1]), **{"checkpoint": SAVES, "topology": SITE, **more})
    return running(job, *places, **{"ran_s": 3_600, **facts})


def back(record: JobRecord, *seats: tuple[str, Iterable[int]], attempt: int = 2) -> Resize:
    """The job returns there."""
    places = [(host, tuple(cards)) for host, cards in seats]
    job = gang(record.id, len(places), len(places[0][1]))
    return Resize(job=record.id, attempt=attempt, placement=placement(job, *places))


def broken(
    snapshot: Snapshot,
    starts: Sequence[Start] = (),
    resizes: Sequence[Resize] = (),
    victims: Sequence[str] = (),
    policy: Policy = POLICY,
) -> Broken:
    """Family, subject and unit of each violation of a plan whose ties are told rightly."""
    plan = assemble(snapshot, policy, starts, [JobId(name) for name in victims], (), resizes)
    found = verify_starts(snapshot, policy, plan.starts, plan.preemptions, (), plan.resizes)
    assert all(violation.message and violation.amount > 0 for violation in found)
    return [(str(v.family), v.subject, v.unit) for v in found]


class TestSizes:
    def start(self, workers: int, **more: object) -> Broken:
        job = gang("e", 4, elastic=sizes(1, 2, 4, 8), **more)
        seats = [("h1", (index,)) for index in range(workers)]
        start = Start(job=job.id, attempt=1, placement=placement(gang("e", workers), *seats))
        return broken(world([box("h1")], job), [start])

    def test_a_start_has_one_of_the_sizes_up_to_the_one_asked(self) -> None:
        assert [self.start(number) for number in (1, 2, 4)] == [[], [], []]
        assert self.start(3) == [("gang", "e", "workers")]
        assert self.start(8) == [("gang", "e", "workers")]

    def test_the_degrees_divide_it(self) -> None:
        job = gang("e", 4, elastic=sizes(1, 2, 3, 4), parallelism=Parallelism(tensor=2, data=2))
        assert start_sizes(queued(job)) == (2, 4)
        assert at_size(job, 2).roles[0].parallelism == Parallelism(tensor=2, data=1)

    def test_at_a_size_that_fits_on_one_host_it_stays_on_one(self) -> None:
        job = gang("e", 8, elastic=sizes(2, 8))
        fleet = [box("h1", 4), box("h2", 4)]
        apart = Start(job=job.id, attempt=1, placement=placement(gang("e", 2), ("h1", (0,)), ("h2", (0,))))
        assert broken(world(fleet, job), [apart]) == [("topology", "e", "host domains")]
        both = [*(("h1", (i,)) for i in range(4)), *(("h2", (i,)) for i in range(4))]
        assert broken(world(fleet, job), [begin(job, *both)]) == []

    def test_goals_weigh_what_starts(self) -> None:
        job = gang("e", 4, elastic=sizes(2, 4))
        snapshot = world([box("h1")], job)
        starts = {
            n: Start(job=job.id, attempt=1, placement=placement(gang("e", n), *(("h1", (i,)) for i in range(n))))
            for n in (2, 4)
        }
        reached = {n: {g.name: g.value for g in values(snapshot, POLICY, [starts[n]])} for n in starts}
        assert reached[4]["start[1]"] > reached[2]["start[1]"]
        assert reached[2]["order"] == reached[4]["order"]

    def test_running_jobs_count_as_they_are(self) -> None:
        record = running(gang("e", 4, elastic=sizes(2, 4, 8)), ("h1", (0,)), ("h1", (1,)))
        (seen,) = settled(world([box("h1")], record)).jobs
        assert seen.job.gpu_milli == 2_000
        other = world([box("h1")], running(gang("e", 2, elastic=sizes(2, 4)), ("h1", (0,)), ("h1", (1,))))
        assert settled(other) is other

    def test_reasons_speak_of_the_smallest(self) -> None:
        snapshot = world([box("h1", 4)], running(gang("r", 1, 3), ("h1", (0, 1, 2))), gang("e", 8, elastic=sizes(2, 8)))
        (reason,) = reasons(snapshot, POLICY, ())
        assert "8" not in reason.sentence
        assert (reason.asked, reason.available) == (2_000, 1_000)


class TestWhoReturns:
    def names(self, record: JobRecord, *others: JobRecord, policy: Policy = POLICY) -> tuple[list[str], list[str]]:
        found = returners(world([box("h1"), box("h2")], record, *others), policy)
        return [r.id for r in found.shrinkers], [r.id for r in found.movers]

    def one(self, **more: object) -> JobRecord:
        return ran("e", ("h1", (0,)), ("h1", (1,)), **{"elastic": sizes(1, 2), **more})

    def test_both(self) -> None:
        assert self.names(self.one(), queued(gang("high", tier=1))) == (["e"], ["e"])

    def test_movers_alone_where_no_one_may_evict_it(self) -> None:
        assert self.names(self.one(), queued(gang("equal"))) == ([], ["e"])

    def test_the_limits_to_the_second(self) -> None:
        high = queued(gang("high", tier=1))
        assert self.names(self.one(ran_s=600), high) == (["e"], ["e"])
        assert self.names(self.one(ran_s=599), high) == ([], [])
        costs = replace(SAVES, restart_s=300 - 45)
        assert self.names(self.one(checkpoint=costs), high) == (["e"], ["e"])
        assert self.names(self.one(checkpoint=replace(costs, restart_s=256)), high) == (["e"], [])
        assert self.names(self.one(checkpoint=replace(SAVES, write_s=6)), high) == ([], [])
        assert self.names(self.one(checkpoint=None), high) == ([], [])
        assert self.names(self.one(moves=(NOW_S - 3_599,)), high) == (["e"], [])
        assert self.names(self.one(moves=(NOW_S - 3_600,)), high) == (["e"], ["e"])

    def test_who_forbids_it(self) -> None:
        high = queued(gang("high", tier=1))
        assert self.names(self.one(movable=False), high) == (["e"], [])
        assert self.names(self.one(tier=2, preemptible=Preemptible.NEVER), high) == ([], [])
        policy = replace(POLICY, eviction=replace(POLICY.eviction, move_loss_s=0))
        assert self.names(self.one(), high, policy=policy) == (["e"], [])
        policy = replace(POLICY, objective=replace(POLICY.objective, standard_gangs=()))
        assert self.names(self.one(), policy=policy) == ([], [])

    def test_the_hour_is_shared(self) -> None:
        policy = replace(POLICY, eviction=replace(POLICY.eviction, moves_per_hour=1))
        dear = ran("a", ("h2", range(4)))
        assert self.names(self.one(), dear, policy=policy) == ([], ["e"])
        assert self.names(self.one(), replace(dear, moves=(NOW_S - 5,)), policy=policy) == ([], [])


class TestReturns:
    ELASTIC = ran("v", *(("h1", (index,)) for index in range(8)), elastic=sizes(2, 4, 8))

    def shrinks(self, *seats: tuple[str, Iterable[int]], attempt: int = 2, **more: object) -> Broken:
        high = gang("high", 1, 4, tier=1)
        fleet = [box("h1"), box("h2", 4, **more)]
        there = seats or tuple(("h1", (index,)) for index in range(4))
        blocked = running(gang("x", 1, 4, tier=1), ("h2", range(4)))
        jobs = (self.ELASTIC, high) if more or any(host == "h2" for host, _ in there) else (self.ELASTIC, blocked, high)
        act = back(self.ELASTIC, *there, attempt=attempt)
        return broken(world(fleet, *jobs), [begin(high, ("h1", range(4, 8)))], [act])

    def test_it_shrinks_for_a_higher_job(self) -> None:
        assert self.shrinks() == []

    def test_to_one_of_its_sizes(self) -> None:
        assert self.shrinks(*(("h1", (index,)) for index in range(3)))[0] == ("gang", "v", "workers")

    def test_as_its_next_attempt(self) -> None:
        assert self.shrinks(attempt=3) == [("elastic", "v", "attempts")]

    def test_on_hosts_that_take_work(self) -> None:
        seats = [("h2", (index,)) for index in range(4)]
        assert self.shrinks(*seats) == []
        assert ("eligibility", "v", "hosts") in self.shrinks(*seats, state=HostState.DOWN)
        assert ("eligibility", "v", "hosts") in self.shrinks(*seats, spare=True)

    def test_on_the_gpu_type_that_it_has(self) -> None:
        record, high = self.ELASTIC, gang("high", 1, 8, tier=1)
        fleet = [box("h1"), box("h2", 4, "A100")]
        act = back(record, *(("h2", (index,)) for index in range(4)))
        found = broken(world(fleet, record, high), [begin(high, ("h1", range(8)))], [act])
        assert found == [("elastic", "v", "GPU types")]

    def test_not_for_an_equal(self) -> None:
        equal = gang("equal", 1, 4)
        snapshot = world([box("h1")], self.ELASTIC, equal)
        act = back(self.ELASTIC, *(("h1", (index,)) for index in range(4)))
        found = broken(snapshot, [begin(equal, ("h1", range(4, 8)))], [act])
        assert ("elastic", "v", "workers") in found
        assert ("preemption", "h1/4", "victims") in found

    def test_not_needlessly(self) -> None:
        high = gang("high", 1, 4, tier=1)
        snapshot = world([box("h1"), box("h2")], self.ELASTIC, high)
        act = back(self.ELASTIC, *(("h1", (index,)) for index in range(4)))
        assert broken(snapshot, [begin(high, ("h2", range(4)))], [act]) == [("elastic", "v", "needless")]

    def test_not_preempted_as_well(self) -> None:
        high = gang("high", 1, 4, tier=1)
        act = back(self.ELASTIC, *(("h1", (index,)) for index in range(4)))
        found = broken(world([box("h1")], self.ELASTIC, high), [begin(high, ("h1", range(4, 8)))], [act], ["v"])
        assert ("elastic", "v", "returns") in found

    def test_once(self) -> None:
        high = gang("high", 1, 4, tier=1)
        act = back(self.ELASTIC, *(("h1", (index,)) for index in range(4)))
        found = broken(world([box("h1")], self.ELASTIC, high), [begin(high, ("h1", range(4, 8)))], [act, act])
        assert ("elastic", "v", "returns") in found

    def test_only_what_runs(self) -> None:
        waiting = queued(gang("w"))
        act = Resize(job=JobId("w"), attempt=1, placement=placement(gang("w"), ("h1", (0,))))
        assert ("elastic", "w", "returns") in broken(world([box("h1")], waiting), (), [act])

    def test_a_victims_room_is_not_for_it(self) -> None:
        """It may use what is free and what it leaves, not what others leave."""
        low = ran("low", ("h2", range(4)), preemptible=Preemptible.ANYTIME)
        high = gang("high", 1, 8, tier=1)
        act = back(self.ELASTIC, *(("h2", (index,)) for index in range(4)))
        snapshot = world([box("h1"), box("h2", 4)], self.ELASTIC, low, high)
        found = broken(snapshot, [begin(high, ("h1", range(8)))], [act], ["low"])
        assert {("preemption", f"h2/{index}", "victims") for index in range(4)} <= set(found)


class TestMoves:
    def moved(self, waiting: str = "big", level: dict[str, object] | None = None, **more: object) -> Broken:
        small = ran("small", ("h1", (0, 1)), **more)
        big = gang(waiting, 1, 4, **(level or {}))
        snapshot = world([box("h1", 4), box("h2", 4)], small, running(gang("x", 1, 2), ("h2", (0, 1))), big)
        return broken(snapshot, [begin(big, ("h1", range(4)))], [back(small, ("h2", (2, 3)))])

    def test_for_an_equal_and_for_a_higher_job(self) -> None:
        assert self.moved() == []
        assert self.moved(level={"tier": 1}) == []

    def test_not_for_a_lower_one(self) -> None:
        found = self.moved(level={"preemptible": Preemptible.ANYTIME})
        assert ("preemption", "h1/0", "victims") in found

    def test_only_a_named_mover(self) -> None:
        assert self.moved(movable=False) == [("elastic", "small", "moves")]

    def test_a_start_waits_for_it(self) -> None:
        small, big = ran("small", ("h1", (0, 1))), gang("big", 1, 4)
        snapshot = world([box("h1", 4), box("h2", 2)], small, big)
        acts = (back(small, ("h2", (0, 1))),)
        plan = assemble(snapshot, POLICY, [begin(big, ("h1", range(4)))], (), (), acts)
        assert plan.starts[0].after == ("small",)
        hasty = replace(plan.starts[0], after=())
        (fault,) = verify_starts(snapshot, POLICY, [hasty], (), (), acts)
        assert (str(fault.family), fault.subject) == ("preemption", "big")

    @pytest.mark.parametrize(("room_s", "faults"), [(30, []), (10, [("elastic", "small", "needless")])])
    def test_for_room_alone_where_it_pays(self, room_s: int, faults: Broken) -> None:
        """A free host of eight, against one of six and one of six: it gains 12 x `room_s`, and costs 100 GPU-seconds."""
        small, other = ran("small", ("h1", (0, 1))), running(gang("x", 1, 2), ("h2", (0, 1)))
        policy = replace(POLICY, objective=replace(POLICY.objective, room_s=room_s, usable_s=0, stranded_s=0))
        policy = replace(
            policy, objective=replace(policy.objective, standard_gangs=policy.objective.standard_gangs[1:2])
        )
        acts = [back(small, ("h2", (2, 3)))]
        assert broken(world([box("h1"), box("h2")], small, other), (), acts, policy=policy) == faults

    def test_no_more_than_the_hour_allows(self) -> None:
        policy = replace(POLICY, eviction=replace(POLICY.eviction, moves_per_hour=1))
        small = [ran(name, (host, (0,))) for name, host in (("a", "h1"), ("b", "h2"))]
        big = gang("big", 2, 4, topology=SITE)
        snapshot = world([box("h1", 4), box("h2", 4), box("h3", 2)], *small, big)
        start = begin(big, ("h1", range(4)), ("h2", range(4)))
        found = broken(snapshot, [start], [back(small[0], ("h3", (0,))), back(small[1], ("h3", (1,)))], policy=policy)
        assert ("elastic", "a", "moves") in found

    def test_it_keeps_out_of_the_domains_of_its_label(self) -> None:
        label = {"anti_affinity": (AntiAffinity(label="x"),)}
        small, other = ran("small", ("h1", (0, 1)), **label), running(gang("y", 1, 1, **label), ("h2", (0,)))
        big = gang("big", 1, 4)
        snapshot = world([box("h1", 4), box("h2", 4)], small, other, big)
        found = broken(snapshot, [begin(big, ("h1", range(4)))], [back(small, ("h2", (2, 3)))])
        assert found == [("affinity", "small", "jobs")]

    def test_it_leaves_reserved_pools_alone(self) -> None:
        policy = replace(POLICY, reserved=(ReservedPool(site="s", gpu_type="H100", gpu_milli=2_000),))
        small = ran("small", ("h1", (0, 1)))
        big = gang("big", 1, 4, tier=1)
        snapshot = world([box("h1", 4), box("h2", 2)], small, big)
        assert broken(snapshot, [begin(big, ("h1", range(4)))], [back(small, ("h2", (0, 1)))], policy=policy) == []

    def test_a_limit_counts_it_once(self) -> None:
        team = Team(id="team", limit=(GpuQuota(gpu_type="H100", gpu_milli=6_000),))
        small, big = ran("small", ("h1", (0, 1))), gang("big", 1, 4)
        snapshot = world([box("h1", 4), box("h2", 2)], small, big, teams=[team])
        acts = [back(small, ("h2", (0, 1)))]
        assert broken(snapshot, [begin(big, ("h1", range(4)))], acts) == []
        tight = replace(team, limit=(GpuQuota(gpu_type="H100", gpu_milli=5_000),))
        found = broken(replace(snapshot, teams=(tight,)), [begin(big, ("h1", range(4)))], acts)
        assert ("quota", "team", "milli-GPU") in found


class TestGrowth:
    def grows(self, *others: JobRecord, **more: object) -> Broken:
        job = gang("g", 2, elastic=sizes(2, 4), checkpoint=more.pop("checkpoint", SAVES))
        record = running(job, ("h1", (0,)), ("h1", (1,)), **{"ran_s": 3_600, **more})
        seats = tuple(("h1", (index,)) for index in range(4))
        return broken(world([box("h1")], record, *others), (), [back(record, *seats)])

    def test_where_nobody_waits(self) -> None:
        assert self.grows() == []
        assert self.grows(queued(gang("w", 1, 16))) == [("elastic", "g", "hosts")]
        assert self.grows(queued(gang("w", 1, 16, types=["A100"]))) == []
        assert self.grows(queued(gang("w", 1, 16, sites=("other",)))) == []
        assert self.grows(queued(gang("w", request=ask(0, cpu=500)))) == [("elastic", "g", "hosts")]

    def test_after_its_time(self) -> None:
        assert self.grows(ran_s=600) == []
        assert self.grows(ran_s=599) == [("elastic", "g", "s")]

    def test_once_an_hour(self) -> None:
        assert self.grows(moves=(NOW_S - 3_599,)) == [("elastic", "g", "moves")]

    def test_where_it_pays(self) -> None:
        assert self.grows(checkpoint=replace(SAVES, restart_s=3_554)) == []
        assert self.grows(checkpoint=replace(SAVES, restart_s=3_555)) == [("elastic", "g", "mGPU*s")]

    def test_not_onto_others(self) -> None:
        found = self.grows(running(gang("x", 1, 6), ("h1", range(2, 8))))
        assert {family for family, *_ in found} == {"capacity"}
