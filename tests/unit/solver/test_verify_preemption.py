"""The verifier on preemption: for each rule a plan just inside and one just outside."""

from __future__ import annotations

from dataclasses import replace

import pytest
from small_worlds import NOW_S, POLICY, ask, begin, box, decide, gang, queued, running, stop, world

from phalanx.model.decision import Preemption, Start
from phalanx.model.ids import JobId
from phalanx.model.job import CheckpointPolicy, Preemptible
from phalanx.model.job_state import JobState
from phalanx.model.snapshot import JobRecord, Snapshot
from phalanx.solver.plan import assemble
from phalanx.solver.verify import verify, verify_starts

ANY = {"preemptible": Preemptible.ANYTIME}
Broken = list[tuple[str, str, int, str]]


def broken(snapshot: Snapshot, starts: list[Start], acts: list[Preemption]) -> Broken:
    """Family, subject, amount and unit of each violation."""
    found = verify_starts(snapshot, POLICY, starts, acts)
    assert all(violation.message and violation.amount > 0 for violation in found)
    return [(str(v.family), v.subject, v.amount, v.unit) for v in found]


def planned(snapshot: Snapshot, starts: list[Start], *victims: str) -> Broken:
    """The violations of a plan whose ties and losses are stated rightly."""
    plan = assemble(snapshot, POLICY, starts, [JobId(name) for name in victims])
    return broken(snapshot, list(plan.starts), list(plan.preemptions))


def old(name: str, *gpus: int, host: str = "h1", request: object = None, **more: object) -> JobRecord:
    """A job that runs long enough to be evicted."""
    asked = request or ask(len(gpus))
    facts = {key: more.pop(key) for key in ("ran_s", "evictions", "state", "demoted") if key in more}
    return running(gang(name, request=asked, **more), (host, gpus), **{"ran_s": 900, **facts})


class TestVictims:
    def one(self, **facts: object) -> Broken:
        high = gang("high", 1, 8, tier=1)
        snapshot = world([box("h1")], old("low", *range(8), **facts), high)
        return planned(snapshot, [begin(high, ("h1", range(8)))], "low")

    def test_a_job_of_a_lower_level_that_ran_long_enough(self) -> None:
        assert self.one() == []

    def test_its_minimum_run_time_to_the_second(self) -> None:
        assert self.one(ran_s=600) == []
        assert self.one(ran_s=599) == [("preemption", "low", 1, "victims")]

    def test_evictions_in_the_window(self) -> None:
        times = (NOW_S - 86_399, NOW_S - 5_000, NOW_S - 4_000)
        assert self.one(evictions=times[1:]) == []
        assert self.one(evictions=times) == [("preemption", "low", 1, "victims")]
        assert self.one(evictions=(NOW_S - 86_400, *times[1:])) == []

    def test_never_preemptible(self) -> None:
        assert self.one(preemptible=Preemptible.NEVER) == [("preemption", "low", 1, "victims")]

    @pytest.mark.parametrize("state", [JobState.PLANNED, JobState.STARTING, JobState.STOPPING])
    def test_only_running_work(self, state: JobState) -> None:
        assert self.one(state=state) == [("preemption", "low", 1, "victims")]

    def test_a_level_below(self) -> None:
        assert self.one(tier=2) == []
        assert self.one(tier=1, demoted=True) == []
        found = self.one(tier=1)
        assert ("preemption", "low", 1, "beneficiaries") in found
        assert ("preemption", "h1/0", 1, "victims") in found

    def test_a_job_that_does_not_exist(self) -> None:
        assert broken(world([box("h1")], gang("a")), [], [stop(old("ghost", 0), "a")]) == [
            ("preemption", "ghost", 1, "victims")
        ]

    def test_attempt_loss_and_number(self) -> None:
        high = gang("high", 1, 8, tier=1)
        saves = CheckpointPolicy(interval_s=700, write_s=60, restart_s=9, grace_s=20)
        low = old("low", *range(8), checkpoint=saves)
        snapshot = world([box("h1")], low, high)
        start = replace(begin(high, ("h1", range(8))), after=(JobId("low"),))
        right = stop(low, "high", loss_gpu_s=8 * (350 + 9 + 60))
        assert broken(snapshot, [start], [right]) == []
        assert broken(snapshot, [start], [replace(right, attempt=3)]) == [("preemption", "low", 2, "attempts")]
        assert broken(snapshot, [start], [replace(right, loss_gpu_s=3_350)]) == [("preemption", "low", 2, "GPU*s")]
        assert broken(snapshot, [start], [right, right]) == [("preemption", "low", 1, "preemptions")]

    def test_a_loss_is_rounded_up(self) -> None:
        low, high = old("low", 0, request=ask(0.3)), gang("high", tier=1)
        snapshot = world([box("h1", 1)], low, high)
        start = replace(begin(high, ("h1", [0])), after=(JobId("low"),))
        assert broken(snapshot, [start], [stop(low, "high", loss_gpu_s=291)]) == []


