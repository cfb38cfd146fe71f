"""Forecasts where hosts are reserved: plans are followed, waited for and woken up by, in small fleets and large."""

import importlib
from dataclasses import replace

import pytest
from small_worlds import NOW_S, box, gang, placement, queued, running, world

from phalanx.model.ids import ReservationId
from phalanx.model.job import Preemptible
from phalanx.model.job_state import JobState
from phalanx.model.policy import EvictionPolicy, Policy, TimePolicy
from phalanx.model.reservation import Reservation
from phalanx.solver.evict import greedy_plan
from phalanx.solver.forecast import Unforecast, forecast
from phalanx.solver.greedy import greedy
from phalanx.solver.walltimes import Basis

module = importlib.import_module("phalanx.solver.forecast")
BARE = Policy(eviction=EvictionPolicy(clean_s=0, launch_s=0), time=TimePolicy(drains_per_pool=2))
STARVED = BARE.time.starve_after_s


def runs(name, host, left_s, limit_s=None, gpus=8):
    """Runs 100 s already; expected to leave in `left_s`, sure to in `limit_s`."""
    facts = {"walltime_estimate_s": 100 + left_s, "walltime_limit_s": 100 + (limit_s or left_s)}
    return replace(running(gang(name, 1, gpus, **facts), (host, range(gpus))), started_s=NOW_S - 100)


def plan(job, in_s, *hosts):
    return Reservation(
        id=ReservationId(job.id),
        job=job.id,
        placement=placement(job, *((host, tuple(range(8))) for host in hosts)),
        planned_start_s=NOW_S + in_s,
        created_s=NOW_S,
    )


def told(snapshot, decide=greedy_plan, **more):
    return {entry.job: entry for entry in forecast(snapshot, BARE, decide=decide, **more)}


def starving():
    """`big` waits for both hosts and has waited for long; `a` leaves soon, `b` late; small ones would fit meanwhile."""
    big = queued(gang("big", 2, 8, walltime_limit_s=1_000), STARVED)
    smalls = [
        queued(gang(name, 1, 8, walltime_limit_s=limit), wait)
        for name, limit, wait in (("short", 500, 20), ("long", 9_000, 10))
    ]
    return world([box("h1"), box("h2")], runs("a", "h1", 100), runs("b", "h2", 1_000, 2_000), big, *smalls)


def in_s(entry):
    return None if entry.start_s is None else entry.start_s - NOW_S


def test_the_starving_gang_starts_when_its_hosts_are_free_and_only_what_is_over_by_then_before_it() -> None:
    found = told(starving())
    assert (in_s(found["big"]), found["big"].latest_s - NOW_S) == (1_000, 2_000)
    assert in_s(found["short"]) == 100, "it is over before the planned start, which rests on limits"
    assert in_s(found["long"]) == 2_000, "it waits for the gang"
    assert in_s(told(starving(), greedy)["long"]) == 600, "what knows no plans backfills it"


def test_a_gang_with_a_plan_is_told_no_later_than_that() -> None:
    snapshot = starving()
    big = snapshot.jobs[2].job
    promised = replace(snapshot, reservations=(plan(big, 2_030, "h1", "h2"),))
    assert in_s(told(promised)["big"]) == 1_000
    blind = told(promised, greedy)["big"]
    assert (in_s(blind), blind.basis) == (2_030, Basis.LIMIT), "it would be backfilled past its plan"
    assert blind.latest_s - NOW_S == 2_030


def test_a_plan_is_told_where_the_run_ends_before_it() -> None:
    snapshot = starving()
    big = snapshot.jobs[2].job
    promised = replace(snapshot, reservations=(plan(big, 2_030, "h1", "h2"),))
    for more in ({"most_steps": 1}, {"horizon_s": 50}):
        found = told(promised, **more)
        assert (in_s(found["big"]), found["big"].why) == (2_030, None)
        assert found["long"].start_s is None


def test_held_and_expired_jobs_have_no_plan() -> None:
    snapshot = starving()
    record = snapshot.jobs[2]
    plans = (plan(record.job, 2_030, "h1", "h2"),)
    held = replace(snapshot, jobs=(*snapshot.jobs[:2], replace(record, state=JobState.HELD)), reservations=plans)
    assert told(held)["big"].why is Unforecast.HELD
    assert told(held, greedy)["big"].why is Unforecast.HELD
    job = replace(record.job, queue_deadline_s=STARVED + 500)
    expires = replace(snapshot, jobs=(*snapshot.jobs[:2], replace(record, job=job)), reservations=plans)
    assert told(expires)["big"].why is Unforecast.EXPIRES
    assert told(expires, greedy)["big"].why is Unforecast.EXPIRES


def test_a_planned_start_at_which_nothing_ends_is_woken_up_for() -> None:
    # The gang may evict `low` once it has run for its minimum, 500 s from now; nothing ends before 90,000 s.
    policy = replace(BARE, eviction=replace(BARE.eviction, min_run_s=600))
    low = gang("low", 1, 8, tier=4, walltime_limit_s=90_000, preemptible=Preemptible.ANYTIME)
    record = replace(running(low, ("h1", range(8))), started_s=NOW_S - 100)
    snapshot = world([box("h1")], record, queued(gang("big", 1, 8), STARVED))
    (made,) = greedy_plan(snapshot, policy).reservations
    assert made.planned_start_s == NOW_S + 500
    entry = next(e for e in forecast(snapshot, policy, decide=greedy_plan) if e.job == "big")
    # The victim then has its grace.
    assert NOW_S + 500 <= entry.start_s <= NOW_S + 500 + 60
    assert entry.steps == 2


@pytest.mark.parametrize("grain", [16, 10**9])
def test_in_large_fleets_reserved_hosts_are_left_to_their_gang(monkeypatch, grain) -> None:
    monkeypatch.setattr(module, "CARRY_FROM", 0)
    monkeypatch.setattr(module, "GRAIN", grain)
    snapshot = starving()
    big = snapshot.jobs[2].job
    promised = replace(snapshot, reservations=(plan(big, 2_030, "h1", "h2"),))
    found = told(promised)
    assert in_s(found["big"]) == 2_030
    assert in_s(found["long"]) >= 3_030
    tiny = queued(gang("tiny", 1, 1, walltime_limit_s=50), 5, not_before_s=NOW_S + 150)
    beside = told(replace(promised, hosts=(*promised.hosts, box("h3", 1)), jobs=(*promised.jobs, tiny)))
    assert 150 <= in_s(beside["tiny"]) <= 170, "other hosts are free to it"
    assert in_s(beside["short"]) >= 2_030, "h1 is free, and kept"
