"""What went wrong elsewhere with gangs that starve, planned starts and backfill (K3, K10, S1, S6, S7, S9, P14)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest
from small_worlds import NOW_S, POLICY, box, gang, queued, running, world

from phalanx.model.decision import Decision, ReasonKind
from phalanx.model.job import CheckpointPolicy, Job, Preemptible
from phalanx.model.job_state import JobState, StopCause
from phalanx.model.policy import Policy
from phalanx.model.reservation import Reservation
from phalanx.model.snapshot import JobRecord, Snapshot
from phalanx.solver.evict import greedy_plan
from phalanx.solver.explain import reasons
from phalanx.solver.plan import Plan
from phalanx.solver.solve import solve
from phalanx.solver.verify import verify, verify_starts

HOUR = 3_600
Round = Callable[[Snapshot], "Plan | Decision"]


def by_greedy(snapshot: Snapshot, policy: Policy = POLICY) -> Plan:
    plan = greedy_plan(snapshot, policy)
    assert verify_starts(snapshot, policy, plan.starts, plan.preemptions, plan.reservations) == ()
    return plan


def exactly(snapshot: Snapshot, policy: Policy = POLICY) -> Decision:
    decision = solve(snapshot, policy)
    assert verify(snapshot, policy, decision) == ()
    return decision


@pytest.fixture(params=[by_greedy, exactly], ids=["greedy", "exact"])
def decided(request: pytest.FixtureRequest) -> Round:
    """A round whose decision keeps every rule."""
    return request.param


def starving(job: Job, more_s: int = 0) -> JobRecord:
    return queued(job, POLICY.time.starve_after_s + more_s)


def work(name: str, host: str, gpus: Iterable[int], left_s: int, **facts: object) -> JobRecord:
    """A job that is out of the way of its like in `left_s` seconds."""
    cards = tuple(gpus)
    job = gang(name, 1, len(cards), walltime_limit_s=HOUR + left_s - 40, **facts)
    return running(job, (host, cards), ran_s=HOUR)


def starts(decision: Plan | Decision) -> set[str]:
    return {start.job for start in decision.starts}


def planned(decision: Plan | Decision) -> dict[str, int]:
    """In how many seconds each gang is planned to start."""
    return {plan.job: plan.planned_start_s - NOW_S for plan in decision.reservations}


def next_round(snapshot: Snapshot, decision: Plan | Decision, now_s: int, *arrived: JobRecord) -> Snapshot:
    """The world later: starts run, work past its limit is over, victims are stopped, promises stand in the store."""
    placed = {start.job: start for start in decision.starts}
    victims = {act.job for act in decision.preemptions}
    jobs = []
    for record in snapshot.jobs:
        limit_s = record.job.walltime_limit_s or 0
        if record.id in placed:
            start = placed[record.id]
            record = replace(
                record,
                state=JobState.RUNNING,
                placement=start.placement,
                attempt=start.attempt,
                planned_s=snapshot.now_s,
                started_s=snapshot.now_s + 30,
            )
        if record.id in victims:
            record = replace(
                record, state=JobState.STOPPING, stop_cause=StopCause.PREEMPTED, state_since_s=snapshot.now_s
            )
        elif record.started_s is not None and record.started_s + limit_s + 40 <= now_s:
            continue
        jobs.append(record)
    return replace(snapshot, now_s=now_s, jobs=(*jobs, *arrived), reservations=decision.reservations)


def test_s1_a_stream_of_small_jobs_never_moves_a_planned_start_later(decided: Round) -> None:
    big = gang("big", 4, 8, walltime_limit_s=4 * HOUR)
    running_now = [
        work(f"r{n}{k}", f"h{n}", range(2 * k, 2 * k + 2), 900 * (n + k + 1)) for n in range(4) for k in (0, 1, 2)
    ]
    snapshot = world([box(f"h{n}") for n in range(4)], *running_now, starving(big))
    promised, backfilled = None, 0
    for number in range(50):
        small = gang(f"s{number}", 1, 1 + number % 3, walltime_limit_s=1_800)
        snapshot = replace(snapshot, jobs=(*snapshot.jobs, JobRecord(job=small, submitted_s=snapshot.now_s)))
        decision = decided(snapshot)
        if "big" in starts(decision):
            break
        at_s = planned(decision)["big"]
        assert promised is None or at_s <= promised
        assert all(plan.cause == "" for plan in decision.reservations)
        promised = at_s
        backfilled += len(decision.starts)
        snapshot = next_round(snapshot, decision, snapshot.now_s + 120)
    assert "big" in starts(decision), "it starts when it was promised"
    assert promised is not None
    assert snapshot.now_s - NOW_S <= promised + 120
    assert backfilled >= 5, "small jobs run meanwhile where they are over in time"


def test_k10_only_the_contended_pool_waits_and_the_head_gets_a_planned_time(decided: Round) -> None:
    hosts = [box("a1", gpu_type="A100"), box("h1")]
    first, second = gang("first", 1, 8, types=["A100"]), gang("second", 1, 8, types=["H100"])
    decision = decided(world(hosts, work("v", "a1", range(8), HOUR), starving(first), queued(second)))
    assert starts(decision) == {"second"}
    assert planned(decision) == {"first": HOUR}


def test_s6_work_that_would_still_run_at_the_planned_start_is_not_placed_there(decided: Round) -> None:
    big = gang("big", 2, 8, walltime_limit_s=4 * HOUR)
    long, short = (gang(name, 1, 4, walltime_limit_s=s) for name, s in (("long", HOUR + 1), ("short", HOUR - 70)))
    snapshot = world([box("h1"), box("h2")], work("v", "h1", range(8), HOUR), starving(big), long, short)
    decision = decided(snapshot)
    assert starts(decision) == {"short"}
    assert planned(decision) == {"big": HOUR}
    told = {
        reason.job: reason
        for reason in reasons(snapshot, POLICY, decision.starts, decision.preemptions, decision.reservations)
    }
    assert (told["long"].kind, told["long"].subject, told["long"].available) == (ReasonKind.RESERVED, "big", HOUR)
    assert told["long"].helps == ("starts at once with a walltime limit of 58 min 50 s",)
    assert told["long"].sentence == (
        "The room that it needs is held for big, which is planned to start in 1 h; it is surely over only in 1 h 1 min. "
        "It would start at once with a walltime limit of 58 min 50 s."
    )
    assert told["big"].planned_in_s == HOUR
    assert told["big"].sentence.endswith("It is planned to start within 1 h on h1, h2.")


def test_s7_the_plan_takes_the_hosts_that_are_free_first(decided: Round) -> None:
    hosts = [box(f"h{n}") for n in range(1, 5)]
    late = [
        work("one", "h1", range(8), 5 * HOUR),
        work("two", "h2", range(8), HOUR),
        work("three", "h3", range(8), HOUR),
    ]
    big = gang("big", 3, 8)
    decision = decided(world(hosts, *late, starving(big)))
    assert planned(decision) == {"big": HOUR}
    (plan,) = decision.reservations
    assert set(plan.placement.hosts) == {"h2", "h3", "h4"}


def test_s9_a_second_plan_leaves_the_first_where_it_is(decided: Round) -> None:
    hosts = [box("h1"), box("h2")]
    here = [work("v1", "h1", range(8), HOUR), work("v2", "h2", range(8), 2 * HOUR)]
    high, low = gang("high", 2, 8, tier=2, walltime_limit_s=HOUR), gang("low", 1, 8, tier=4, walltime_limit_s=HOUR)
    kept = [replace(record, job=replace(record.job, preemptible=Preemptible.NEVER)) for record in here]
    alone = decided(world(hosts, *kept, starving(high)))
    assert planned(alone) == {"high": 2 * HOUR}
    beside = world(hosts, *kept, starving(high), starving(low, 999))
    assert planned(decided(beside))["high"] == 2 * HOUR
    promised = replace(beside, reservations=alone.reservations)
    assert planned(decided(promised))["high"] == 2 * HOUR


def test_k3_what_victims_leave_is_not_taken_before_the_last_of_them_is_gone(decided: Round) -> None:
    loads = [running(gang(name, 1, 8, preemptible=Preemptible.ANYTIME), (host, range(8)), ran_s=HOUR)
             for name, host in (("a", "h1"), ("b", "h2"))]  # fmt: skip
    preemptor = gang("p", 2, 8, tier=1)
    snapshot = world([box("h1"), box("h2")], *loads, preemptor)
    decision = decided(snapshot)
    assert starts(decision) == {"p"}
    placed = {s.job: s for s in decision.starts}["p"]
    times = []
    for now_s, gone in ((1, {"a"}), (2, {"a"}), (4, {"a"}), (5, {"a", "b"})):
        jobs = []
        for record in snapshot.jobs:
            if record.id == "p":
                jobs.append(
                    replace(record, state=JobState.PLANNED, placement=placed.placement, planned_s=NOW_S, attempt=1)
                )
            elif record.id in gone:
                jobs.append(replace(record, state=JobState.QUEUED, placement=None, started_s=None, evictions=(NOW_S,)))
            else:
                jobs.append(replace(record, state=JobState.STOPPING, state_since_s=NOW_S))
        again = decided(replace(snapshot, now_s=NOW_S + now_s, jobs=tuple(jobs)))
        times.append((starts(again), again.preemptions))
    assert times == [(set(), ())] * 4


def overdue(left_s: int) -> Snapshot:
    """A promise whose time came 100 s ago, with work on its host that is past its limit or not."""
    big = gang("big", 1, 8)
    snapshot = world([box("h1")], work("v", "h1", range(8), left_s), starving(big))
    plan = Reservation(
        id="r", job="big", placement=snapshot.jobs[0].placement, planned_start_s=NOW_S - 100, created_s=NOW_S - 900
    )
    return replace(snapshot, reservations=(plan,))


def test_p14_an_overdue_promise_is_planned_anew_with_its_cause_and_keeps_its_age(decided: Round) -> None:
    decision = decided(overdue(-500))
    (plan,) = decision.reservations
    assert (plan.id, plan.created_s, plan.planned_start_s - NOW_S) == ("r", NOW_S - 900, 40)
    assert plan.cause == "hosts lost, work overrunning or a limit lowered"
    assert plan.broken == 0


def test_p14_a_host_that_is_gone_releases_what_was_promised_on_it(decided: Round) -> None:
    snapshot = overdue(HOUR)
    gone = replace(snapshot, hosts=(), jobs=(snapshot.jobs[1],))
    decision = decided(gone)
    assert decision.reservations == ()
    assert decision.releases == ("r",)


def test_a_higher_level_breaks_a_promise_twice_and_then_tier_one_alone(decided: Round) -> None:
    big = gang("big", 1, 8, tier=4)
    plan = Reservation(
        id="r",
        job="big",
        placement=work("v", "h1", range(8), 0).placement,
        planned_start_s=NOW_S + HOUR,
        created_s=NOW_S - 900,
    )
    never = work("v", "h1", [7], HOUR, preemptible=Preemptible.NEVER)
    for tier, broken, wins in ((2, 0, True), (2, 1, True), (2, 2, False), (1, 2, True)):
        other = gang("other", 1, 4, tier=tier, walltime_limit_s=9 * HOUR)
        snapshot = world([box("h1")], never, starving(big), queued(other))
        snapshot = replace(snapshot, reservations=(replace(plan, broken=broken),))
        decision = decided(snapshot)
        assert starts(decision) == ({"other"} if wins else set())
        (after,) = decision.reservations
        assert after.broken == broken + wins


def test_a_higher_start_takes_other_room_where_it_can(decided: Round) -> None:
    big, other = gang("big", 2, 8, tier=4), gang("other", 1, 8, tier=1, walltime_limit_s=9 * HOUR)
    snapshot = world(
        [box(f"h{n}") for n in (1, 2, 3)], work("v", "h1", [0], HOUR, preemptible=Preemptible.NEVER), starving(big)
    )
    first = decided(snapshot)
    assert starts(first) == {"big"} or planned(first) == {"big": HOUR}
    blocked = world(
        [box("h1"), box("h2"), box("h3")],
        work("v", "h1", [0], HOUR, preemptible=Preemptible.NEVER),
        work("w", "h3", [0], 2 * HOUR, preemptible=Preemptible.ANYTIME),
        starving(replace(big, preemptible=Preemptible.BY_HIGHER)),
        queued(other),
    )
    plans = (
        Reservation(
            id="r",
            job="big",
            placement=first.starts[0].placement if first.starts else first.reservations[0].placement,
            planned_start_s=NOW_S + HOUR,
            created_s=NOW_S - 5,
        ),
    )
    decision = decided(replace(blocked, reservations=plans))
    assert "other" in starts(decision)
    kept = "big" in starts(decision) or planned(decision).get("big", 9 * HOUR) <= HOUR
    assert kept


def test_invariant_5_an_evicted_job_that_queues_again_evicts_nobody(decided: Round) -> None:
    victim = running(gang("v", 1, 8, preemptible=Preemptible.ANYTIME,
                          checkpoint=CheckpointPolicy(interval_s=60)), ("h1", range(8)), ran_s=HOUR)  # fmt: skip
    big = gang("big", 1, 8)
    decision = decided(world([box("h1")], victim, starving(big)))
    assert starts(decision) == {"big"}
    jobs = (replace(victim, state=JobState.QUEUED, placement=None, started_s=None, evictions=(NOW_S,)),
            replace(starving(big), state=JobState.RUNNING, placement=decision.starts[0].placement, attempt=1,
                    started_s=NOW_S))  # fmt: skip
    again = decided(replace(world([box("h1")]), jobs=jobs))
    assert again.preemptions == ()
    assert starts(again) == set()


def test_invariant_6_lower_work_never_moves_a_planned_start(decided: Round) -> None:
    big = gang("big", 2, 8, tier=2, walltime_limit_s=4 * HOUR)
    work_now = [work("v", "h1", range(8), HOUR, preemptible=Preemptible.NEVER)]
    base = world([box("h1"), box("h2")], *work_now, starving(big))
    alone = planned(decided(base))
    crowd = [
        queued(gang(f"j{n}", 1, 1 + n % 4, tier=3 + n % 2, walltime_limit_s=HOUR * (1 + n)), 9 * HOUR) for n in range(8)
    ]
    assert planned(decided(replace(base, jobs=(*base.jobs, *crowd))))["big"] == alone["big"] == HOUR
