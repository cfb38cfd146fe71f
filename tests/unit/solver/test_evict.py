"""The greedy with preemption: who leaves, what stays kept back, and when it would rather not."""

from __future__ import annotations

from dataclasses import replace

from small_worlds import NOW_S, POLICY, ask, begin, box, gang, queued, role, running, world

from phalanx.model.ids import JobId
from phalanx.model.job import CheckpointPolicy, Preemptible, TopologyConstraint
from phalanx.model.placement import Progress
from phalanx.model.snapshot import JobRecord, Snapshot
from phalanx.model.topology import Layer
from phalanx.solver.evict import greedy_plan
from phalanx.solver.greedy import greedy
from phalanx.solver.plan import Plan, assemble
from phalanx.solver.reprieve import reprieve
from phalanx.solver.verify import verify_starts

RACK = (TopologyConstraint(layer=Layer.RACK),)


def plan(snapshot: Snapshot) -> Plan:
    found = greedy_plan(snapshot, POLICY)
    assert verify_starts(snapshot, POLICY, found.starts, found.preemptions) == ()
    return found


def runs(name: str, host: str, *gpus: int, ran_s: int = 3_600, **more: object) -> JobRecord:
    facts = {key: more.pop(key) for key in ("progress", "evictions") if key in more}
    asked = more.pop("request", None) or ask(len(gpus))
    return running(gang(name, request=asked, **{"tier": 4, **more}), (host, gpus), ran_s=ran_s, **facts)


def high(name: str, workers: int = 1, gpus: float = 8, **more: object) -> JobRecord:
    return queued(gang(name, workers, gpus, **{"tier": 1, **more}))


def outcome(found: Plan) -> tuple[set[str], set[str]]:
    return {start.job for start in found.starts}, {act.job for act in found.preemptions}


def test_without_possible_victims_it_is_the_greedy() -> None:
    snapshot = world([box("h1"), box("h2")], runs("r", "h1", 0, tier=1), high("a"), high("b", 1, 4))
    found = plan(snapshot)
    assert {start.job: start.placement for start in found.starts} == {
        start.job: start.placement for start in greedy(snapshot, POLICY)
    }
    assert found.preemptions == ()


def test_starts_and_victims_come_in_the_order_of_the_snapshot_and_name_each_other() -> None:
    jobs = [runs("z", "h1", *range(8)), runs("a", "h2", *range(8))]
    found = plan(world([box("h1"), box("h2")], *jobs, high("y", 2)))
    assert [act.job for act in found.preemptions] == ["z", "a"]
    assert found.starts[0].after == ("z", "a")
    assert all(act.beneficiaries == ("y",) for act in found.preemptions)


def test_a_victim_keeps_its_cards_where_others_are_free() -> None:
    assert outcome(plan(world([box("h1"), box("h2")], runs("r", "h1", *range(8)), high("a")))) == ({"a"}, set())


def test_the_host_whose_work_loses_least() -> None:
    saves = CheckpointPolicy(interval_s=600, write_s=60)
    jobs = [
        runs(f"r{n}", f"h{n:02}", *range(8), checkpoint=saves, progress=Progress(last_checkpoint_s=NOW_S - 100 * n))
        for n in (7, 3, 9, 1, 5)
    ]
    snapshot = world([box(f"h{n:02}") for n in (1, 3, 5, 7, 9)], *jobs, high("a"))
    assert outcome(plan(snapshot)) == ({"a"}, {"r1"})


def test_of_one_host_those_that_lose_least() -> None:
    jobs = [runs(f"r{n}", "h1", 2 * n, 2 * n + 1, ran_s=1_000 + 500 * n) for n in range(4)]
    assert outcome(plan(world([box("h1")], *jobs, high("a", 1, 4)))) == ({"a"}, {"r0", "r1"})


def test_the_rack_that_is_cheapest_to_clear() -> None:
    fleet = [box(f"h{n}", rack=f"r{n // 2}") for n in range(6)]
    jobs = [runs(f"v{n}", f"h{n}", *range(8), ran_s=9_000 - 1_000 * n) for n in range(5)]
    found = plan(world(fleet, *jobs, high("a", 2, topology=RACK)))
    assert outcome(found) == ({"a"}, {"v4"})


def test_each_level_takes_from_those_below_it() -> None:
    fleet = [box(f"h{n}") for n in range(3)]
    jobs = [
        runs("zero", "h0", *range(8), preemptible=Preemptible.ANYTIME),
        runs("one", "h1", *range(8)),
        runs("two", "h2", *range(8), tier=2),
    ]
    waiting = [high("top"), queued(gang("mid", 1, 8, tier=2)), queued(gang("low", 1, 8, tier=4))]
    found = plan(world(fleet, *jobs, *waiting))
    assert outcome(found) == ({"top", "mid"}, {"zero", "one"})
    assert {act.job: act.beneficiaries for act in found.preemptions} == {"zero": ("top",), "one": ("mid",)}


