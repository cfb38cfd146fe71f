"""Reasons: one case for each kind, with its amounts, and tips that hold when they are followed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from small_worlds import NOW_S, POLICY, ask, box, card, gang, queued, role, running, world

from phalanx.model.decision import Reason, ReasonKind, RuleFamily
from phalanx.model.host import Host, HostState
from phalanx.model.ids import JobId, SiteId
from phalanx.model.job import Job, Preemptible, TopologyConstraint
from phalanx.model.job_state import JobState
from phalanx.model.policy import Policy
from phalanx.model.snapshot import JobRecord
from phalanx.model.topology import Layer
from phalanx.solver.evict import greedy_plan
from phalanx.solver.explain import Explainer, reasons
from phalanx.solver.greedy import greedy

RACKED = (TopologyConstraint(layer=Layer.RACK),)


def why(hosts: list[Host], *records: JobRecord | Job, policy: Policy = POLICY) -> dict[str, Reason]:
    snapshot = world(hosts, *records)
    return {reason.job: reason for reason in reasons(snapshot, policy, greedy(snapshot, policy))}


def busy(name: str, host: str, *gpus: int, **more: object) -> JobRecord:
    return running(gang(name, 1, len(gpus), **more), (host, gpus))


def told(reason: Reason) -> tuple[ReasonKind, tuple[RuleFamily, ...], str, int, int, str]:
    return reason.kind, reason.families, reason.subject, reason.asked, reason.available, reason.unit


def test_started_jobs_have_no_reason_and_waiting_ones_keep_the_snapshot_s_order() -> None:
    jobs = [gang(name, 1, 8) for name in "cab"]
    assert list(why([box("h1")], *jobs)) == ["a", "b"]


class TestStanding:
    def test_never_fits(self) -> None:
        reason = why([box("h1")], gang("a", 1, 9, types=["H100"]))["a"]
        assert told(reason)[:2] == (ReasonKind.NEVER_FITS, (RuleFamily.CAPACITY,))
        assert reason.helps == ("with 8 GPUs per worker",)
        assert "asks 9 GPUs of one kind on one host" in reason.sentence

    def test_held(self) -> None:
        reason = why([box("h1")], queued(gang("a"), state=JobState.HELD))["a"]
        assert told(reason)[:2] == (ReasonKind.HELD, ())
        assert "release it" in reason.sentence

    def test_blocked_names_the_unfinished(self) -> None:
        done = queued(gang("done"), state=JobState.SUCCEEDED)
        job = queued(gang("a", after=(JobId("done"), JobId("r"))), state=JobState.BLOCKED)
        reason = why([box("h1")], done, busy("r", "h1", 0), job)["a"]
        assert told(reason) == (ReasonKind.BLOCKED, (), "r", 1, 0, "jobs")
        assert reason.sentence == "It waits for job r to succeed first."

    def test_back_off_says_how_long(self) -> None:
        reason = why([box("h1")], queued(gang("a"), not_before_s=NOW_S + 90))["a"]
        assert told(reason) == (ReasonKind.BACK_OFF, (), "", 90, 0, "s")
        assert "1 min 30 s" in reason.sentence


class TestShortage:
    def test_outranked_names_who_went_ahead(self) -> None:
        reason = why([box("h1")], gang("first", 1, 8), gang("a", 1, 4))["a"]
        assert told(reason) == (ReasonKind.OUTRANKED, (RuleFamily.CAPACITY,), "first", 4_000, 0, "mGPU")

    def test_busy_says_how_many_are_free(self) -> None:
        reason = why([box("h1")], busy("r", "h1", 0, 1, 2, 3, 4), gang("a", 1, 8))["a"]
        assert told(reason) == (ReasonKind.BUSY, (RuleFamily.CAPACITY,), "any type", 8_000, 3_000, "mGPU")
        assert "starts at once with 2 GPUs per worker" in reason.helps

    def test_busy_type_with_another_free_is_about_the_type(self) -> None:
        fleet = [box("h1"), box("a1", gpu_type="A100")]
        reason = why(fleet, busy("r", "a1", *range(8)), gang("a", 1, 8, types=["A100"]))["a"]
        assert told(reason) == (ReasonKind.BUSY, (RuleFamily.ELIGIBILITY,), "A100", 8_000, 0, "mGPU")
        assert reason.helps[0] == "starts at once on H100"

    def test_scattered_gpus(self) -> None:
        fleet = [box("h1", rack="r"), box("h2", rack="r")]
        reason = why(fleet, busy("r", "h1", 0, 1, 2), busy("s", "h2", 0, 1, 2), gang("a", 1, 8))["a"]
        assert told(reason) == (ReasonKind.FRAGMENTED, (RuleFamily.CAPACITY,), "any type", 8_000, 10_000, "mGPU")
        assert reason.helps[0] == "starts at once as 2 workers with 4 GPUs each on several hosts"

    @pytest.mark.parametrize(
        ("request_", "subject", "asked", "available", "unit"),
        [
            (ask(1, cpu=40), "CPU", 40_000, 0, "milli-cores"),
            (ask(1, memory_gib=300), "memory", 300 * 1024, 0, "MiB"),
            (ask(1, network_mbps=60_000), "network", 60_000, 0, "Mbit/s"),
        ],
    )
    def test_other_amounts(self, request_: object, subject: str, asked: int, available: int, unit: str) -> None:
        held = running(gang("r", request=ask(1, cpu=32, memory_gib=256, network_mbps=50_000)), ("h1", [0]))
        reason = why([box("h1")], held, gang("a", request=request_))["a"]
        assert told(reason) == (ReasonKind.BUSY, (RuleFamily.CAPACITY,), subject, asked, available, unit)
        assert reason.helps

    def test_topology(self) -> None:
        fleet = [box(f"h{n}", rack=f"r{n // 2}", zone="z") for n in range(4)]
        job = gang("a", 2, 8, topology=RACKED)
        reason = why(fleet, busy("r", "h0", 0), busy("s", "h2", 0), job)["a"]
        assert told(reason) == (ReasonKind.TOPOLOGY, (RuleFamily.TOPOLOGY,), "rack", 2, 1, "workers")
        assert reason.helps[0] == "starts at once inside one zone instead of one rack"

    def test_site(self) -> None:
        fleet = [box("h1", site="x"), box("h2", site="y")]
        reason = why(fleet, busy("r", "h1", 0), gang("a", 1, 8, sites=(SiteId("x"),)))["a"]
        assert told(reason) == (ReasonKind.BUSY, (RuleFamily.ELIGIBILITY,), "any type at x", 8_000, 7_000, "mGPU")

    def test_card_memory(self) -> None:
        host = box("h1", [card(0), card(1, memory_gib=40)])
        reason = why([host], busy("r", "h1", 0), gang("a", request=ask(1, card_gib=80)))["a"]
        assert told(reason)[1:3] == ((RuleFamily.ELIGIBILITY,), "any type with 80 GiB each")

    def test_hosts_out_of_work_are_named_with_their_state(self) -> None:
        fleet = [box("h1"), box("h2", state=HostState.CORDONED), box("h3", 0, spare=True)]
        reason = why(fleet, busy("r", "h1", 0), gang("a", 1, 8))["a"]
        assert told(reason)[:3] == (ReasonKind.HOSTS_UNAVAILABLE, (RuleFamily.ELIGIBILITY,), "h2 is cordoned")

    def test_broken_cards(self) -> None:
        host = box("h1", [card(0), card(1, healthy=False)])
        reason = why([host], gang("a", 1, 2))["a"]
        assert told(reason)[0] == ReasonKind.HOSTS_UNAVAILABLE
        assert "broken GPUs of h1" in reason.sentence

    def test_two_demands_at_once(self) -> None:
        fleet = [box("h1", state=HostState.DOWN), box("h2", 1)]
        held = running(gang("r", 1, 1), ("h1", [0]))
        reason = why(fleet, held, gang("a", 1, 8))["a"]
        assert reason.families == (RuleFamily.ELIGIBILITY, RuleFamily.CAPACITY)
        assert reason.besides == "room that is in use"
        assert "h1 is down" in reason.sentence
        assert "besides" in reason.sentence

    def test_a_gang_without_gpus(self) -> None:
        held = running(gang("r", request=ask(0, cpu=64)), ("h1", ()))
        reason = why([box("h1")], held, gang("a", roles=(role("worker", 2, ask(0, cpu=4)),)))["a"]
        assert told(reason) == (ReasonKind.BUSY, (RuleFamily.CAPACITY,), "CPU", 8_000, 0, "milli-cores")


class TestPreemption:
    """Reasons around running work of lower levels, and after a plan that evicts."""

    def reason(self, held: JobRecord, *more: JobRecord | Job, workers: int = 1, gpus: int = 8) -> Reason:
        job = gang("a", workers, gpus, tier=1)
        return self.told([box("h1")], held, *more, job)["a"]

    def told(self, hosts: list[Host], *records: JobRecord | Job) -> dict[str, Reason]:
        snapshot = world(hosts, *records)
        plan = greedy_plan(snapshot, POLICY)
        return {reason.job: reason for reason in reasons(snapshot, POLICY, plan.starts, plan.preemptions)}

    def held(self, *gpus: int, ran_s: int = 900, name: str = "r", **more: object) -> JobRecord:
        facts = {key: more.pop(key) for key in ("evictions", "state") if key in more}
        return running(gang(name, 1, len(gpus), **{"tier": 4, **more}), ("h1", gpus), ran_s=ran_s, **facts)

    @pytest.mark.parametrize(
        ("facts", "words"),
        [
            ({"ran_s": 599}, "r has run for 9 min 59 s of at least 10 min"),
            ({"evictions": (NOW_S - 5, NOW_S - 4, NOW_S - 3)}, "r was preempted 3 times in 1 d"),
            ({"preemptible": Preemptible.NEVER}, "r may never be preempted"),
            ({"state": JobState.STARTING}, "r is starting"),
        ],
    )
    def test_who_is_protected_and_why(self, facts: dict[str, object], words: str) -> None:
        reason = self.reason(self.held(*range(8), **facts))
        assert told(reason) == (ReasonKind.BUSY, (RuleFamily.PREEMPTION,), words, 8_000, 0, "mGPU")
        assert "held by jobs of lower levels that it may not preempt now: r " in reason.sentence

    def test_only_those_in_the_way_are_named(self) -> None:
        jobs = [self.held(0, 1, ran_s=60), self.held(2, 3, ran_s=900, name="old")]
        beside = running(gang("cpu", request=ask(0), tier=4), ("h1", ()), ran_s=60)
        assert self.reason(*jobs, beside).subject == "r has run for 1 min of at least 10 min"

    def test_work_of_its_own_level_is_no_matter_of_preemption(self) -> None:
        reason = self.reason(self.held(*range(8), tier=1))
        assert (reason.families, reason.besides) == ((RuleFamily.CAPACITY,), "")

    def test_what_is_below_does_not_hold_enough(self) -> None:
        reason = self.reason(self.held(*range(6), tier=1), self.held(6, 7, name="low"))
        assert told(reason)[:2] == (ReasonKind.BUSY, (RuleFamily.CAPACITY,))
        assert "not enough without room that jobs of its own or a higher level hold." in reason.sentence

    def test_protected_work_and_a_second_thing(self) -> None:
        fleet = [box("h1"), box("h2", state=HostState.DOWN)]
        reason = self.told(fleet, self.held(*range(8), ran_s=60), gang("a", 2, 8, tier=1))["a"]
        assert reason.families == (RuleFamily.ELIGIBILITY, RuleFamily.PREEMPTION)
        assert reason.besides == "room held by jobs that may not be preempted now"

    def test_cards_that_a_victim_leaves_over_are_not_told_free_to_its_equals(self) -> None:
        jobs = [self.held(*range(8)), gang("first", 1, 4, tier=1)]
        equal = self.told([box("h1")], *jobs, gang("a", 1, 4, tier=4))["a"]
        assert told(equal) == (ReasonKind.BUSY, (RuleFamily.CAPACITY,), "any type", 4_000, 0, "mGPU")
        above = self.told([box("h1")], *jobs, gang("a", 1, 8, tier=2))["a"]
        assert told(above)[:3] == (ReasonKind.OUTRANKED, (RuleFamily.CAPACITY,), "first")

    def test_a_victim_that_nobody_asked_to_leave(self) -> None:
        snapshot = world([box("h1")], self.held(*range(8)), gang("a", 1, 8, tier=1))
        (reason,) = reasons(snapshot, POLICY, ())
        assert reason.kind is ReasonKind.UNDECIDED
        assert "others could be preempted for it" in reason.sentence


def test_a_gang_that_fits_and_was_not_started_is_undecided() -> None:
    snapshot = world([box("h1")], gang("a"))
    (reason,) = reasons(snapshot, POLICY, ())
    assert (reason.kind, reason.families) == (ReasonKind.UNDECIDED, ())
    assert "it fits" in reason.sentence


def test_without_work_left_only_what_lies_in_the_job_is_told() -> None:
    snapshot = world([box("h1")], gang("a", 1, 8), gang("b", 1, 4), queued(gang("c"), state=JobState.HELD))
    explainer = Explainer(snapshot, POLICY, greedy(snapshot, POLICY), most_work=-1)
    assert [explainer.reason(record).kind for record in snapshot.jobs[1:]] == [ReasonKind.UNDECIDED, ReasonKind.HELD]


def test_equal_requests_get_equal_reasons() -> None:
    found = why([box("h1")], busy("r", "h1", 0), *(gang(f"j{n}", 1, 8) for n in range(3)))
    assert {replace(reason, job=JobId("x")) for reason in found.values()} == {replace(found["j0"], job=JobId("x"))}


def test_tips_hold_when_they_are_followed() -> None:
    fleet = [box("h1", rack="r"), box("h2", rack="r"), box("a1", gpu_type="A100")]
    filled = [busy("r", "h1", 0, 1, 2), busy("s", "h2", 0, 1, 2)]
    tips = why(fleet, *filled, gang("a", 1, 8, types=["H100"]))["a"].helps
    assert tips[0] == "starts at once on A100"
    assert tips[1] == "starts at once as 2 workers with 4 GPUs each on several hosts"
    assert why(fleet, *filled, gang("a", 1, 8, types=["A100"])) == {}
    spread = (TopologyConstraint(layer=Layer.SITE),)
    assert why(fleet, *filled, gang("a", 2, 4, types=["H100"], topology=spread)) == {}