class TestTies:
    def plan(self) -> tuple[Snapshot, list[Start], list[Preemption]]:
        a, b = gang("a", 1, 4, tier=1), gang("b", 1, 4, tier=2)
        snapshot = world([box("h1")], old("x", *range(8)), a, b)
        plan = assemble(snapshot, POLICY, [begin(a, ("h1", range(4))), begin(b, ("h1", range(4, 8)))], [JobId("x")])
        return snapshot, list(plan.starts), list(plan.preemptions)

    def test_a_victim_leaves_for_all_starts_of_higher_levels_on_its_hosts(self) -> None:
        snapshot, starts, acts = self.plan()
        assert (starts[0].after, starts[1].after, acts[0].beneficiaries) == (("x",), ("x",), ("a", "b"))
        assert broken(snapshot, starts, acts) == []

    def test_a_start_that_does_not_wait(self) -> None:
        snapshot, starts, acts = self.plan()
        assert broken(snapshot, [replace(starts[0], after=()), starts[1]], acts) == [("preemption", "a", 1, "victims")]

    def test_a_start_that_waits_for_a_job_that_does_not_leave(self) -> None:
        snapshot, starts, acts = self.plan()
        waits = replace(starts[0], after=(JobId("x"), JobId("b")))
        assert broken(snapshot, [waits, starts[1]], acts) == [("preemption", "a", 1, "victims")]

    @pytest.mark.parametrize("told", [(), ("a",), ("b", "a"), ("a", "b", "c")])
    def test_beneficiaries_left_out_added_or_out_of_order(self, told: tuple[str, ...]) -> None:
        snapshot, starts, acts = self.plan()
        act = replace(acts[0], beneficiaries=told)
        (found,) = broken(snapshot, starts, [act])
        assert found[:2] == ("preemption", "x")

    def test_a_victim_that_leaves_for_nobody(self) -> None:
        low, high = old("low", *range(8)), gang("high", 1, 8, tier=1)
        snapshot = world([box("h1"), box("h2")], low, high)
        found = planned(snapshot, [begin(high, ("h2", range(8)))], "low")
        assert found == [("preemption", "low", 1, "beneficiaries"), ("preemption", "low", 1, "needless")]


