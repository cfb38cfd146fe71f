"""Who may have hosts reserved, when work is out of the way of a plan, and which starts are tried."""

from __future__ import annotations

from dataclasses import replace

from small_worlds import NOW_S, ask, box, gang, placement, queued, running, world

from phalanx.model.host import HostState, Window
from phalanx.model.ids import ReservationId, TeamId
from phalanx.model.job import AntiAffinity, CheckpointPolicy, Job, Preemptible
from phalanx.model.job_state import JobState
from phalanx.model.policy import Policy, TimePolicy
from phalanx.model.reservation import Reservation
from phalanx.model.snapshot import JobRecord, Snapshot
from phalanx.model.team import GpuQuota, Team
from phalanx.solver.drain_starts import candidate_starts
from phalanx.solver.drains import Promise, clear_s, named, pools, pressing, promises

POLICY = Policy(time=TimePolicy(drains_per_pool=2))
STARVES = POLICY.time.starve_after_s
AT_ONCE = replace(POLICY, time=replace(POLICY.time, drain_at_once_gpus=0, drain_at_once_milli=334))


def promise(job: Job, in_s: int, *seats: tuple[str, range], broken: int = 0) -> Reservation:
    return Reservation(
        id=ReservationId(f"r-{job.id}"),
        job=job.id,
        placement=placement(job, *seats),
        planned_start_s=NOW_S + in_s,
        created_s=NOW_S - 60,
        broken=broken,
    )


class TestNamed:
    def names(self, *records: JobRecord, hosts: int = 2, **more: object) -> list[str]:
        snapshot = world([box(f"h{n}") for n in range(hosts)], *records, **more)
        return [record.id for record in named(snapshot, POLICY)]

    def test_a_gang_that_starves_to_the_second(self) -> None:
        assert self.names(queued(gang("a", 2, 8), STARVES)) == ["a"]
        assert self.names(queued(gang("a", 2, 8), STARVES - 1)) == []

    def test_only_plain_gangs(self) -> None:
        odd = (
            gang("fraction", request=ask(0.5)),
            gang("label", anti_affinity=(AntiAffinity(label="x"),)),
            gang("lowest", preemptible=Preemptible.ANYTIME),
        )
        assert self.names(*(queued(job, STARVES) for job in odd)) == []
        assert self.names(queued(gang("demoted"), STARVES, demoted=True)) == []

    def test_a_gang_that_limits_leave_no_room_for_as_far_as_it_may_plan_is_passed_over(self) -> None:
        def limited(gpus: int) -> tuple[Team, ...]:
            limit = (GpuQuota(gpu_type="H100", gpu_milli=1_000 * gpus),)
            return Team(id=TeamId("lab"), limit=limit), Team(id=TeamId("team"), parent=TeamId("lab"))

        wants = queued(gang("a", 1, 4), STARVES)
        assert self.names(wants, teams=limited(4)) == ["a"]
        assert self.names(wants, teams=limited(3)) == []
        assert self.names(queued(gang("a", 1, 4, types=["A100"]), STARVES), teams=limited(3)) == []
        assert self.names(queued(gang("cpu", request=ask(0)), STARVES), teams=limited(0)) == ["cpu"]
        # The limit is held until a second after it may be planned for, and until then.
        for more_s, names in ((1, []), (0, ["a"])):
            ends = gang("r", 1, 4, walltime_limit_s=STARVES - 40 + more_s)
            held = running(ends, ("h0", range(4)), ran_s=0)
            assert self.names(wants, held, teams=limited(4)) == names

    def test_two_a_pool_the_highest_level_first_then_the_oldest(self) -> None:
        waits = {"third": 1, "second": 5, "first": 9}
        records = [queued(gang(name), STARVES + wait) for name, wait in waits.items()]
        assert self.names(*records) == ["first", "second"]
        assert self.names(*records, queued(gang("high", tier=2), STARVES)) == ["high", "first"]

    def test_each_pool_counts_by_itself(self) -> None:
        hosts = [box("a", gpu_type="A100"), box("h")]
        jobs = [queued(gang(f"{t}{n}", types=[t]), STARVES + 5 - n) for t in ("A100", "H100") for n in range(3)]
        snapshot = world(hosts, *jobs, queued(gang("any"), STARVES))
        assert [r.id for r in named(snapshot, POLICY)] == ["A1000", "H1000", "A1001", "H1001"]

    def test_a_promise_goes_before_those_that_wait_longer(self) -> None:
        jobs = [gang(name) for name in ("a", "b", "c")]
        snapshot = world([box("h")], queued(jobs[0], STARVES + 9), queued(jobs[1], STARVES), queued(jobs[2]))
        snapshot = replace(snapshot, reservations=(promise(jobs[2], 60, ("h", range(1))),))
        assert [r.id for r in named(snapshot, POLICY)] == ["c", "a"]

    def test_pools_are_of_hosts_that_take_work(self) -> None:
        hosts = [box("a", gpu_type="A100", state=HostState.CORDONED), box("h"), box("c", site="cloud", gpu_type="B200")]
        snapshot = world(hosts, gang("x"))
        assert pools(gang("any"), snapshot, POLICY) == {("s", "H100"), ("cloud", "B200")}
        assert pools(gang("cpu", request=ask(0), sites=("s",)), snapshot, POLICY) == {("s", "")}


