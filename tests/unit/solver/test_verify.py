"""The verifier, family by family: a case just inside, one just outside, and a grossly bad one."""

from __future__ import annotations

from dataclasses import replace

import pytest
from small_worlds import ask, begin, box, card, decide, gang, placement, queued, role, running, world

from phalanx.model.decision import Decision, Preemption, RuleFamily, Start
from phalanx.model.host import Host, HostState
from phalanx.model.ids import HostId, JobId, ReservationId, SiteId
from phalanx.model.job import Job, Parallelism, TopologyConstraint
from phalanx.model.job_state import JobState
from phalanx.model.placement import Placement, WorkerPlacement
from phalanx.model.policy import Policy
from phalanx.model.snapshot import Snapshot
from phalanx.model.topology import Layer, Site
from phalanx.solver.verify import verify, verify_starts

POLICY = Policy()


def broken(snapshot: Snapshot, *starts: Start, policy: Policy = POLICY) -> list[tuple[str, str, int, str]]:
    """Family, subject, amount and unit of each violation."""
    found = verify_starts(snapshot, policy, starts)
    assert all(violation.message and violation.amount > 0 for violation in found)
    return [(str(v.family), v.subject, v.amount, v.unit) for v in found]


def test_a_good_decision_has_no_violation() -> None:
    job = gang("a", 2, 8)
    snapshot = world([box("h1"), box("h2")], job)
    assert verify(snapshot, POLICY, decide(snapshot, begin(job, ("h1", range(8)), ("h2", range(8))))) == ()


class TestGang:
    def test_all_workers_of_all_roles_in_rank_order(self) -> None:
        job = gang("a", roles=(role("trainer", 2, ask(4)), role("reader", 1, ask(0))))
        snapshot = world([box("h1")], queued(job, attempt=3))
        start = begin(job, ("h1", range(4)), ("h1", range(4, 8)), ("h1", ()), attempt=4)
        assert broken(snapshot, start) == []

    def test_one_worker_missing(self) -> None:
        job = gang("a", 2, 1)
        assert broken(world([box("h1")], job), begin(job, ("h1", [0]))) == [("gang", "a", 1, "workers")]

    def test_one_worker_too_many(self) -> None:
        job = gang("a", 1, 1)
        extra = (
            *placement(job, ("h1", [0])).workers,
            WorkerPlacement(role="worker", index=1, host=HostId("h1"), gpus=(1,)),
        )
        start = Start(job=job.id, attempt=1, placement=Placement(workers=extra))
        assert broken(world([box("h1")], job), start) == [("gang", "a", 1, "workers")]

    def test_ranks_swapped(self) -> None:
        job = gang("a", 2, 1)
        workers = placement(job, ("h1", [0]), ("h1", [1])).workers
        start = Start(job=job.id, attempt=1, placement=Placement(workers=workers[::-1]))
        assert broken(world([box("h1")], job), start) == [("gang", "a", 2, "workers")]

    @pytest.mark.parametrize(("attempt", "by"), [(0, 1), (2, 1), (9, 8)])
    def test_only_the_next_attempt(self, attempt: int, by: int) -> None:
        job = gang("a")
        start = begin(job, ("h1", [0]), attempt=attempt)
        assert broken(world([box("h1")], job), start) == [("gang", "a", by, "attempts")]

    def test_started_twice(self) -> None:
        job = gang("a")
        starts = begin(job, ("h1", [0])), begin(job, ("h1", [1]))
        assert broken(world([box("h1")], job), *starts) == [("gang", "a", 1, "starts")]

    @pytest.mark.parametrize("state", [JobState.HELD, JobState.BLOCKED, JobState.FAILED])
    def test_only_queued_jobs_start(self, state: JobState) -> None:
        job = gang("a")
        snapshot = world([box("h1")], queued(job, state=state))
        assert broken(snapshot, begin(job, ("h1", [0]))) == [("gang", "a", 1, "starts")]

    def test_a_back_off_that_ends_now_is_over(self) -> None:
        job = gang("a")
        over = world([box("h1")], queued(job, not_before_s=1_000_000))
        assert broken(over, begin(job, ("h1", [0]))) == []
        lasting = world([box("h1")], queued(job, not_before_s=1_000_001))
        assert broken(lasting, begin(job, ("h1", [0]))) == [("gang", "a", 1, "starts")]

    def test_a_job_that_does_not_exist(self) -> None:
        assert broken(world([box("h1")]), begin(gang("ghost"), ("h1", [0]))) == [("gang", "ghost", 1, "starts")]


