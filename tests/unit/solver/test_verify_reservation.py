"""The verifier on reservations: for each rule a plan just inside and one just outside."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from small_worlds import NOW_S, ask, begin, box, decide, gang, placement, queued, running, world

from phalanx.model.decision import Start
from phalanx.model.host import HostState, Window
from phalanx.model.ids import ReservationId
from phalanx.model.job import Job
from phalanx.model.job_state import JobState
from phalanx.model.policy import Policy, TimePolicy
from phalanx.model.reservation import Reservation
from phalanx.model.snapshot import JobRecord, Snapshot
from phalanx.solver.plan import assemble
from phalanx.solver.verify import verify, verify_starts
from phalanx.solver.verify_planned import Planned

POLICY = Policy(time=TimePolicy(drains_per_pool=2))
Broken = list[tuple[str, int, str]]
Seats = Iterable[tuple[str, Iterable[int]]]
BIG = gang("big", 2, 8, walltime_limit_s=3_600)
BOTH = (("h1", range(8)), ("h2", range(8)))


def plan(job: Job, in_s: int, *seats: tuple[str, Iterable[int]], **facts: object) -> Reservation:
    """A new plan, as a round states it."""
    return Reservation(
        **{
            "id": ReservationId(job.id),
            "job": job.id,
            "placement": placement(job, *((host, tuple(gpus)) for host, gpus in seats)),
            "planned_start_s": NOW_S + in_s,
            "created_s": NOW_S,
            **facts,
        }
    )


def work(name: str, host: str, gpus: Iterable[int], left_s: int, cpu: float = 1, **facts: object) -> JobRecord:
    """A job that is out of the way of its like in `left_s` seconds."""
    gpus = tuple(gpus)
    job = gang(name, request=ask(len(gpus), cpu=cpu), walltime_limit_s=1_000 + left_s - 40, **facts)
    return running(job, (host, gpus), ran_s=1_000)


def waits(job: Job) -> JobRecord:
    return queued(job, POLICY.time.starve_after_s)


def fleet(*records: JobRecord, hosts: int = 2, **facts: object) -> Snapshot:
    return world([box(f"h{n}", **facts) for n in range(1, hosts + 1)], *records)


def broken(snapshot: Snapshot, *plans: Reservation, starts: Iterable[Start] = ()) -> Broken:
    """Subject, amount and unit of each violation."""
    found = verify_starts(snapshot, POLICY, tuple(starts), (), plans)
    assert all(v.message and v.amount > 0 and str(v.family) == "reservation" for v in found)
    return [(v.subject, v.amount, v.unit) for v in found]


class TestWhose:
    def test_a_named_gang_has_one_plan(self) -> None:
        snapshot = fleet(waits(BIG))
        assert broken(snapshot, plan(BIG, 60, *BOTH)) == []
        twice = broken(snapshot, plan(BIG, 60, *BOTH), plan(BIG, 60, *BOTH))
        assert ("big", 1, "plans") in twice

    def test_a_gang_that_is_not_named_has_none(self) -> None:
        assert broken(fleet(queued(BIG)), plan(BIG, 60, *BOTH)) == [("big", 1, "plans")]

    def test_a_gang_that_starts_has_none(self) -> None:
        start = begin(BIG, *BOTH)
        assert broken(fleet(waits(BIG)), plan(BIG, 60, *BOTH), starts=[start]) == [("big", 1, "plans")]

    def test_no_plan_lies_in_the_past(self) -> None:
        assert broken(fleet(waits(BIG)), plan(BIG, -5, *BOTH)) == [("big", 5, "s")]


class TestPlacement:
    def test_every_worker_has_its_place(self) -> None:
        assert broken(fleet(waits(BIG)), plan(BIG, 60, BOTH[0])) == [("big", 1, "workers")]

    def test_every_worker_has_its_cards(self) -> None:
        assert broken(fleet(waits(BIG)), plan(BIG, 60, BOTH[0], ("h2", range(7)))) == [("big", 1, "GPUs")]

    def test_hosts_take_work(self) -> None:
        snapshot = fleet(waits(BIG))
        cordoned = replace(snapshot, hosts=(snapshot.hosts[0], replace(snapshot.hosts[1], state=HostState.CORDONED)))
        assert broken(cordoned, plan(BIG, 60, *BOTH)) == [("big", 1, "hosts")]
        assert broken(snapshot, plan(BIG, 60, BOTH[0], ("h9", range(8)))) == [("big", 1, "hosts")]

    def test_it_is_over_before_a_window_or_starts_behind_it(self) -> None:
        surely_s = 30 + 3_600 + 30 + 10
        for starts_s, ends_s, fault in (
            (60 + surely_s, 9_000, 0),
            (59 + surely_s, 9_000, 1),
            (-50, 60, 0),
            (-50, 61, 1),
        ):
            window = Window(start_s=NOW_S + starts_s, end_s=NOW_S + ends_s)
            found = broken(fleet(waits(BIG), windows=(window,)), plan(BIG, 60, *BOTH))
            assert len(found) == 2 * fault

    def test_it_stays_in_its_domain(self) -> None:
        snapshot = world([box("h1"), box("h2", site="t")], waits(BIG))
        assert broken(snapshot, plan(BIG, 60, *BOTH)) == [("big", 1, "site domains")]


class TestRoom:
    def test_cards_are_left_by_running_work_to_the_second(self) -> None:
        snapshot = fleet(work("v", "h1", [3], 60), waits(BIG))
        assert broken(snapshot, plan(BIG, 60, *BOTH)) == []
        assert broken(snapshot, plan(BIG, 59, *BOTH)) == [("h1/3", 1, "workers")]

    def test_a_start_is_over_in_time_or_leaves_the_cards(self) -> None:
        small = gang("small", walltime_limit_s=600)
        snapshot = fleet(waits(BIG), queued(small))
        start = begin(small, ("h2", [1]))
        assert broken(snapshot, plan(BIG, 670, *BOTH), starts=[start]) == []
        assert broken(snapshot, plan(BIG, 669, *BOTH), starts=[start]) == [("h2/1", 1, "workers")]

    def test_amounts_of_hosts(self) -> None:
        cpu = gang("cpu", request=ask(0, cpu=60), walltime_limit_s=3_600)
        tight = gang("big", 2, request=ask(8, cpu=5))
        snapshot = fleet(waits(tight), queued(cpu))
        found = broken(snapshot, plan(tight, 60, *BOTH), starts=[begin(cpu, ("h1", ()))])
        assert found == [("big", 1_000, "milli-cores")]
        assert broken(snapshot, plan(tight, 3_700, *BOTH), starts=[begin(cpu, ("h1", ()))]) == []

    def test_a_plan_heeds_those_before_it_and_not_those_after(self) -> None:
        first, second = (gang(name, 1, request=ask(1, cpu=40)) for name in "ab")
        snapshot = fleet(waits(first), waits(second))
        plans = (plan(first, 10, ("h1", [0])), plan(second, 20, ("h1", [1])))
        assert broken(snapshot, *plans) == [("b", 16_000, "milli-cores")]

    def test_no_card_is_reserved_twice(self) -> None:
        first, second = gang("a"), gang("b")
        plans = (plan(first, 10, ("h1", [0])), plan(second, 20, ("h1", [0])))
        found = broken(fleet(waits(first), waits(second)), *plans)
        assert found == [("h1/0", 1, "plans")] * 2
        twin = gang("twin", 2)
        found = broken(fleet(waits(twin)), plan(twin, 10, ("h1", [0]), ("h1", [0])))
        assert found == [("h1/0", 1, "workers")]


class TestPromise:
    def earlier(self, in_s: int = 1_000, **facts: object) -> Reservation:
        return plan(BIG, in_s, *BOTH, **{"id": ReservationId("r"), "created_s": NOW_S - 90, "version": 4, **facts})

    def promised(self, *records: JobRecord, in_s: int = 1_000, **facts: object) -> Snapshot:
        snapshot = fleet(*records, waits(BIG), hosts=3)
        return replace(snapshot, reservations=(self.earlier(in_s, **facts),))

    def test_it_stays_as_it_was_or_moves_earlier(self) -> None:
        snapshot = self.promised()
        assert broken(snapshot, self.earlier()) == []
        assert broken(snapshot, self.earlier(0)) == []
        assert broken(snapshot, self.earlier(version=5)) == [("big", 1, "fields")]
        assert broken(snapshot, self.earlier(broken=1)) == [("big", 1, "times")]
        assert broken(snapshot, self.earlier(cause="so")) == [("big", 1, "causes")]

    def test_without_a_cause_it_is_neither_later_nor_gone(self) -> None:
        snapshot = self.promised()
        assert broken(snapshot, self.earlier(1_001, cause="so")) == [("big", 1, "s")]
        assert broken(snapshot) == [("big", 1, "s")]
        assert broken(snapshot, starts=[begin(BIG, *BOTH)]) == []

    def test_work_that_overruns_is_a_cause(self) -> None:
        snapshot = self.promised(work("v", "h1", [0], 1_200))
        assert broken(snapshot, self.earlier(1_200, cause="overrun")) == []
        assert broken(snapshot, self.earlier(1_200)) == [("big", 1, "causes")]
        assert broken(snapshot, self.earlier(1_200, cause="overrun", broken=1)) == [("big", 1, "times")]
        assert broken(snapshot) == []

    def test_another_card_of_the_kind_is_no_cause(self) -> None:
        job = gang("big", 2, 5, walltime_limit_s=3_600)
        seats = (("h1", range(5)), ("h2", range(5)))
        snapshot = fleet(work("v", "h1", [0], 9_000), waits(job))
        snapshot = replace(snapshot, reservations=(plan(job, 60, *seats),))
        assert broken(snapshot) == [("big", 1, "s")]
        assert broken(snapshot, plan(job, 60, *seats)) == [("h1/0", 1, "workers")]
        moved = (("h1", range(1, 6)), ("h2", range(5)))
        assert broken(snapshot, plan(job, 60, *moved)) == []

    def test_a_host_that_is_lost_is_a_cause(self) -> None:
        snapshot = self.promised()
        lost = replace(snapshot, hosts=tuple(h for h in snapshot.hosts if h.id != "h2"))
        there = plan(BIG, 2_000, BOTH[0], ("h3", range(8)), id=ReservationId("r"), created_s=NOW_S - 90, version=4)
        assert broken(lost, replace(there, cause="host lost")) == []

    def test_a_start_of_a_higher_level_breaks_it_and_one_of_its_own_may_not(self) -> None:
        later = self.earlier(9_000, cause="taken", broken=1)
        for tier, right in ((1, True), (2, True), (3, False)):
            other = gang("other", 1, 8, tier=tier, walltime_limit_s=7_000)
            snapshot = self.promised(queued(other))
            found = broken(snapshot, later, starts=[begin(other, BOTH[0])])
            assert found == ([] if right else [("big", 8_000, "s")])
        uncounted = broken(
            self.promised(queued(gang("other", 1, 8, tier=1))), starts=[begin(gang("other", 1, 8), BOTH[0])]
        )
        assert uncounted == []

    def test_an_overdue_promise_is_for_now(self) -> None:
        snapshot = self.promised(in_s=-500)
        assert broken(snapshot, self.earlier(0)) == []
        assert broken(snapshot, self.earlier(100, cause="late")) == [("big", 100, "s")]
        assert broken(self.promised(work("v", "h1", [0], 40), in_s=-500), self.earlier(40, cause="late")) == []


class TestDecision:
    def test_releases_are_those_that_neither_stay_nor_start(self) -> None:
        gone = plan(gang("gone"), 10, ("h1", [0]), id=ReservationId("r"))
        snapshot = replace(fleet(queued(gang("gone"), state=JobState.HELD)), reservations=(gone,))
        right = assemble(snapshot, POLICY, (), ())
        assert right.releases == ("r",)
        decision = replace(decide(snapshot), releases=right.releases)
        assert verify(snapshot, POLICY, decision) == ()
        (found,) = verify(snapshot, POLICY, replace(decision, releases=()))
        assert (found.subject, found.amount, found.unit) == ("r", 1, "releases")

    def test_an_assembled_plan_tells_what_moved_it(self) -> None:
        case = TestPromise()
        other = gang("other", 1, 8, tier=1, walltime_limit_s=7_000)
        snapshot = case.promised(queued(other))
        big = next(record for record in snapshot.jobs if record.id == "big")
        moved = [Planned(big, placement(BIG, *BOTH), NOW_S + 9_000)]
        (told,) = assemble(snapshot, POLICY, [begin(other, BOTH[0])], (), moved).reservations
        assert (told.broken, told.cause, told.id, told.version) == (1, "a higher level", "r", 4)
        snapshot = case.promised(work("v", "h1", [0], 1_200))
        big = next(record for record in snapshot.jobs if record.id == "big")
        (told,) = assemble(snapshot, POLICY, (), (), [Planned(big, placement(BIG, *BOTH), NOW_S + 1_200)]).reservations
        assert (told.broken, told.cause) == (0, "hosts lost, work overrunning or a limit lowered")