def test_what_a_victim_leaves_over_goes_to_higher_levels_only() -> None:
    jobs = [runs("r", "h1", *range(8)), high("a", 1, 4)]
    mine, above = queued(gang("mine", 1, 4, tier=4)), queued(gang("above", 1, 4, tier=2))
    assert outcome(plan(world([box("h1")], *jobs, mine))) == ({"a"}, {"r"})
    assert outcome(plan(world([box("h1")], *jobs, above))) == ({"a", "above"}, {"r"})


def test_free_cards_are_taken_before_anybody_leaves() -> None:
    jobs = [runs("r", "h1", *range(4)), high("a", 1, 4), queued(gang("mine", 1, 4, tier=4))]
    assert outcome(plan(world([box("h1")], *jobs))) == ({"a"}, set())


def test_cards_that_no_victim_held_are_for_all_levels() -> None:
    jobs = [runs("r", "h1", *range(6)), high("a", 1, 6), queued(gang("mine", 1, 2, tier=4))]
    assert outcome(plan(world([box("h1")], *jobs))) == ({"a", "mine"}, {"r"})


def test_cores_left_over_are_kept_back_too() -> None:
    jobs = [runs("r", "h1", request=ask(0, cpu=60)), high("a", request=ask(1, cpu=30))]
    other = queued(gang("mine", request=ask(1, cpu=20), tier=4))
    assert outcome(plan(world([box("h1")], *jobs, other))) == ({"a"}, {"r"})


def test_a_shared_card_is_left_by_as_few_as_needed() -> None:
    jobs = [runs(f"r{n}", "h1", 0, request=ask(part), ran_s=700 + n) for n, part in enumerate((0.3, 0.3, 0.4))]
    assert outcome(plan(world([box("h1", 1)], *jobs, high("a", request=ask(0.5))))) == ({"a"}, {"r0", "r1"})
    whole = outcome(plan(world([box("h1", 1)], *jobs, high("a", 1, 1))))
    assert whole == ({"a"}, {"r0", "r1", "r2"})
    other = outcome(plan(world([box("h1", 1)], *jobs, high("a", request=ask(0.1), team="others"))))
    assert other == ({"a"}, {"r0", "r1", "r2"})


def test_roles_of_one_gang() -> None:
    job = high("a", roles=(role("trainer", 2, ask(8)), role("reader", 4, ask(0, cpu=20))))
    jobs = [runs(f"r{n}", f"h{n}", *range(8)) for n in range(2)]
    assert outcome(plan(world([box("h0"), box("h1"), box("c", 0)], *jobs, job))) == ({"a"}, {"r0", "r1"})


def test_reprieve_keeps_the_dearest_of_those_that_could_stay() -> None:
    cheap, dear = runs("cheap", "h1", *range(4), ran_s=900), runs("dear", "h1", *range(4, 8), ran_s=90_000)
    job = gang("a", 1, 2, tier=1)
    snapshot = world([box("h1", 10)], cheap, dear, job)
    beside = reprieve(snapshot, POLICY, [begin(job, ("h1", (8, 9)))], [JobId("cheap"), JobId("dear")])
    assert beside == assemble(snapshot, POLICY, [begin(job, ("h1", (8, 9)))], [])
    on_it = reprieve(snapshot, POLICY, [begin(job, ("h1", (0, 1)))], [JobId("cheap"), JobId("dear")])
    assert outcome(on_it) == ({"a"}, {"cheap"})
    cores = replace(job, roles=(role("worker", 1, ask(0, cpu=10)),))
    six = [runs(name, "h1", request=ask(0, cpu=6), ran_s=ran_s) for name, ran_s in (("cheap", 900), ("dear", 90_000))]
    tight = world([box("h1", cpu_milli=12_000)], *six, cores)
    both = reprieve(tight, POLICY, [begin(cores, ("h1", ()))], [JobId("cheap"), JobId("dear")])
    assert outcome(both) == ({"a"}, {"cheap", "dear"})
    less = replace(job, roles=(role("worker", 1, ask(0, cpu=5)),))
    tight = replace(tight, jobs=(*tight.jobs[:2], queued(less)))
    one = reprieve(tight, POLICY, [begin(less, ("h1", ()))], [JobId("cheap"), JobId("dear")])
    assert outcome(one) == ({"a"}, {"cheap"})
