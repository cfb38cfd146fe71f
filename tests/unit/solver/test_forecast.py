"""Forecasts against timelines worked out by hand and against a fleet stepped through second by second."""

import importlib
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_worlds import NOW_S, POLICY, box, gang, placement, queued, running, world

from phalanx.model.change import Change
from phalanx.model.decision import Preemption, Start
from phalanx.model.host import Window
from phalanx.model.job import CheckpointPolicy, Elastic, Preemptible
from phalanx.model.job_state import JobState, StopCause
from phalanx.model.placement import Progress
from phalanx.model.policy import EvictionPolicy, Policy
from phalanx.model.snapshot import JobRecord
from phalanx.model.team import GpuQuota, Team, Usage
from phalanx.solver import forecast as module
from phalanx.solver.evict import greedy_plan
from phalanx.solver.forecast import Unforecast, forecast
from phalanx.solver.future import Future
from phalanx.solver.greedy import greedy
from phalanx.solver.solve import solve
from phalanx.solver.walltimes import Basis, Walltimes
from phalanx.solver.whatif import what_if

BARE = Policy(eviction=EvictionPolicy(clean_s=0, launch_s=0))


def runs(name, *seats, ran_s=100, estimate_s=None, limit_s=None, gpus=8, **more):
    job = gang(name, 1, gpus, walltime_estimate_s=estimate_s, walltime_limit_s=limit_s, **more)
    return replace(running(job, *seats), started_s=NOW_S - ran_s)


def by_job(snapshot, policy=BARE, **more):
    return {entry.job: entry for entry in forecast(snapshot, policy, **more)}


def test_a_job_that_fits_now_starts_now() -> None:
    told = by_job(world([box("h1")], gang("a", 1, 8)))["a"]
    assert (told.start_s, told.earliest_s, told.latest_s) == (NOW_S, NOW_S, NOW_S)
    assert (told.basis, told.steps, told.why) == (Basis.NOW, 1, None)


def test_who_shrinks_for_a_start_comes_back_smaller_and_no_card_has_two_owners() -> None:
    saves = CheckpointPolicy(interval_s=60, write_s=5, restart_s=5, grace_s=10)
    elastic = Elastic(role="worker", sizes=(2, 4, 8))
    job = gang("v", 8, 1, elastic=elastic, checkpoint=saves, walltime_limit_s=7_200)
    shrinks = running(job, *(("h", (index,)) for index in range(8)), ran_s=900)
    high, low = gang("high", 2, 1, tier=1, walltime_limit_s=1_200), gang("low", 4, 1, walltime_limit_s=600)
    snapshot = world([box("h")], shrinks, high, low)
    seen = []

    def decide(now, policy):
        held = [(w.host, i) for r in now.jobs if r.placement for w in r.placement.workers for i in w.gpus]
        leaving = any(record.state is JobState.STOPPING for record in now.jobs)
        assert leaving or len(held) == len(set(held))
        seen.append({r.id: len(r.placement.workers) for r in now.jobs if r.placement})
        return greedy_plan(now, policy)

    told = by_job(snapshot, POLICY, decide=decide, bounds=False)
    # The grace is 10 s, and cleaning takes 10 s more; then `high` runs its 1,200 s, and what it leaves is enough.
    assert told["high"].start_s == NOW_S + 20
    assert told["low"].start_s == NOW_S + 20 + 30 + 1_200 + 10
    assert seen == [{"v": 8}, {"high": 2}, {"v": 4}]
    after = what_if(snapshot, Change(), POLICY, decide=greedy_plan).today
    assert after.held_milli == 6_000


def test_a_queue_behind_one_host_by_hand() -> None:
    # r leaves after 500 s more; a runs 200 s, then b 300 s, then c.
    waiting = [
        queued(gang(n, 1, 8, walltime_estimate_s=e), w) for n, e, w in (("a", 200, 30), ("b", 300, 20), ("c", 9, 10))
    ]
    snapshot = world([box("h1")], runs("r", ("h1", range(8)), estimate_s=600, limit_s=1_000), *waiting)
    told = by_job(snapshot)
    assert [told[name].start_s - NOW_S for name in "abc"] == [500, 700, 1_000]
    assert {told[name].basis for name in "abc"} == {Basis.ESTIMATE}
    # By limits r leaves after 900 s, and a after the shared pool's day.
    assert told["a"].latest_s - NOW_S == 900
    assert told["b"].latest_s - NOW_S == 900 + POLICY.time.limit_shared_s
    assert [told[name].earliest_s for name in "abc"] == [told[name].start_s for name in "abc"]


