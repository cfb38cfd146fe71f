"""What went wrong elsewhere when running work is stopped for other work (K1, K2, K8, K9, K27, V6, V7, V10, V11, S7, P8)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from small_worlds import NOW_S, POLICY, ask, box, carried_out, gang, queued, role, running, world

from phalanx.model.decision import ReasonKind, RuleFamily
from phalanx.model.job import CheckpointPolicy, Preemptible, TopologyConstraint
from phalanx.model.job_state import JobState
from phalanx.model.placement import Progress
from phalanx.model.snapshot import JobRecord, Snapshot
from phalanx.model.topology import Layer
from phalanx.solver.explain import reasons
from phalanx.solver.plan import Plan

Planned = Callable[[Snapshot], Plan]
SITE = (TopologyConstraint(layer=Layer.SITE),)
ANYTIME = Preemptible.ANYTIME


def low(name: str, *seats: tuple[str, Iterable[int]], gpus: int | None = None, **more: object) -> JobRecord:
    """A gang of tier 4 that runs since an hour, on these hosts and cards."""
    facts = {key: more.pop(key) for key in ("ran_s", "progress", "evictions") if key in more}
    places = [(host, tuple(cards)) for host, cards in seats]
    asked = more.pop("request", None) or ask(len(places[0][1]) if gpus is None else gpus)
    job = gang(name, len(places), request=asked, **{"tier": 4, "topology": SITE, **more})
    return running(job, *places, **{"ran_s": 3_600, **facts})


def high(name: str, workers: int = 1, gpus: float = 8, **more: object) -> JobRecord:
    """A waiting gang of tier 1."""
    return queued(gang(name, workers, gpus, **{"tier": 1, **more}))


def victims(plan: Plan) -> set[str]:
    return {act.job for act in plan.preemptions}


def hosts(plan: Plan, job: str) -> set[str]:
    return {host for start in plan.starts if start.job == job for host in start.placement.hosts}


class TestHostFit:
    def test_k1_one_victim_frees_cores_and_another_cards_of_the_same_host(self, planned: Planned) -> None:
        fleet = [box(name, cpu_milli=8_000) for name in ("h1", "h2")]
        cores = [low(f"cpu{h}", (f"h{h}", ()), request=ask(0, cpu=5)) for h in (1, 2)]
        cards = [low(f"gpu{h}", (f"h{h}", range(8)), request=ask(8, cpu=0.01)) for h in (1, 2)]
        plan = planned(world(fleet, *cores, *cards, high("std", request=ask(8, cpu=5))))
        (host,) = hosts(plan, "std")
        assert victims(plan) == {f"cpu{host[1]}", f"gpu{host[1]}"}

    def test_k1_as_gangs_over_both_hosts(self, planned: Planned) -> None:
        fleet = [box(name, cpu_milli=8_000) for name in ("h1", "h2")]
        cores = low("cpu", ("h1", ()), ("h2", ()), request=ask(0, cpu=5))
        cards = low("gpu", ("h1", range(8)), ("h2", range(8)), request=ask(8, cpu=0.01))
        plan = planned(world(fleet, cores, cards, high("std", request=ask(8, cpu=5))))
        assert victims(plan) == {"cpu", "gpu"}
        assert plan.starts[0].after == ("cpu", "gpu")

    def crowded(self, *more: JobRecord) -> Snapshot:
        """K2: every host has six high cards and two low ones."""
        jobs = []
        for h in range(4):
            jobs += [running(gang(f"high{h}{c}", tier=1), (f"h{h}", [c]), ran_s=3_600) for c in range(6)]
            jobs += [low(f"low{h}{c}", (f"h{h}", [c])) for c in (6, 7)]
        return world([box(f"h{h}") for h in range(4)], *jobs, *more)

    def test_k2_nobody_is_evicted_where_no_host_can_be_emptied(self, planned: Planned) -> None:
        snapshot = self.crowded(high("J"))
        plan = planned(snapshot)
        assert plan == Plan()
        (reason,) = reasons(snapshot, POLICY, plan.starts, plan.preemptions)
        assert (reason.kind, reason.families, reason.available) == (ReasonKind.BUSY, (RuleFamily.CAPACITY,), 0)
        assert "not enough without room that jobs of its own or a higher level hold" in reason.sentence

    def test_k2_and_it_does_not_block_a_small_one_behind_it(self, planned: Planned) -> None:
        plan = planned(self.crowded(high("J"), high("small", 1, 1)))
        assert [start.job for start in plan.starts] == ["small"]
        assert len(victims(plan)) == 1
        assert all(name.startswith("low") for name in victims(plan))

    def test_k27_work_without_gpus_leaves_for_the_cores(self, planned: Planned) -> None:
        fleet = [box(f"h{n}") for n in range(10)]
        cpu = [low(f"cpu{n}", (f"h{n}", ()), request=ask(0, cpu=40)) for n in range(10)]
        plan = planned(world(fleet, *cpu, high("J", 10, request=ask(8, cpu=48))))
        assert victims(plan) == {f"cpu{n}" for n in range(10)}
        assert len(hosts(plan, "J")) == 10

    def test_v7_free_and_freed_hosts_together(self, planned: Planned) -> None:
        plan = planned(world([box("h1"), box("h2")], low("low", ("h2", range(8))), high("J", 2)))
        assert (victims(plan), hosts(plan, "J")) == ({"low"}, {"h1", "h2"})
        assert plan.starts[0].after == ("low",)


class TestFewestAndCheapest:
    def test_k8_nobody_where_there_is_room_else_one(self, planned: Planned) -> None:
        fleet = [box(f"h{n}") for n in range(4)]
        jobs = [low(f"r{n}", (f"h{n}", range(8))) for n in range(4)]
        assert victims(planned(world(fleet, *jobs[:3], high("J")))) == set()
        assert len(victims(planned(world(fleet, *jobs, high("J"))))) == 1

    def test_k9_a_victim_that_two_gangs_need_goes_for_one_of_them(self, planned: Planned) -> None:
        fleet = [box(t.lower(), gpu_type=t) for t in ("A100", "H100", "H200")]
        jobs = [low(name, (host, range(8))) for name, host in (("x", "a100"), ("y", "h100"), ("z", "h200"))]

        def pair(name: str, one: str, two: str) -> JobRecord:
            return high(name, roles=(role("left", 1, ask(8), [one]), role("right", 1, ask(8), [two])))

        plan = planned(world(fleet, *jobs, pair("a", "A100", "H100"), pair("b", "H100", "H200")))
        assert ([start.job for start in plan.starts], victims(plan)) in ((["a"], {"x", "y"}), (["b"], {"y", "z"}))

    def test_v6_one_whole_gang_rather_than_a_worker_of_each(self, planned: Planned) -> None:
        fleet = [box(f"h{n}", 10) for n in range(10)]
        gangs = [low(f"g{c}", *((f"h{n}", [c]) for n in range(10))) for c in range(10)]
        assert len(victims(planned(world(fleet, *gangs, high("P", 10, 1, topology=SITE))))) == 1

    def test_v10_who_frees_nothing_that_is_needed_stays(self, planned: Planned) -> None:
        fleet = [box("h1"), box("c1", 0)]
        elsewhere = low("elsewhere", ("c1", ()), request=ask(0, cpu=60), preemptible=ANYTIME)
        beside = low("beside", ("h1", ()), request=ask(0, cpu=40), preemptible=ANYTIME)
        holder = low("holder", ("h1", range(8)))
        assert victims(planned(world(fleet, elsewhere, beside, holder, high("P")))) == {"holder"}

    def test_v11_two_small_victims(self, planned: Planned) -> None:
        jobs = [low("a", ("h1", range(4))), low("b", ("h1", range(4, 8)))]
        assert victims(planned(world([box("h1")], *jobs, high("P")))) == {"a", "b"}

    def sizes(self, saved: dict[int, int]) -> list[JobRecord]:
        """S7: gangs of 2, 4 and 8 hosts; `saved` says how many seconds ago each wrote its last checkpoint."""
        jobs, first = [], 0
        saves = CheckpointPolicy(interval_s=600, write_s=60)
        for size, ago in saved.items():
            seats = [(f"h{n}", range(8)) for n in range(first, first + size)]
            progress = Progress(last_checkpoint_s=NOW_S - ago)
            jobs.append(low(f"v{size}", *seats, ran_s=50_000, checkpoint=saves, progress=progress))
            first += size
        return jobs

    def test_s7_the_one_of_the_right_size(self, planned: Planned) -> None:
        fleet = [box(f"h{n}") for n in range(14)]
        assert victims(planned(world(fleet, *self.sizes({2: 60, 4: 60, 8: 60}), high("J", 8)))) == {"v8"}

    def test_s7_two_that_lose_little_rather_than_one_that_loses_ten_hours(self, planned: Planned) -> None:
        fleet = [box(f"h{n}") for n in range(16)]
        assert victims(planned(world(fleet, *self.sizes({2: 60, 4: 60, 8: 36_000}), high("J", 8)))) == {"v2", "v4"}

    def test_the_lowest_level_first_whatever_it_loses(self, planned: Planned) -> None:
        cheap = low("cheap", ("h1", range(8)), ran_s=900_000, preemptible=ANYTIME)
        dear = low("dear", ("h2", range(8)), ran_s=700)
        assert victims(planned(world([box("h1"), box("h2")], dear, cheap, high("J")))) == {"cheap"}

    def test_four_cards_that_lose_ten_hours_stay_and_eight_that_lose_a_minute_go(self, planned: Planned) -> None:
        saves = CheckpointPolicy(interval_s=600, write_s=60)
        long = low("long", ("h1", range(4)), ran_s=36_000)
        short = low("short", ("h2", range(8)), ran_s=900, checkpoint=saves, progress=Progress(last_checkpoint_s=NOW_S))
        fleet = [box("h1", 4), box("h2")]
        assert victims(planned(world(fleet, long, short, high("J", 1, 4)))) == {"short"}


class TestAgeAndStability:
    def slots(self, *records: JobRecord) -> Snapshot:
        return world([box("h", 2)], *records)

    def test_p8_the_youngest_leaves_and_keeps_its_place_in_the_queue(self, planned: Planned) -> None:
        e1, e2 = low("e1", ("h", [0]), ran_s=9_000), low("e2", ("h", [1]), ran_s=1_000)
        e2 = replace(e2, submitted_s=NOW_S - 5_000)
        e3 = queued(gang("e3", tier=4), 3_000)
        plan = planned(self.slots(e1, e2, e3, high("e4", 1, 1)))
        assert ([start.job for start in plan.starts], victims(plan)) == (["e4"], {"e2"})
        back = replace(e2, state=JobState.QUEUED, placement=None, started_s=None, evictions=(NOW_S,))
        assert [start.job for start in planned(self.slots(e1, back, e3)).starts] == ["e2"]

    def test_the_victim_queues_again_and_nobody_else_leaves(self, planned: Planned) -> None:
        jobs = [low("x", ("h1", range(4))), low("y", ("h1", range(4, 8))), low("z", ("h2", range(8)))]
        snapshot = world([box("h1"), box("h2")], *jobs, high("J", 1, 4))
        plan = planned(snapshot)
        assert len(victims(plan)) == 1
        assert planned(carried_out(snapshot, plan)).preemptions == ()

    def test_no_pair_evicts_each_other(self, planned: Planned) -> None:
        one, two = gang("one", 1, 8, tier=2), gang("two", 1, 8, tier=3)
        runs = running(two, ("h1", range(8)), ran_s=900)
        assert victims(planned(world([box("h1")], runs, one))) == {"two"}
        assert victims(planned(world([box("h1")], running(one, ("h1", range(8)), ran_s=900), two))) == set()

    def test_a_job_is_evicted_three_times_a_day_at_most(self, planned: Planned) -> None:
        record = low("low", ("h", [0, 1]))
        for _ in range(3):
            assert victims(planned(self.slots(record, high("J", 1, 2)))) == {"low"}
            record = replace(record, evictions=(*record.evictions, NOW_S - 1))
        assert victims(planned(self.slots(record, high("J", 1, 2)))) == set()

    def test_what_is_freed_is_for_the_one_it_was_freed_for(self, planned: Planned) -> None:
        # Four of the victim's cards are left over; a job of the victim's own level must not take them in this round.
        snapshot = world([box("h1")], low("low", ("h1", range(8))), high("J", 1, 4), gang("same", 1, 4, tier=4))
        plan = planned(snapshot)
        assert ([start.job for start in plan.starts], victims(plan)) == (["J"], {"low"})
        (reason,) = reasons(snapshot, POLICY, plan.starts, plan.preemptions)
        assert (reason.job, reason.kind, reason.available) == ("same", ReasonKind.BUSY, 0)


class TestWeight:
    def test_weight_buys_no_eviction_among_equals(self, planned: Planned) -> None:
        """a could take the running gang's cards, so that an aged equal of that gang gets the free ones."""
        runs = low("r", ("h1", range(4)), checkpoint=CheckpointPolicy(interval_s=600, write_s=5, grace_s=30))
        aged = replace(queued(gang("aged", 1, 4, tier=4)), submitted_s=0)
        plan = planned(world([box("h1")], runs, high("a", gpus=4), aged))
        assert victims(plan) == set()
        assert {start.job for start in plan.starts} == {"a"}
