"""Goals recomputed by hand: each number below is worked out from docs/rounds.md."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from small_worlds import ask, begin, box, card, gang, queued, role, running, stop, world

from phalanx.model.decision import Preemption
from phalanx.model.job import CheckpointPolicy, GpuTypeChoice, Parallelism, Preemptible, Strictness, TopologyConstraint
from phalanx.model.job_state import JobState
from phalanx.model.policy import FairShareStep, ObjectivePolicy, OrderPolicy, Policy, StandardGang
from phalanx.model.snapshot import Snapshot
from phalanx.model.topology import Layer
from phalanx.solver.goals import values

PLAIN = Policy(
    order=OrderPolicy(
        base_weight=100, size_weight=0, age_weight=0, fair_share=(FairShareStep(share_milli=1_000, weight=0),)
    ),
    objective=ObjectivePolicy(
        standard_gangs=(), usable_s=0, stranded_s=0, scarce_s=0, wanted_s=0, spread_s=0, room_s=0
    ),
)
"""Every milli-GPU weighs 100 hundredths, and nothing else is worth anything."""


def worth(snapshot: Snapshot, policy: Policy, *starts: object, stops: Sequence[Preemption] = ()) -> dict[str, int]:
    found: dict[str, int] = {}
    for goal in values(snapshot, policy, starts, stops):
        found[goal.name] = goal.value
        found.update((part.name, part.value) for part in goal.parts)
        assert not goal.parts or goal.value == sum(part.value for part in goal.parts)
    return found


def test_no_candidate_no_goals() -> None:
    assert values(world([box("h1")], running(gang("r"), ("h1", [0]))), PLAIN, ()) == ()


def test_levels_with_a_candidate_only_highest_first() -> None:
    jobs = gang("low", preemptible=Preemptible.ANYTIME), gang("high", tier=1), gang("mid", tier=3)
    assert [goal.name for goal in values(world([box("h1")], *jobs), PLAIN, ())] == [
        "start[3]",
        "start[1]",
        "start[0]",
        "economy",
        "order",
    ]


def test_started_milli_times_weight_times_horizon() -> None:
    a, b = gang("a", 2, 4), gang("b", request=ask(0.5))
    snapshot = world([box("h1"), box("h2")], a, b)
    both = begin(a, ("h1", range(4)), ("h1", range(4, 8))), begin(b, ("h2", [0]))
    found = worth(snapshot, PLAIN, *both)
    assert found["start[1]"] == 8_500 * 3_600
    assert found["order"] == 2 + 1
    assert worth(snapshot, PLAIN)["start[1]"] == 0


def test_size_and_age_add_to_the_weight() -> None:
    policy = replace(PLAIN, order=replace(PLAIN.order, size_weight=9, age_weight=4, age_full_s=1_000))
    big, small = gang("big", 1, 8), gang("small", 1, 4)
    snapshot = world([box("h1"), box("h2")], queued(big, 500), queued(small, 2_000))
    assert worth(snapshot, policy, begin(big, ("h1", range(8))))["start[1]"] == 36 * 8_000 * (100 + 9 + 2)
    assert worth(snapshot, policy, begin(small, ("h1", range(4))))["start[1]"] == 36 * 4_000 * (100 + 4 + 4)


def test_credit_of_a_team_falls_and_carries_down_the_levels() -> None:
    steps = (FairShareStep(share_milli=500, weight=80), FairShareStep(share_milli=1_000, weight=20))
    policy = replace(PLAIN, order=replace(PLAIN.order, fair_share=steps))
    high, low = gang("high", 1, 6, tier=1), gang("low", 1, 1)
    snapshot = world([box("h1")], high, low)
    found = worth(snapshot, policy, begin(high, ("h1", range(6))), begin(low, ("h1", [7])))
    # One team: its share is all 8 GPUs; the first 4 earn 80 each, the next 4 earn 20.
    assert found["start[3]"] == 36 * (6_000 * 100 + 4_000 * 80 + 2_000 * 20)
    assert found["start[1]"] == 36 * (1_000 * 100 + 4_000 * 80 + 3_000 * 20)


def test_gangs_without_gpus_count_a_little() -> None:
    job = gang("a", roles=(role("worker", 3, ask(0)),))
    found = worth(world([box("h1")], job), PLAIN, begin(job, ("h1", ()), ("h1", ()), ("h1", ())))
    assert found["start[1]"] == 36 * 3 * 50 * 100


def test_speed_is_lost_on_slower_types() -> None:
    choices = (GpuTypeChoice(gpu_type="H100", throughput_milli=3_000), GpuTypeChoice(gpu_type="A100"))
    job = gang("a", roles=(replace(role("worker", 2, ask(1)), gpu_types=choices),))
    snapshot = world([box("h1"), box("a1", gpu_type="A100")], job)
    assert worth(snapshot, PLAIN, begin(job, ("h1", [0]), ("h1", [1])))["speed"] == 0
    slow = worth(snapshot, PLAIN, begin(job, ("a1", [0]), ("a1", [1])))
    assert slow["speed"] == -2 * (1_000 * 3_600 * 2_000 // 3_000)
    only = world([box("a1", gpu_type="A100")], job)
    assert worth(only, PLAIN, begin(job, ("a1", [0]), ("a1", [1])))["speed"] == 0, "the faster type does not exist"


def test_spread_over_preferred_layers() -> None:
    policy = replace(PLAIN, objective=replace(PLAIN.objective, spread_s=120))
    fleet = [box("h1", rack="r1", zone="z1"), box("h2", rack="r2", zone="z1"), box("h3", rack="r3", zone="z2")]
    job = gang("a", 3, 8)
    spread = worth(world(fleet, job), policy, begin(job, *((h, range(8)) for h in ("h1", "h2", "h3"))))
    # Three racks and two zones where one of each is preferred.
    assert spread["speed"] == -(2 + 1) * 120 * 24_000
    near = gang("b", 2, 4, topology=(TopologyConstraint(layer=Layer.RACK, strictness=Strictness.PREFERRED),))
    found = worth(world(fleet, near), policy, begin(near, ("h1", range(4)), ("h3", range(4))))
    assert found["speed"] == -1 * 120 * 8_000


def test_pipelines_that_leave_a_domain() -> None:
    policy = replace(PLAIN, objective=replace(PLAIN.objective, spread_s=120))
    fleet = [box("h1", rack="r1", zone="z1"), box("h2", rack="r2", zone="z1")]
    job = gang(
        "a",
        4,
        4,
        parallelism=Parallelism(pipeline=2, data=2),
        topology=(TopologyConstraint(layer=Layer.SITE),),
    )

    def paid(*hosts: str) -> int:
        cards = {"h1": iter((range(4), range(4, 8))), "h2": iter((range(4), range(4, 8)))}
        return worth(world(fleet, job), policy, begin(job, *((h, next(cards[h])) for h in hosts)))["speed"]

    # Data-parallel replicas are also wanted in one zone, which both hosts are in.
    assert paid("h1", "h1", "h2", "h2") == 0
    # Both replicas leave their NVLink domain and their rack, not the zone; a replica has 8 GPUs.
    assert paid("h1", "h2", "h1", "h2") == -2 * 2 * 120 * 8_000


def test_rare_types_cost() -> None:
    policy = replace(PLAIN, objective=replace(PLAIN.objective, scarce_s=30))
    job = gang("a")
    snapshot = world([box("h1"), box("a1", 2, "A100")], job)
    assert worth(snapshot, policy, begin(job, ("h1", [0])))["scarce"] == 0
    assert worth(snapshot, policy, begin(job, ("a1", [0])))["scarce"] == -(1_000 * 30 * 6 // 8)


def test_types_that_jobs_must_have_cost() -> None:
    policy = replace(PLAIN, objective=replace(PLAIN.objective, wanted_s=300))
    job = gang("a")
    fleet = [box("h1", 6), box("a1", 2, "A100")]
    # One GPU of eight must be an A100, of which a quarter of the fleet is.
    snapshot = world(fleet, job, gang("others", 6, 1), gang("bound", types=["A100"]))
    assert worth(snapshot, policy, begin(job, ("h1", [0])))["scarce"] == 0
    assert worth(snapshot, policy, begin(job, ("a1", [0])))["scarce"] == -(1_000 * 300 * 500 // 1_000)


def test_free_cards_that_the_host_can_serve() -> None:
    policy = replace(PLAIN, objective=replace(PLAIN.objective, usable_s=60))
    job, cpus = gang("a", request=ask(1, cpu=8)), gang("cpus", request=ask(0, cpu=12))
    snapshot = world([box("h1", 4, cpu_milli=32_000), box("h2", 4, cpu_milli=32_000)], job, cpus)
    assert worth(snapshot, policy)["room"] == 8_000 * 60
    assert worth(snapshot, policy, begin(job, ("h1", [0])))["room"] == 7_000 * 60
    # 12 of 32 cores gone: 20 serve two of four cards; then one card and 8 cores more, which serve one of three.
    assert worth(snapshot, policy, begin(cpus, ("h2", [])))["room"] == 6_000 * 60
    assert worth(snapshot, policy, begin(cpus, ("h2", [])), begin(job, ("h2", [0])))["room"] == 5_000 * 60
    assert worth(snapshot, policy, begin(cpus, ("h2", [])), begin(job, ("h1", [0])))["room"] == 5_000 * 60


def test_cards_that_the_host_cannot_serve_are_no_room_for_gangs() -> None:
    gangs = (StandardGang(workers=1, gpus=4, layer=Layer.HOST),)
    policy = replace(PLAIN, objective=replace(PLAIN.objective, standard_gangs=gangs, room_s=60))
    job, cpus = gang("a", request=ask(1, cpu=8)), gang("cpus", request=ask(0, cpu=1))
    snapshot = world([box("h1", 4, cpu_milli=32_000)], job, cpus)
    assert worth(snapshot, policy)["room"] == 4_000 * 60
    assert worth(snapshot, policy, begin(cpus, ("h1", [])))["room"] == 0


def test_room_for_standard_gangs() -> None:
    gangs = (
        StandardGang(workers=2, gpus=4, layer=Layer.RACK),
        StandardGang(workers=1, gpus=8, layer=Layer.HOST),
    )
    policy = replace(
        PLAIN,
        objective=ObjectivePolicy(
            standard_gangs=gangs, usable_s=0, stranded_s=0, scarce_s=0, wanted_s=0, spread_s=0, room_s=60
        ),
    )
    job = gang("a")
    fleet = [box("h1", rack="r1"), box("h2", rack="r1"), box("h3", 6, rack="r2"), box("spare", rack="r3", spare=True)]
    snapshot = world(fleet, job)
    # r1 holds 4 workers of 4, r2 only one: 2 gangs of 8 GPUs; two hosts hold one of 8.
    assert worth(snapshot, policy)["room"] == (2 + 2) * 8_000 * 60
    one = worth(snapshot, policy, begin(job, ("h1", [0])))
    # One card gone: r1 holds 3 workers of 4, that is one gang; and one host of 8 is left.
    assert one["room"] == (1 + 1) * 8_000 * 60
    assert worth(snapshot, policy, begin(job, ("h3", [0])))["room"] == (2 + 2) * 8_000 * 60


def test_broken_and_shared_cards_are_no_room() -> None:
    gangs = (StandardGang(workers=1, gpus=1, layer=Layer.HOST),)
    policy = replace(
        PLAIN,
        objective=ObjectivePolicy(
            standard_gangs=gangs, usable_s=0, stranded_s=0, scarce_s=0, wanted_s=0, spread_s=0, room_s=1
        ),
    )
    part = running(gang("r", request=ask(0.1)), ("h1", [0]))
    fleet = [box("h1", [card(0), card(1, healthy=False), card(2)])]
    assert worth(world(fleet, part, gang("a")), policy)["room"] == 1_000


def test_starts_of_other_jobs_count_for_nothing() -> None:
    a, held = gang("a"), gang("b")
    snapshot = world([box("h1")], a, queued(held, state=JobState.HELD))
    assert worth(snapshot, PLAIN, begin(held, ("h1", [0])), begin(gang("ghost"), ("h1", [1]))) == worth(snapshot, PLAIN)


class TestVictims:
    def names(self, *jobs: object) -> list[str]:
        return [goal.name for goal in values(world([box("h1"), box("h2")], *jobs), PLAIN, ())]

    def test_a_level_with_a_possible_victim_is_listed(self) -> None:
        low = gang("low", preemptible=Preemptible.ANYTIME)
        listed = ["start[1]", "spare[0]", "economy", "order"]
        assert self.names(running(low, ("h1", [0]), ran_s=600), gang("a")) == listed
        assert self.names(running(low, ("h1", [0]), ran_s=599), gang("a")) == ["start[1]", "economy", "order"]

    def test_a_level_that_nobody_may_evict_is_not(self) -> None:
        same = running(gang("same"), ("h1", [0]), ran_s=900)
        assert self.names(same, gang("low", preemptible=Preemptible.ANYTIME)) == ["start[0]", "economy", "order"]

    def test_a_victim_costs_its_own_level_its_gpus_over_the_horizon_and_its_loss(self) -> None:
        saves = CheckpointPolicy(interval_s=1_000, write_s=60, restart_s=7, grace_s=20)
        low = running(gang("low", 1, 8, checkpoint=saves), ("h1", range(8)), ran_s=5_000)
        high = gang("high", 1, 8, tier=1)
        snapshot = world([box("h1")], low, high)
        found = worth(snapshot, PLAIN, begin(high, ("h1", range(8))), stops=[stop(low, "high")])
        # Half an interval lost, 7 s to restart, and 20 s grace, 10 s cleaning, 30 s launch in which the GPUs idle.
        assert (found["start[3]"], found["spare[1]"]) == (8_000 * 3_600, -8_000 * (3_600 + 500 + 7 + 60))

    def test_a_victim_s_free_cards_are_room(self) -> None:
        gangs = (StandardGang(workers=1, gpus=2, layer=Layer.HOST),)
        policy = replace(
            PLAIN,
            objective=ObjectivePolicy(
                standard_gangs=gangs, usable_s=0, stranded_s=0, scarce_s=0, wanted_s=0, spread_s=0, room_s=60
            ),
        )
        low, high = running(gang("low", 1, 8), ("h1", range(8)), ran_s=900), gang("high", 1, 5, tier=1)
        snapshot = world([box("h1")], low, high)
        start = begin(high, ("h1", range(5)))
        assert worth(snapshot, policy, start)["room"] == 0
        assert worth(snapshot, policy, start, stops=[stop(low, "high")])["room"] == 2_000 * 60

    def test_preemptions_that_are_none_count_for_nothing(self) -> None:
        fresh, high = running(gang("low", 1, 8), ("h1", range(8))), gang("high", tier=1)
        snapshot = world([box("h1")], fresh, high)
        assert worth(snapshot, PLAIN, stops=[stop(fresh, "high")]) == worth(snapshot, PLAIN)