class TestPressing:
    """Gangs that ask for more than a third of their pools are named at once where their room is expected within `starve_after_s`."""

    def world(self, *records: JobRecord, hosts: int = 6) -> Snapshot:
        return world([box(f"h{n}") for n in range(hosts)], *records)

    def busy(self, hosts: int, estimate_s: int | None, ran_s: int = 0, **facts: object) -> list[JobRecord]:
        facts = {"walltime_limit_s": 10 * STARVES, "walltime_estimate_s": estimate_s, **facts}
        return [running(gang(f"r{n}", 1, 8, **facts), (f"h{n}", range(8)), ran_s=ran_s) for n in range(hosts)]

    def test_nobody_where_the_policy_does_not_say_so(self) -> None:
        assert pressing(self.world(queued(gang("a", 6, 8))), POLICY) == set()

    def test_more_than_a_third_of_what_it_accepts_at_a_site(self) -> None:
        assert pressing(self.world(queued(gang("a", 3, 8))), AT_ONCE) == {"a"}
        assert pressing(self.world(queued(gang("a", 2, 8))), AT_ONCE) == set()
        others = (box(f"t{n}", gpu_type="T4") for n in range(3))
        mixed = world([box("h"), *others, box("far", site="far")])
        for types, number in ((["H100"], 1), (["T4"], 1), (["H100", "T4"], 1)):
            snapshot = replace(mixed, jobs=(queued(gang("a", number, 8, types)),))
            assert pressing(snapshot, AT_ONCE) == ({"a"} if types == ["H100"] else set())

    def test_room_is_expected_by_estimates_and_promised_by_limits(self) -> None:
        wants = queued(gang("a", 3, 8), 100)
        surely_s = NOW_S + 10 * STARVES + 40
        for estimate_s, is_so in ((STARVES - 40, True), (STARVES - 39, False), (None, False)):
            snapshot = self.world(*self.busy(6, estimate_s), wants)
            assert (pressing(snapshot, AT_ONCE) == {"a"}) is is_so
            assert [r.id for r in named(snapshot, AT_ONCE)] == ["a"] * is_so
            assert candidate_starts(wants, snapshot, AT_ONCE) == (surely_s,) * is_so

    def test_as_many_hosts_as_it_needs_are_enough(self) -> None:
        late = self.busy(6, 5 * STARVES)
        assert pressing(self.world(*late[2:], queued(gang("a", 3, 8))), AT_ONCE) == set()
        assert pressing(self.world(*late[3:], queued(gang("a", 3, 8))), AT_ONCE) == {"a"}

    def test_work_that_outlived_its_estimate_goes_on_for_as_long_as_it_ran(self) -> None:
        for ran_s, is_so in ((STARVES - 40, True), (STARVES - 39, False)):
            snapshot = self.world(*self.busy(6, 60, ran_s), queued(gang("a", 3, 8)))
            assert (pressing(snapshot, AT_ONCE) == {"a"}) is is_so

    def test_what_the_gang_may_evict_is_no_hindrance(self) -> None:
        snapshot = self.world(*self.busy(6, 5 * STARVES, 1_000), queued(gang("a", 3, 8, tier=2)))
        assert pressing(snapshot, AT_ONCE) == {"a"}

    def test_the_largest_of_those_that_are_soon_over_is_named_first(self) -> None:
        one = replace(AT_ONCE, time=replace(AT_ONCE.time, drains_per_pool=1))
        first = queued(gang("a", 3, 8, walltime_limit_s=600), 200)
        for facts in ({"walltime_estimate_s": STARVES}, {"walltime_limit_s": 600}):
            larger, longer = (
                queued(gang("b", 4, 8, **facts), 100),
                queued(gang("c", 5, 8, walltime_limit_s=9 * STARVES), 300),
            )
            assert [r.id for r in named(self.world(first, larger, longer), one)] == ["b"]
            assert [r.id for r in named(self.world(longer, queued(gang("old"), 2 * STARVES)), one)] == ["c"]
        snapshot = self.world(first, larger)
        assert pressing(snapshot, one) == {"a", "b"}
        assert [r.id for r in named(snapshot, one)] == ["b"]
        snapshot = replace(snapshot, reservations=(promise(first.job, 60, ("h0", range(8))),))
        assert [r.id for r in named(snapshot, one)] == ["a"]

    def test_they_come_before_the_starving_of_their_level_but_not_before_promises(self) -> None:
        one = replace(AT_ONCE, time=replace(AT_ONCE.time, drains_per_pool=1))
        old, large = queued(gang("old"), 2 * STARVES), queued(gang("large", 3, 8))
        snapshot = self.world(old, large)
        assert [r.id for r in named(snapshot, one)] == ["large"]
        assert [r.id for r in named(self.world(old, large, queued(gang("up", tier=2), STARVES)), one)] == ["up"]
        snapshot = replace(snapshot, reservations=(promise(old.job, 60, ("h0", range(1))),))
        assert [r.id for r in named(snapshot, one)] == ["old"]