class TestEligibility:
    def one(self, host: Host, job: Job, gpus: list[int], policy: Policy = POLICY) -> list[tuple[str, str, int, str]]:
        return broken(world([host], job), begin(job, (host.id, gpus)), policy=policy)

    def test_card_memory_to_the_mib(self) -> None:
        assert self.one(box("h1"), gang("a", request=ask(1, card_gib=80)), [0]) == []
        assert self.one(box("h1"), gang("a", request=ask(1, card_gib=81)), [0]) == [("eligibility", "a", 1024, "MiB")]

    def test_unacceptable_type(self) -> None:
        assert self.one(box("h1"), gang("a", types=["H100", "A100"]), [0]) == []
        assert self.one(box("h1"), gang("a", types=["A100"]), [0]) == [("eligibility", "a", 1, "GPUs")]

    def test_broken_card(self) -> None:
        host = box("h1", [card(0), card(1, healthy=False)])
        assert self.one(host, gang("a"), [0]) == []
        assert self.one(host, gang("a"), [1]) == [("eligibility", "a", 1, "GPUs")]

    @pytest.mark.parametrize("state", [state for state in HostState if state is not HostState.READY])
    def test_host_that_takes_no_work(self, state: HostState) -> None:
        assert self.one(box("h1", state=state), gang("a"), [0]) == [("eligibility", "a", 1, "hosts")]

    def test_spare_host(self) -> None:
        assert self.one(box("h1", spare=True), gang("a"), [0]) == [("eligibility", "a", 1, "hosts")]

    def test_kinds_mixed_in_one_worker(self) -> None:
        host = box("h1", [card(0), card(1, memory_gib=94)])
        assert self.one(host, gang("a", 1, 2), [0, 1]) == [("eligibility", "a", 1, "kinds")]

    def test_types_mixed_in_one_role_but_not_over_roles(self) -> None:
        host = box("h1", [card(0), card(1, "A100")])
        job = gang("a", 2, 1)
        assert broken(world([host], job), begin(job, ("h1", [0]), ("h1", [1]))) == [
            ("eligibility", "a", 1, "GPU types")
        ]
        apart = gang("b", roles=(role("x", 1, ask(1)), role("y", 1, ask(1))))
        assert broken(world([host], apart), begin(apart, ("h1", [0]), ("h1", [1]))) == []

    def test_memory_of_cards_may_differ_between_workers(self) -> None:
        host = box("h1", [card(0), card(1, memory_gib=94)])
        job = gang("a", 2, 1)
        assert broken(world([host], job), begin(job, ("h1", [0]), ("h1", [1]))) == []

    def test_worker_without_gpus_holds_none(self) -> None:
        assert self.one(box("h1"), gang("a", request=ask(0)), [0, 1]) == [("eligibility", "a", 2, "GPUs")]

    def test_cards_and_hosts_that_do_not_exist(self) -> None:
        job = gang("a")
        assert ("eligibility", "a", 1, "GPUs") in self.one(box("h1", 1), job, [5])
        assert broken(world([box("h1")], job), begin(job, ("nowhere", [0]))) == [("eligibility", "a", 1, "hosts")]

    def test_sites_pinned(self) -> None:
        job = gang("a", sites=(SiteId("north"),))
        snapshot = world([box("h1", site="north"), box("h2", site="south")], job)
        assert broken(snapshot, begin(job, ("h1", [0]))) == []
        assert broken(snapshot, begin(job, ("h2", [0]))) == [("eligibility", "a", 1, "hosts")]

    def test_production_stays_on_premises_unless_job_or_policy_says_otherwise(self) -> None:
        def away(policy: Policy, **more: object) -> list[tuple[str, str, int, str]]:
            job = gang("a", **more)
            snapshot = replace(world([box("h1")], job), sites=(Site(id=SiteId("s"), on_premises=False),))
            return broken(snapshot, begin(job, ("h1", [0])), policy=policy)

        assert away(POLICY, tier=3) == []
        assert away(POLICY, tier=2) == [("eligibility", "a", 1, "hosts")]
        assert away(POLICY, tier=2, off_premises=True) == []
        assert away(POLICY, tier=3, off_premises=False) == [("eligibility", "a", 1, "hosts")]
        assert away(replace(POLICY, production_off_premises=True), tier=1) == []