def test_handover_is_counted() -> None:
    limits = EvictionPolicy(clean_s=10, launch_s=30)
    first, second = queued(gang("a", 1, 8, walltime_estimate_s=200), 20), queued(gang("b", 1, 8), 10)
    snapshot = world([box("h1")], runs("r", ("h1", range(8)), estimate_s=600), first, second)
    told = by_job(snapshot, Policy(eviction=limits))
    assert told["a"].start_s == NOW_S + 500 + 10
    assert told["b"].start_s == NOW_S + 500 + 10 + 30 + 200 + 10


def test_small_jobs_pass_a_gang_that_must_wait() -> None:
    held = [runs("r1", ("h1", range(8)), estimate_s=1_100), runs("r2", ("h2", range(6)), gpus=6, estimate_s=200)]
    big, small = queued(gang("big", 2, 8), 100), queued(gang("small", 1, 2, walltime_estimate_s=50), 10)
    told = by_job(world([box("h1"), box("h2")], *held, big, small))
    assert told["small"].start_s == NOW_S
    assert told["big"].start_s == NOW_S + 1_000


def test_without_an_estimate_the_limit_is_the_basis() -> None:
    snapshot = world([box("h1")], runs("r", ("h1", range(8)), limit_s=700), gang("a", 1, 8))
    told = by_job(snapshot)["a"]
    assert (told.start_s, told.latest_s, told.basis) == (NOW_S + 600, NOW_S + 600, Basis.LIMIT)


def test_what_was_learned_stands_in_for_an_estimate() -> None:
    snapshot = world([box("h1")], runs("r", ("h1", range(8)), limit_s=700), gang("a", 1, 8))
    told = by_job(snapshot, learned=lambda job: 400 if job.id == "r" else None)["a"]
    assert (told.start_s, told.latest_s, told.basis) == (NOW_S + 300, NOW_S + 600, Basis.ESTIMATE)


@pytest.mark.parametrize(
    ("ran_s", "left_s"),
    [
        (999, 1),
        (1_000, 100),  # a tenth of the estimate
        (1_500, 500),  # as long as it has overrun
        (4_000, 1_000),  # not beyond the limit of 5,000 s
        (6_000, 0),
    ],
)
def test_a_job_past_its_estimate(ran_s: int, left_s: int) -> None:
    record = runs("r", ("h1", range(8)), ran_s=ran_s, estimate_s=1_000, limit_s=5_000)
    snapshot = world([box("h1")], record, gang("a", 1, 8))
    assert Walltimes(snapshot, BARE).left(record, NOW_S).seconds == left_s
    assert by_job(snapshot)["a"].start_s == NOW_S + left_s


class TestJudgedEstimates:
    """Of 20 jobs five each ran half, once, one and a half and twice as long as estimated."""

    RATIOS = (500, 1_000, 1_500, 2_000) * 5

    @pytest.mark.parametrize(
        ("ran_s", "left_s"),
        [
            (0, 1_000),  # the median of all
            (499, 501),
            (500, 1_000),  # it outlasts a quarter of them: the median of the others
            (1_000, 500),
            (1_700, 300),
            (2_500, 1_500),  # longer than any: as long as it has overrun
        ],
    )
    def test_what_is_left_is_what_was_left_to_those_that_ran_as_long(self, ran_s: int, left_s: int) -> None:
        record = runs("r", ("h1", range(8)), ran_s=ran_s, estimate_s=1_000, limit_s=9_000)
        walltimes = Walltimes(world([box("h1")], record), BARE, ratios=self.RATIOS)
        assert walltimes.left(record, NOW_S).seconds == left_s

    def test_limits_bound_it_and_too_few_say_nothing(self) -> None:
        record = runs("r", ("h1", range(8)), ran_s=700, estimate_s=1_000, limit_s=1_200)
        snapshot = world([box("h1")], record)
        assert Walltimes(snapshot, BARE, ratios=self.RATIOS).left(record, NOW_S).seconds == 500
        assert Walltimes(snapshot, BARE, ratios=self.RATIOS[1:]).left(record, NOW_S).seconds == 300
        assert Walltimes(snapshot, BARE, ratios=self.RATIOS, by_limits=True).left(record, NOW_S).seconds == 500
        bare = runs("r", ("h1", range(8)), ran_s=700, limit_s=1_200)
        assert Walltimes(snapshot, BARE, ratios=self.RATIOS).left(bare, NOW_S).basis is Basis.LIMIT

    def test_a_forecast_rests_on_it(self) -> None:
        record = runs("r", ("h1", range(8)), ran_s=500, estimate_s=1_000, limit_s=9_000)
        snapshot = world([box("h1")], record, gang("a", 1, 8))
        assert by_job(snapshot)["a"].start_s == NOW_S + 500
        told = by_job(snapshot, ratios=self.RATIOS)["a"]
        assert (told.start_s, told.latest_s, told.basis) == (NOW_S + 1_000, NOW_S + 8_500, Basis.ESTIMATE)