class TestPromises:
    def one(self, in_s: int, broken: int = 0, **facts: object) -> Promise:
        job = gang("a", **facts)
        snapshot = world([box("h")], queued(job))
        (found,) = promises(
            replace(snapshot, reservations=(promise(job, in_s, ("h", range(1)), broken=broken),)), POLICY
        )
        return found

    def test_a_time_that_has_passed_is_promised_for_now(self) -> None:
        assert self.one(60).start_s == NOW_S + 60
        assert self.one(-60).start_s == NOW_S

    def test_broken_twice_it_stands_above_all_but_tier_one(self) -> None:
        assert [self.one(60, broken).level for broken in (0, 1, 2, 3)] == [1, 1, 2, 2]
        assert self.one(60, 2, tier=1).level == 3


class TestClear:
    def clear(self, record: JobRecord, tier: int = 3) -> int:
        wanting = queued(gang("wants", 1, 8, tier=tier))
        return clear_s(record, wanting, world([box("h")], record, wanting), POLICY) - NOW_S

    def work(self, ran_s: int = 1_000, **facts: object) -> JobRecord:
        more = {key: facts.pop(key) for key in ("evictions", "state", "started_s", "planned_s") if key in facts}
        return running(gang("v", **{"walltime_limit_s": 3_600, **facts}), ("h", [0]), ran_s=ran_s, **more)

    def test_the_sure_end_by_the_limit(self) -> None:
        assert self.clear(self.work()) == 3_600 - 1_000 + 30 + 10
        saves = CheckpointPolicy(interval_s=60, grace_s=90)
        assert self.clear(self.work(checkpoint=saves)) == 3_600 - 1_000 + 90 + 10

    def test_work_past_its_limit_is_out_as_soon_as_it_is_stopped(self) -> None:
        assert self.clear(self.work(ran_s=9_000)) == 40

    def test_what_may_be_evicted_is_out_at_once_or_after_its_least_time(self) -> None:
        assert self.clear(self.work(), tier=1) == 0
        assert self.clear(self.work(ran_s=100), tier=1) == 500

    def test_what_may_not_be_evicted_stays_to_its_end(self) -> None:
        often = (NOW_S - 10, NOW_S - 20, NOW_S - 30)
        assert self.clear(self.work(preemptible=Preemptible.NEVER), tier=1) == 2_640
        assert self.clear(self.work(evictions=often), tier=1) == 2_640
        assert self.clear(self.work(evictions=often[1:]), tier=1) == 0

    def test_a_start_that_does_not_run_yet_counts_from_when_it_was_planned(self) -> None:
        planned = self.work(state=JobState.PLANNED, started_s=None, planned_s=NOW_S - 10)
        assert self.clear(planned) == 20 + 3_600 + 40
        assert self.clear(replace(planned, planned_s=NOW_S - 500)) == 3_600 + 40

    def test_a_stopping_job_is_out_after_its_grace(self) -> None:
        stopping = replace(self.work(state=JobState.STOPPING), state_since_s=NOW_S - 10)
        assert self.clear(stopping) == 20 + 10
        assert self.clear(replace(stopping, state_since_s=NOW_S - 100)) == 10