class TestCapacity:
    def test_whole_cards_to_the_last(self) -> None:
        first, second = gang("r", 1, 7), gang("a")
        snapshot = world([box("h1")], running(first, ("h1", range(7))), second)
        assert broken(snapshot, begin(second, ("h1", [7]))) == []
        assert broken(snapshot, begin(second, ("h1", [6]))) == [("capacity", "h1/6", 1, "workers")]

    def test_two_starts_on_one_card(self) -> None:
        a, b = gang("a"), gang("b")
        snapshot = world([box("h1")], a, b)
        assert broken(snapshot, begin(a, ("h1", [0])), begin(b, ("h1", [0]))) == [("capacity", "h1/0", 1, "workers")]

    def test_fractions_to_the_milli(self) -> None:
        held = running(gang("r", request=ask(0.7)), ("h1", [0]))
        fits, over = gang("a", request=ask(0.3)), gang("b", request=ask(0.301))
        snapshot = world([box("h1")], held, fits, over)
        assert broken(snapshot, begin(fits, ("h1", [0]))) == []
        assert broken(snapshot, begin(over, ("h1", [0]))) == [
            ("capacity", "h1/0", 1, "milli-GPU"),
            ("capacity", "h1/0", 81, "MiB"),
        ]

    def test_fraction_on_a_whole_card(self) -> None:
        whole = running(gang("r"), ("h1", [0]))
        part = gang("a", request=ask(0.1))
        assert broken(world([box("h1")], whole, part), begin(part, ("h1", [0]))) == [("capacity", "h1/0", 1, "workers")]

    def test_card_memory_of_fractions_to_the_mib(self) -> None:
        held = running(gang("r", request=ask(0.1, card_gib=50)), ("h1", [0]))
        fits, over = gang("a", request=ask(0.1, card_gib=30)), gang("b", request=ask(0.1, card_gib=31))
        snapshot = world([box("h1")], held, fits, over)
        assert broken(snapshot, begin(fits, ("h1", [0]))) == []
        assert broken(snapshot, begin(over, ("h1", [0]))) == [("capacity", "h1/0", 1024, "MiB")]

    def test_a_card_is_shared_within_one_team_only(self) -> None:
        held = running(gang("r", request=ask(0.1)), ("h1", [0]))
        other = gang("a", request=ask(0.1), team="others")
        snapshot = world([box("h1")], held, other)
        assert broken(snapshot, begin(other, ("h1", [1]))) == []
        assert broken(snapshot, begin(other, ("h1", [0]))) == [("capacity", "h1/0", 1, "teams")]

    @pytest.mark.parametrize(
        ("request_", "over", "unit"),
        [
            (ask(1, cpu=32.001), 1, "milli-cores"),
            (ask(1, memory_gib=257), 1024, "MiB"),
            (ask(1, network_mbps=50_001), 1, "Mbit/s"),
            (ask(1, cpu=64), 32_000, "milli-cores"),
        ],
    )
    def test_host_amounts_to_the_unit(self, request_: object, over: int, unit: str) -> None:
        held = running(gang("r", request=ask(1, cpu=32, memory_gib=256, network_mbps=50_000)), ("h1", [0]))
        just = gang("a", request=ask(1, cpu=32, memory_gib=256, network_mbps=50_000))
        assert broken(world([box("h1")], held, just), begin(just, ("h1", [1]))) == []
        job = gang("b", request=request_)
        assert broken(world([box("h1")], held, job), begin(job, ("h1", [1]))) == [("capacity", "h1", over, unit)]

    @pytest.mark.parametrize(("gpus", "given", "by"), [(2, [0], 1), (1, [0, 1], 1), (8, [], 8), (0.5, [0, 1], 1)])
    def test_a_worker_holds_the_cards_it_asks(self, gpus: float, given: list[int], by: int) -> None:
        job = gang("a", 1, gpus)
        assert ("capacity", "a", by, "GPUs") in broken(world([box("h1")], job), begin(job, ("h1", given)))

    def test_work_that_already_exceeds_a_host_is_not_the_decision_s_fault(self) -> None:
        crowded = running(gang("r", request=ask(1, cpu=100)), ("h1", [0]))
        twice = running(gang("t"), ("h1", [0]))
        light, other = gang("a", request=ask(1, cpu=0)), gang("b", request=ask(1, cpu=2))
        snapshot = world([box("h1"), box("h2")], crowded, twice, light, other)
        assert broken(snapshot, begin(other, ("h2", [0]))) == []
        assert broken(snapshot, begin(light, ("h1", [1]))) == []
        assert broken(snapshot, begin(other, ("h1", [1]))) == [("capacity", "h1", 2_000, "milli-cores")]

    @pytest.mark.parametrize("state", [JobState.PLANNED, JobState.STARTING, JobState.STOPPING])
    def test_planned_starting_and_stopping_work_holds_its_cards(self, state: JobState) -> None:
        held, job = running(gang("r"), ("h1", [0]), state=state), gang("a")
        assert broken(world([box("h1")], held, job), begin(job, ("h1", [0]))) == [("capacity", "h1/0", 1, "workers")]


