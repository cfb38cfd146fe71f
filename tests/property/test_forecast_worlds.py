"""Forecasts and what-ifs of random worlds with every kind of gang: complete, sane, and the same each time."""

import importlib
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import NOW_S, policies, snapshots

from phalanx.model.change import AddHosts, Change, ChangeHost
from phalanx.model.host import HostState
from phalanx.model.job_state import WAITING, JobState
from phalanx.solver.carried import Carried
from phalanx.solver.forecast import HORIZON_S, Unforecast, forecast
from phalanx.solver.greedy import greedy
from phalanx.solver.verify import verify_starts
from phalanx.solver.whatif import Verdict, what_if

module = importlib.import_module("phalanx.solver.forecast")


@settings(max_examples=40, deadline=None)
@given(snapshots(max_jobs=6), policies())
def test_every_waiting_job_is_told_a_start_or_why_not(snapshot, policy) -> None:
    told = forecast(snapshot, policy)
    assert [entry.job for entry in told] == [record.id for record in snapshot.jobs if record.state in WAITING]
    assert told == forecast(snapshot, policy)
    # Blocked jobs that wait for nothing more queue before the first round.
    swept = [replace(r, state=JobState.QUEUED) if r.state is JobState.BLOCKED else r for r in snapshot.jobs]
    now = {start.job for start in greedy(replace(snapshot, jobs=tuple(swept)), policy)}
    for entry in told:
        assert (entry.start_s is None) == (entry.why is not None)
        if entry.start_s is None:
            assert entry.why not in (Unforecast.HORIZON, Unforecast.STEPS)
        else:
            assert NOW_S <= entry.earliest_s <= entry.start_s <= NOW_S + HORIZON_S
            assert entry.latest_s is None or entry.latest_s >= entry.start_s
        assert (entry.job in now) == (entry.start_s == NOW_S)


@settings(max_examples=30, deadline=None)
@given(snapshots(max_jobs=6), policies())
def test_carried_books_tell_what_fresh_ones_do(snapshot, policy) -> None:
    # Carried books keep reserved hosts for their gangs, of which the greedy alone knows nothing.
    snapshot = replace(snapshot, reservations=())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(importlib.import_module("phalanx.solver.greedy"), "_BOTH_ORDERS", -1)
        exact = [replace(entry, steps=0) for entry in forecast(snapshot, policy)]
        patch.setattr(module, "CARRY_FROM", -1)
        patch.setattr(module, "GRAIN", 10**9)
        assert [replace(entry, steps=0) for entry in forecast(snapshot, policy)] == exact


@settings(max_examples=30, deadline=None)
@given(snapshots(max_jobs=6), policies())
def test_what_carried_books_start_keeps_every_rule(snapshot, policy) -> None:
    starts = Carried(snapshot, policy).decide(snapshot)
    assert verify_starts(snapshot, policy, starts) == ()


@settings(max_examples=30, deadline=None)
@given(snapshots(), policies(), st.sampled_from(list(HostState)), st.booleans())
def test_what_if_of_any_world(snapshot, policy, state, more) -> None:
    name = snapshot.hosts[0].id
    same = what_if(snapshot, Change(), policy)
    assert same.today == same.then
    assert set(same.verdicts) <= {Verdict.SAME}
    change = Change(
        hosts=(ChangeHost(host=name, state=state),), add_hosts=(AddHosts(like=name, count=2),) if more else ()
    )
    seen = what_if(snapshot, change, policy)
    assert seen.today == same.today
    for side in (seen.today, seen.then):
        assert side.held_milli >= 0
        assert all(0 <= use.idle_milli <= use.gpu_milli for use in side.types)
        assert side.waits.p50_s <= side.waits.p90_s
    waiting = {record.id for record in snapshot.jobs if record.state in WAITING}
    assert waiting <= {entry.job for entry in seen.jobs}