class TestWithheld:
    """What a victim frees goes to higher levels only."""

    def both(self, middle: int, *, freed: int = 4) -> Broken:
        """A start of level 3 takes 4 cards of a victim of level 1; one of level `middle` takes `freed` more of it."""
        tier = {2: 2, 1: 3, 0: 4}[middle]
        high, other = gang("high", 1, 4, tier=1), gang("other", 1, freed, tier=tier, **(ANY if middle == 0 else {}))
        snapshot = world([box("h1"), box("h2")], old("low", *range(8)), high, other)
        starts = [begin(high, ("h1", range(4))), begin(other, ("h1", range(4, 4 + freed)))]
        return planned(snapshot, starts, "low")

    def test_whole_cards(self) -> None:
        assert self.both(2) == []
        assert self.both(1, freed=1) == [("preemption", "h1/4", 1, "victims")]
        assert self.both(0, freed=2) == [("preemption", "h1/4", 1, "victims"), ("preemption", "h1/5", 1, "victims")]

    def test_a_card_that_the_victim_never_held_is_free_to_all(self) -> None:
        high, other = gang("high", 1, 8, tier=1), gang("other", 1, 1, tier=4)
        snapshot = world([box("h1", 9)], old("low", *range(8)), high, other)
        assert planned(snapshot, [begin(high, ("h1", range(8))), begin(other, ("h1", [8]))], "low") == []

    @pytest.mark.parametrize(
        ("ask_", "unit", "over"),
        [
            (lambda n: ask(0, cpu=n), "milli-cores", 1_000),
            (lambda n: ask(0, cpu=0, memory_gib=n * 8), "MiB", 8_192),
            (lambda n: ask(0, cpu=0.001, network_mbps=int(n * 1_562.5)), "Mbit/s", 1_562),
        ],
    )
    def test_host_amounts_to_the_unit(self, ask_: object, unit: str, over: int) -> None:
        def plan(other: float, tier: int) -> Broken:
            # 64 units: 16 stay held, the victim frees 32, 16 are free.
            stays, low = old("stays", request=ask_(16), preemptible=Preemptible.NEVER), old("low", request=ask_(32))
            high, more = gang("high", request=ask_(30), tier=1), gang("more", request=ask_(other), tier=tier)
            snapshot = world([box("h1")], stays, low, high, more)
            return planned(snapshot, [begin(high, ("h1", ())), begin(more, ("h1", ()))], "low")

        assert plan(16, 3) == []
        assert plan(17, 3) == [("preemption", "h1", over, unit)]
        assert plan(17, 2) == []

    def test_fractions_of_the_same_team_to_the_milli(self) -> None:
        def plan(part: float, tier: int) -> Broken:
            # 0.4 leave, 0.3 stay, 0.3 are free.
            stays = old("stays", 0, request=ask(0.3, card_gib=1), preemptible=Preemptible.NEVER)
            low = old("low", 0, request=ask(0.4, card_gib=1))
            high = gang("high", request=ask(0.35, card_gib=1), tier=1)
            more = gang("more", request=ask(part, card_gib=1), tier=tier)
            snapshot = world([box("h1", 1)], stays, low, high, more)
            return planned(snapshot, [begin(high, ("h1", [0])), begin(more, ("h1", [0]))], "low")

        assert plan(0.3, 3) == []
        assert plan(0.301, 3) == [("preemption", "h1/0", 1, "milli-GPU")]
        assert plan(0.301, 2) == []

    def test_card_memory_of_fractions_to_the_mib(self) -> None:
        def plan(gib: int, tier: int) -> Broken:
            low, high = (
                old("low", 0, request=ask(0.1, card_gib=40)),
                gang("high", request=ask(0.1, card_gib=40), tier=1),
            )
            more = gang("more", request=ask(0.1, card_gib=gib), tier=tier)
            snapshot = world([box("h1", 1)], low, old("x", 0, request=ask(0.1, card_gib=10)), high, more)
            return planned(snapshot, [begin(high, ("h1", [0])), begin(more, ("h1", [0]))], "low")

        assert plan(30, 3) == []
        assert plan(31, 3) == [("capacity", "h1/0", 1024, "MiB"), ("preemption", "h1/0", 1024, "MiB")]

    def test_a_fraction_of_another_team_needs_the_card_empty(self) -> None:
        def plan(tier: int) -> Broken:
            low, high = old("low", 0, request=ask(0.4)), gang("high", request=ask(0.1), tier=1, team="others")
            more = gang("more", request=ask(0.1), tier=tier, team="others")
            snapshot = world([box("h1", 1)], low, high, more)
            return planned(snapshot, [begin(high, ("h1", [0])), begin(more, ("h1", [0]))], "low")

        assert plan(2) == []
        assert plan(3) == [("preemption", "h1/0", 1, "victims")]

    def test_a_whole_card_needs_every_victim_on_it_below(self) -> None:
        low, mid = old("low", 0, request=ask(0.4), **ANY), old("mid", 0, request=ask(0.4), tier=3)
        high = gang("high", tier=2)
        snapshot = world([box("h1", 1)], low, mid, high)
        assert planned(snapshot, [begin(high, ("h1", [0]))], "low", "mid") == []
        assert planned(snapshot, [begin(high, ("h1", [0]))], "low") == [("capacity", "h1/0", 1, "workers")]

    def test_capacity_is_judged_without_the_victims(self) -> None:
        low, high = old("low", *range(4), request=ask(4, cpu=60)), gang("high", request=ask(8, cpu=64), tier=1)
        snapshot = world([box("h1")], low, high)
        start = begin(high, ("h1", range(8)))
        assert planned(snapshot, [start], "low") == []
        assert ("capacity", "h1", 60_000, "milli-cores") in planned(snapshot, [start])