class TestTopology:
    def fleet(self) -> list[Host]:
        return [
            box("h1", rack="r1", zone="z1"),
            box("h2", rack="r1", zone="z1"),
            box("h3", rack="r2", zone="z1"),
            box("h4", rack="r3", zone="z2"),
            box("h5", site="t"),
        ]

    def spread(self, job: Job, *hosts: str, policy: Policy = POLICY) -> list[tuple[str, str, int, str]]:
        return broken(world(self.fleet(), job), begin(job, *((host, range(8)) for host in hosts)), policy=policy)

    def test_a_job_that_fits_on_one_host_stays_on_one(self) -> None:
        job = gang("a", 2, 4)
        snapshot = world(self.fleet(), job)
        assert broken(snapshot, begin(job, ("h1", range(4)), ("h1", range(4, 8)))) == []
        assert broken(snapshot, begin(job, ("h1", range(4)), ("h2", range(4)))) == [
            ("topology", "a", 1, "host domains")
        ]

    def test_a_larger_one_stays_in_one_site(self) -> None:
        assert self.spread(gang("a", 2, 8), "h1", "h4") == []
        assert self.spread(gang("a", 2, 8), "h1", "h5") == [("topology", "a", 1, "site domains")]

    def test_across_sites_only_where_policy_and_job_allow_it(self) -> None:
        both = replace(POLICY, cross_site=True)
        assert self.spread(gang("a", 2, 8, cross_site=True), "h1", "h5", policy=both) == []
        assert self.spread(gang("a", 2, 8, cross_site=False), "h1", "h5", policy=both) != []
        assert self.spread(gang("a", 2, 8, cross_site=True), "h1", "h5") != []

    def test_required_layer(self) -> None:
        racked = gang("a", 2, 8, topology=(TopologyConstraint(layer=Layer.RACK),))
        assert self.spread(racked, "h1", "h2") == []
        assert self.spread(racked, "h1", "h3") == [("topology", "a", 1, "rack domains")]
        far = gang("a", 4, 8, topology=(TopologyConstraint(layer=Layer.RACK),))
        assert self.spread(far, "h1", "h2", "h3", "h4") == [("topology", "a", 2, "rack domains")]

    def test_tensor_groups_in_one_nvlink_domain(self) -> None:
        job = gang("a", 4, 8, parallelism=Parallelism(tensor=2, data=2))
        fleet = [box("h1", nvlink="n1"), box("h2", nvlink="n1"), box("h3", nvlink="n2"), box("h4", nvlink="n2")]

        def groups(*hosts: str) -> list[tuple[str, str, int, str]]:
            return broken(world(fleet, job), begin(job, *((host, range(8)) for host in hosts)))

        assert groups("h1", "h2", "h3", "h4") == []
        assert groups("h1", "h3", "h2", "h4") == [("topology", "a", 1, "nvlink domains")] * 2