def waited(job, seconds: int = 86_400) -> JobRecord:
    return replace(queued(job), submitted_s=NOW_S - seconds)


class TestCandidateStarts:
    def test_ends_of_work_from_the_first_fit_on(self) -> None:
        wants = waited(gang("wants", 2, 8))
        work = [
            running(gang(f"v{n}", 1, 4, walltime_limit_s=limit), (host, cards), ran_s=0)
            for n, (host, cards, limit) in enumerate(
                (("h1", range(4), 1_000), ("h1", range(4, 8), 2_000), ("h2", range(4), 1_500), ("h3", range(4), 5_000))
            )
        ]
        snapshot = world([box(f"h{n}") for n in (1, 2, 3)], *work, wants)
        assert candidate_starts(wants, snapshot, POLICY) == (NOW_S + 2_040, NOW_S + 5_040)
        few = replace(POLICY, time=replace(POLICY.time, max_candidate_starts=1))
        assert candidate_starts(wants, snapshot, few) == (NOW_S + 2_040,)
        near = replace(POLICY, time=replace(POLICY.time, plan_horizon_s=2_000))
        assert candidate_starts(wants, snapshot, near) == ()

    def test_no_farther_ahead_than_the_gang_has_waited_until_it_has_a_promise(self) -> None:
        job = gang("wants", 1, 8)
        v = running(gang("v", walltime_limit_s=1_000), ("h", [0]), ran_s=0)
        for seconds, starts in ((1_039, ()), (1_040, (NOW_S + 1_040,))):
            wants = waited(job, seconds)
            assert candidate_starts(wants, world([box("h")], v, wants), POLICY) == starts
        wants = waited(job, 100)
        promised = replace(world([box("h")], v, wants), reservations=(promise(job, 500, ("h", range(8))),))
        assert candidate_starts(wants, promised, POLICY) == (NOW_S + 500, NOW_S + 1_040)

    def test_what_was_promised_is_always_among_them(self) -> None:
        wants = queued(gang("wants", 1, 8))
        v = running(gang("v", walltime_limit_s=1_000), ("h", [0]), ran_s=0)
        snapshot = world([box("h")], v, wants)
        snapshot = replace(snapshot, reservations=(promise(wants.job, 1_700, ("h", range(8))),))
        assert candidate_starts(wants, snapshot, POLICY) == (NOW_S + 1_040, NOW_S + 1_700)
        few = replace(POLICY, time=replace(POLICY.time, max_candidate_starts=1))
        assert candidate_starts(wants, snapshot, few) == (NOW_S + 1_700,)

    def test_the_end_of_a_maintenance_window(self) -> None:
        wants = waited(gang("wants", 1, 8, walltime_limit_s=600))
        window = Window(start_s=NOW_S - 10, end_s=NOW_S + 4_000)
        assert candidate_starts(wants, world([box("h", windows=(window,))], wants), POLICY) == (NOW_S + 4_000,)

    def test_the_last_end_of_gangs_of_higher_levels_that_might_start(self) -> None:
        wants = waited(gang("wants", 1, 8))
        others = [
            gang(f"o{tier}{hours}", tier=tier, walltime_limit_s=hours * 3_600) for tier in (2, 3) for hours in (1, 5)
        ]
        snapshot = world([box("h")], *others, wants)
        ends = tuple(NOW_S + hours * 3_600 + 70 for hours in (1, 5))
        assert candidate_starts(wants, snapshot, POLICY) == (NOW_S, *ends)
        few = replace(POLICY, time=replace(POLICY.time, max_candidate_starts=2))
        assert candidate_starts(wants, snapshot, few) == (NOW_S, ends[1])