def test_limits_of_the_pools() -> None:
    snapshot = world(
        [box("h1")], teams=[Team(id="team"), Team(id="rich", guarantee=(GpuQuota(gpu_type="H100", gpu_milli=1_000),))]
    )
    walltimes = Walltimes(snapshot, POLICY)
    time = POLICY.time
    assert walltimes.limit_s(queued(gang("a"))) == time.limit_shared_s
    assert walltimes.limit_s(queued(gang("a", team="rich"))) == time.limit_team_s
    assert (
        walltimes.limit_s(queued(gang("a", team="rich", preemptible=Preemptible.ANYTIME))) == time.limit_preemptible_s
    )
    assert walltimes.limit_s(queued(gang("a", walltime_limit_s=7))) == 7


def test_work_saved_by_earlier_attempts_counts() -> None:
    record = runs("r", ("h1", range(8)), ran_s=100, estimate_s=1_000)
    record = replace(record, progress=Progress(saved_work_s=700, last_checkpoint_s=NOW_S - 40))
    assert by_job(world([box("h1")], record, gang("a", 1, 8)))["a"].start_s == NOW_S + 260
    resumed = queued(gang("b", 1, 8, walltime_estimate_s=1_000), 90_000, progress=Progress(saved_work_s=900))
    told = by_job(world([box("h1")], resumed, gang("a", 1, 8)))
    assert told["a"].start_s == NOW_S + 100


def test_held_blocked_and_back_off() -> None:
    hosts, run = [box("h1"), box("h2")], runs("r", ("h1", range(8)), estimate_s=400)
    records = [
        queued(gang("held", 1, 1), state=JobState.HELD),
        queued(gang("after", 1, 1, after=("r",)), state=JobState.BLOCKED),
        queued(gang("chain", 1, 1, after=("after",)), state=JobState.BLOCKED),
        queued(gang("stuck", 1, 1, after=("held",)), state=JobState.BLOCKED),
        queued(gang("off", 1, 1), not_before_s=NOW_S + 77),
    ]
    records[1] = replace(records[1], job=replace(records[1].job, walltime_estimate_s=50))
    told = by_job(world(hosts, run, *records))
    assert (told["held"].start_s, told["held"].why) == (None, Unforecast.HELD)
    assert told["after"].start_s == NOW_S + 300
    assert told["chain"].start_s == NOW_S + 350
    assert (told["stuck"].start_s, told["stuck"].why) == (None, Unforecast.DEPENDENCY)
    assert told["off"].start_s == NOW_S + 77