class TestDecision:
    def world(self) -> tuple[Snapshot, Decision]:
        job = gang("a")
        snapshot = world([box("h1")], job)
        return snapshot, decide(snapshot, begin(job, ("h1", [0])))

    def families(self, snapshot: Snapshot, decision: Decision) -> list[tuple[RuleFamily | None, str, int]]:
        return [(v.family, v.subject, v.amount) for v in verify(snapshot, POLICY, decision)]

    def test_a_stated_value_off_by_one(self) -> None:
        snapshot, decision = self.world()
        first, *rest = decision.goals
        up = replace(decision, goals=(replace(first, value=first.value + 1, bound=first.bound + 1), *rest))
        assert self.families(snapshot, up) == [(None, "start[1]", 1)]

    def test_a_value_above_its_bound(self) -> None:
        snapshot, decision = self.world()
        first, *rest = decision.goals
        low = replace(decision, goals=(replace(first, bound=first.value - 7), *rest))
        assert self.families(snapshot, low) == [(None, "start[1]", 7)]

    def test_goals_left_out(self) -> None:
        snapshot, decision = self.world()
        assert self.families(snapshot, replace(decision, goals=())) == [(None, "goals", 3)]

    def test_wrong_parts_and_units(self) -> None:
        snapshot, decision = self.world()
        first, economy, last = decision.goals
        bad = replace(economy, parts=economy.parts[::-1])
        assert self.families(snapshot, replace(decision, goals=(first, bad, last))) == [(None, "economy", 1)]
        named = replace(last, unit="GPU")
        assert self.families(snapshot, replace(decision, goals=(first, economy, named))) == [(None, "order", 1)]

    def test_preemptions_are_judged_with_the_starts(self) -> None:
        snapshot, decision = self.world()
        act = Preemption(job=JobId("x"), attempt=1, beneficiaries=(JobId("a"),), loss_gpu_s=0)
        assert self.families(snapshot, replace(decision, preemptions=(act,))) == [(RuleFamily.PREEMPTION, "x", 1)]
        waits = replace(decision, starts=(replace(decision.starts[0], after=(JobId("x"),)),))
        assert self.families(snapshot, waits) == [(RuleFamily.PREEMPTION, "a", 1)]

    def test_reservations_and_resizes_are_not_allowed(self) -> None:
        snapshot, decision = self.world()
        released = replace(decision, releases=(ReservationId("r"),))
        assert self.families(snapshot, released) == [(RuleFamily.RESERVATION, "r", 1)]


def test_every_fault_is_reported_at_once() -> None:
    job = gang("a", 2, 1, types=["A100"], topology=(TopologyConstraint(layer=Layer.HOST),))
    other = gang("b", request=ask(8, cpu=65))
    snapshot = world([box("h1"), box("h2", state=HostState.DOWN)], job, other)
    found = broken(snapshot, begin(job, ("h1", [0]), ("h2", [0])), begin(other, ("h1", range(8)), attempt=7))
    assert {family for family, *_ in found} == {"gang", "eligibility", "capacity", "topology"}