class TestNeedless:
    def test_every_victim_frees_something_that_is_used(self) -> None:
        high = gang("high", 1, 8, tier=1)
        snapshot = world([box("h1")], old("x", *range(4)), old("y", *range(4, 8)), high)
        assert planned(snapshot, [begin(high, ("h1", range(8)))], "x", "y") == []

    def test_one_that_could_stay(self) -> None:
        high = gang("high", 1, 4, tier=1)
        snapshot = world([box("h1")], old("x", *range(4)), old("y", *range(4, 8)), high)
        assert planned(snapshot, [begin(high, ("h1", range(4)))], "x") == []
        assert planned(snapshot, [begin(high, ("h1", range(4)))], "x", "y") == [("preemption", "y", 1, "needless")]

    def test_of_two_that_are_alike_either_is_needless(self) -> None:
        high = gang("high", request=ask(0, cpu=20), tier=1)
        jobs = [old(name, request=ask(0, cpu=30)) for name in "xy"]
        snapshot = world([box("h1")], *jobs, high)
        start = [begin(high, ("h1", ()))]
        assert planned(snapshot, start, "x") == []
        assert planned(snapshot, start, "x", "y") == [
            ("preemption", "x", 1, "needless"),
            ("preemption", "y", 1, "needless"),
        ]

    def test_a_victim_without_gpus_that_frees_the_cores_needed(self) -> None:
        high = gang("high", request=ask(8, cpu=48), tier=1)
        snapshot = world([box("h1")], old("cpu", request=ask(0, cpu=40)), high)
        assert planned(snapshot, [begin(high, ("h1", range(8)))], "cpu") == []

    def test_what_is_withheld_keeps_a_victim_needed(self) -> None:
        # 20 cores are free; `mid` may not use what `low` (its level) frees, so `lower` must leave for it as well.
        low, lower = old("low", request=ask(0, cpu=22)), old("lower", request=ask(0, cpu=22), **ANY)
        high, mid = gang("high", request=ask(0, cpu=30), tier=1), gang("mid", request=ask(0, cpu=25), tier=3)
        snapshot = world([box("h1")], low, lower, high, mid)
        starts = [begin(high, ("h1", ())), begin(mid, ("h1", ()))]
        assert planned(snapshot, starts, "low", "lower") == []
        assert planned(snapshot, starts, "low") != []


def test_a_decision_with_preemptions_and_its_goals() -> None:
    low, high = old("low", *range(8)), gang("high", 1, 8, tier=1)
    snapshot = world([box("h1")], low, queued(high))
    plan = assemble(snapshot, POLICY, [begin(high, ("h1", range(8)))], [JobId("low")])
    decision = decide(snapshot, *plan.starts, preemptions=plan.preemptions)
    assert [goal.name for goal in decision.goals] == ["start[3]", "spare[1]", "economy", "order"]
    assert verify(snapshot, POLICY, decision) == ()
    assert verify(snapshot, POLICY, replace(decision, preemptions=())) != ()