@pytest.mark.parametrize("cause", [StopCause.FINISHED, StopCause.CANCELLED, StopCause.REQUEUED])
def test_a_stopping_job_frees_its_hosts_after_its_grace(cause: StopCause) -> None:
    job = gang("r", 1, 8, checkpoint=CheckpointPolicy(interval_s=60, grace_s=90), walltime_estimate_s=500)
    stopping = replace(
        running(job, ("h1", range(8))), state=JobState.STOPPING, stop_cause=cause, state_since_s=NOW_S - 20
    )
    follower = queued(gang("next", 1, 1, after=("r",)), state=JobState.BLOCKED)
    told = by_job(
        world([box("h1")], stopping, follower, queued(gang("a", 1, 8, walltime_estimate_s=30), 9_000_000 // 9))
    )
    assert told["a"].start_s >= NOW_S + 70
    if cause is StopCause.CANCELLED:
        assert (told["next"].start_s, told["next"].why) == (None, Unforecast.DEPENDENCY)
    else:
        assert told["next"].start_s is not None


def test_what_is_not_told_says_why() -> None:
    run = runs("r", ("h1", range(8)), estimate_s=4_000)
    jobs = [gang("big", 1, 9), queued(gang("a", 1, 8, queue_deadline_s=2_000), 0), gang("tight", 2, 8)]
    cordoned = box("h2", state="cordoned")
    told = by_job(world([box("h1"), cordoned], run, *jobs))
    assert told["big"].why is Unforecast.NEVER_FITS
    assert told["a"].why is Unforecast.EXPIRES
    assert told["tight"].why is Unforecast.NO_ROOM
    assert by_job(world([box("h1")], run, gang("b", 1, 8)), horizon_s=3_000)["b"].why is Unforecast.HORIZON
    assert by_job(world([box("h1")], run, gang("b", 1, 8)), most_steps=1)["b"].why is Unforecast.STEPS
    assert forecast(world([box("h1")], run), BARE) == ()


def test_a_decision_with_preemptions_slots_in(monkeypatch) -> None:
    checkpoint = CheckpointPolicy(interval_s=60, write_s=10, grace_s=40)
    low = gang("low", 1, 8, walltime_estimate_s=1_000, checkpoint=checkpoint)
    victim = replace(running(low, ("h1", range(8))), started_s=NOW_S - 700)
    high = queued(gang("high", 1, 8, tier=1, walltime_estimate_s=200))
    last = queued(gang("last", 1, 8, tier=4), 5)

    class Plan:
        starts: tuple[Start, ...] = ()
        preemptions: tuple[Preemption, ...] = ()

    def decide(snapshot, policy):
        plan = Plan()
        if snapshot.now_s == NOW_S:
            plan.starts = (
                Start(job="high", attempt=1, placement=placement(high.job, ("h1", range(8))), after=("low",)),
            )
            plan.preemptions = (Preemption(job="low", attempt=1, beneficiaries=("high",), loss_gpu_s=0),)
        else:
            plan.starts = greedy(snapshot, policy)
        return plan

    snapshot = world([box("h1")], victim, high, last)
    for carry_from in (module.CARRY_FROM, 0):
        monkeypatch.setattr(module, "CARRY_FROM", carry_from)
        monkeypatch.setattr(module, "GRAIN", 10**9)
        told = by_job(snapshot, decide=decide)
        assert told["high"].start_s == NOW_S + 40
        # The victim waits longest, so it resumes first, with the 300 s that it had left.
        assert told["last"].start_s == NOW_S + 40 + 200 + 300


def test_solve_decides_as_well() -> None:
    snapshot = world([box("h1")], runs("r", ("h1", range(8)), estimate_s=600), gang("a", 1, 8), gang("b", 1, 4))
    assert forecast(snapshot, BARE, decide=solve) == forecast(snapshot, BARE)


def worlds():
    """Busy fleets of one or two hosts whose jobs have limits; estimates are exact by construction."""
    job = st.tuples(st.sampled_from((1, 2, 4, 8)), st.integers(1, 9), st.sampled_from((2, 3, 4)), st.integers(0, 50))
    return st.tuples(st.integers(1, 2), st.lists(job, max_size=3), st.lists(job, min_size=1, max_size=6))


def built(shape):
    hosts, held, waiting = shape
    fleet = [box(f"h{n}") for n in range(hosts)]
    records: list[JobRecord] = []
    for number, (gpus, length, tier, ran) in enumerate(held[:hosts]):
        job = gang(f"r{number}", 1, gpus, tier=tier, walltime_limit_s=length + ran, walltime_estimate_s=length + ran)
        records.append(replace(running(job, (f"h{number}", range(gpus))), started_s=NOW_S - ran))
    for number, (gpus, length, tier, waited) in enumerate(waiting):
        records.append(queued(gang(f"w{number}", 1, gpus, tier=tier, walltime_limit_s=length), waited))
    return world(fleet, *records)


def stepped(snapshot, seconds=120):
    """The truth where estimates are exact: every second, who is done leaves, then a round decides."""
    truth, records = {}, {record.id: record for record in snapshot.jobs}
    for now in range(NOW_S, NOW_S + seconds):
        for record in list(records.values()):
            if record.placement and now >= record.started_s + record.job.walltime_limit_s:
                del records[record.id]
        for start in greedy(replace(snapshot, now_s=now, jobs=tuple(records.values())), BARE):
            truth[start.job] = now
            records[start.job] = replace(
                records[start.job],
                state=JobState.RUNNING,
                placement=start.placement,
                attempt=1,
                started_s=now,
                planned_s=now,
            )
        if not any(record.state is JobState.QUEUED for record in records.values()):
            break
    return truth


@settings(max_examples=20, deadline=None)
@given(worlds())
def test_exact_estimates_give_the_truth(shape) -> None:
    snapshot = built(shape)
    told = by_job(snapshot)
    assert {name: entry.start_s for name, entry in told.items() if entry.start_s is not None} == stepped(snapshot)
    for entry in told.values():
        if entry.start_s is not None:
            assert NOW_S <= entry.earliest_s <= entry.start_s
            assert entry.latest_s is None or entry.latest_s >= entry.start_s


@settings(max_examples=15, deadline=None)
@given(worlds())
def test_carried_books_decide_by_the_same_rules(shape) -> None:
    """Where no ends are seen together, the books carried forward decide as a very large round does."""
    snapshot = built(shape)

    def told():
        return [replace(entry, steps=0) for entry in forecast(snapshot, BARE)]

    patch = pytest.MonkeyPatch()
    with patch.context() as here:
        here.setattr(importlib.import_module("phalanx.solver.greedy"), "_BOTH_ORDERS", -1)
        exact = told()
        here.setattr(module, "CARRY_FROM", 0)
        here.setattr(module, "GRAIN", 10**9)
        assert told() == exact


def test_a_large_fleet_is_told_within_the_grain(monkeypatch) -> None:
    fleet = [box(f"h{n}") for n in range(12)]
    held = [runs(f"r{n}", (f"h{n}", range(8)), estimate_s=400 + 37 * n * n) for n in range(12)]
    waiting = [queued(gang(f"w{n}", 1, 8, walltime_estimate_s=300 + n), 500 - n) for n in range(20)]
    snapshot = world(fleet, *held, *waiting)
    exact = by_job(snapshot, bounds=False)
    monkeypatch.setattr(module, "CARRY_FROM", 0)
    coarse = by_job(snapshot, bounds=False)
    assert set(coarse) == set(exact)
    assert all(entry.start_s is not None for entry in coarse.values())
    first = [entry for entry in exact.values() if entry.start_s - NOW_S <= 400]
    assert first
    for entry in first:
        late = coarse[entry.job].start_s - entry.start_s
        assert 0 <= late <= (entry.start_s - NOW_S) // module.GRAIN


def test_usage_of_teams_goes_on() -> None:
    half_s = POLICY.order.half_life_s
    teams = (Team(id="x", usage=Usage(gpu_milli_s=1_000_000)), Team(id="y"))
    held = replace(runs("r", ("h1", range(8)), team="y", limit_s=half_s + 100), started_s=NOW_S - 100)
    snapshot = world([box("h1")], held, gang("a", 1, 8, team="x"), teams=teams)
    future = Future(snapshot, BARE, Walltimes(snapshot, BARE))
    assert future.snapshot() == snapshot
    (freed,) = future.advance(NOW_S + half_s)
    assert (freed.id, future.now_s) == ("r", NOW_S + half_s)
    x, y = future.snapshot().teams
    assert (x.usage.gpu_milli_s, y.usage.gpu_milli_s) == (500_000, 8_000 * half_s)
    assert y.usage.cpu_milli_s == 1_000 * half_s


def test_who_was_served_longest_waits_when_shares_are_equal() -> None:
    """By the time that the host comes free, y has used it for days; x's job of the same age goes first."""
    held = replace(runs("r", ("h1", range(8)), team="y", limit_s=300_000), started_s=NOW_S)
    waiting = [queued(gang(f"w{team}", 1, 8, team=team), wait) for team, wait in (("y", 60), ("x", 50))]
    snapshot = world([box("h1")], held, *waiting, teams=[Team(id="x"), Team(id="y")])
    told = by_job(snapshot)
    assert told["wx"].start_s == NOW_S + 300_000 < told["wy"].start_s


def test_the_end_of_a_maintenance_window_is_looked_at() -> None:
    """Whether a round heeds windows is its own matter; the forecast runs it again when one has passed."""
    windows = (Window(start_s=NOW_S - 50, end_s=NOW_S - 10), Window(start_s=NOW_S + 10, end_s=NOW_S + 70))
    snapshot = world([box("h1", windows=windows)], gang("a"))

    def decide(seen, policy):
        return greedy(seen, policy) if seen.now_s >= NOW_S + 70 else ()

    for carry_from in (20_000, 0):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "CARRY_FROM", carry_from)
            assert by_job(snapshot, decide=decide)["a"].start_s == NOW_S + 70
