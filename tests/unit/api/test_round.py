"""One round: sweep, look, decide, verify, commit, record; and what happens when a decision is at fault."""

import pytest

from phalanx.adapters.ports import CommitOutcome
from phalanx.api.loop import QUIET, dump_to, run_loop, wait_for_news
from phalanx.api.round import KEEP_EVERY_S, run_round
from phalanx.model import codec
from phalanx.model.decision import Decision
from phalanx.model.errors import StaleTerm
from phalanx.model.job_state import JobState
from phalanx.model.policy import Policy
from phalanx.model.snapshot import Snapshot


def clean(*_):
    return ()


@pytest.fixture
def lead(store, clock):
    return store.acquire("scheduler", "test", ttl_s=60, now_s=clock.now_s()).term


@pytest.fixture
def submit(kit, store, clock):
    return lambda name, **more: store.submit(kit.job(name, **more), now_s=clock.now_s())


def test_a_round_starts_what_fits(store, clock, brain, lead, submit):
    submit("j1", gpus=2)
    submit("big", gpus=8)
    record = run_round(store, Policy(), clock, lead, solver=brain.solve, verifier=clean)
    assert (record.number, record.outcome) == (1, "committed")
    assert [start.job for start in record.decision.starts] == ["j1"]
    assert store.job("j1").state is JobState.PLANNED
    assert store.job("big").state is JobState.QUEUED
    assert [intent.job.id for intent in store.intents("north")] == ["j1"]
    assert store.round(1).snapshot.jobs[0].state is JobState.QUEUED


def test_an_idle_round_is_not_kept(store, clock, brain, lead):
    record = run_round(store, Policy(), clock, lead, solver=brain.solve, verifier=clean)
    assert (record.number, record.outcome) == (0, "nothing")
    assert store.rounds() == ()


def test_a_round_that_tells_nothing_new_is_kept_once_a_minute(store, clock, brain, lead, submit):
    submit("big", gpus=8)
    parts = {"solver": brain.solve, "verifier": clean}
    first = run_round(store, Policy(), clock, lead, **parts)
    assert (first.number, first.outcome) == (1, "nothing")
    clock.sleep(2)
    assert run_round(store, Policy(), clock, lead, previous=first, **parts).number == 0
    clock.sleep(KEEP_EVERY_S)
    assert run_round(store, Policy(), clock, lead, previous=first, **parts).number == 2
    submit("big2", gpus=8)
    assert run_round(store, Policy(), clock, lead, previous=first, **parts).number == 3
    store.cancel("big", now_s=clock.now_s())
    store.cancel("big2", now_s=clock.now_s())
    last = run_round(store, Policy(), clock, lead, previous=first, **parts)
    assert (last.number, last.decision.waiting) == (4, ())


def test_a_decision_at_fault_is_dropped_and_the_greedy_one_used(kit, store, clock, brain, lead, submit, tmp_path):
    submit("j1")
    submit("j2")

    def verifier(snapshot, policy, decision):
        return (kit.Violation(),) if policy.solve.exact_columns else ()

    record = run_round(
        store, Policy(), clock, lead, solver=brain.solve, verifier=verifier, report=dump_to(tmp_path / "replay")
    )
    assert record.outcome == "committed"
    assert record.violations == ("host n1 is overbooked by 1 GPU",)
    assert [policy.solve.exact_columns > 0 for policy in brain.asked] == [True, False]
    assert store.job("j1").state is JobState.PLANNED
    snapshot = next((tmp_path / "replay").glob("*.snapshot.json"))
    dropped = next((tmp_path / "replay").glob("*.decision.json"))
    assert codec.loads(snapshot.read_bytes(), Snapshot) == store.round(1).snapshot
    assert len(codec.loads(dropped.read_bytes(), Decision).starts) == 2


def test_when_both_are_at_fault_nothing_starts(kit, store, clock, brain, lead, submit):
    submit("j1")
    record = run_round(store, Policy(), clock, lead, solver=brain.solve, verifier=lambda *_: (kit.Violation(),))
    assert (record.number, record.outcome, record.decision.starts) == (1, "violation", ())
    assert len(record.violations) == 2
    assert store.job("j1").state is JobState.QUEUED


def test_a_solver_that_raises_does_not_stop_the_fleet(store, clock, brain, lead, submit, caplog):
    submit("j1")

    def solver(snapshot, policy):
        if policy.solve.exact_columns:
            raise ZeroDivisionError("bug")
        return brain.solve(snapshot, policy)

    record = run_round(store, Policy(), clock, lead, solver=solver, verifier=clean)
    assert record.outcome == "committed"
    assert "ZeroDivisionError" in record.violations[0]
    assert store.job("j1").state is JobState.PLANNED


def test_a_world_that_moved_refuses_the_commit(store, clock, brain, lead, submit):
    submit("j1")

    def solver(snapshot, policy):
        store.set_priority("j1", 5, now_s=clock.now_s())
        return brain.solve(snapshot, policy)

    record = run_round(store, Policy(), clock, lead, solver=solver, verifier=clean)
    assert record.outcome == "conflict"
    assert record.violations == ("job j1 changed since the snapshot",)
    assert store.job("j1").state is JobState.QUEUED
    assert run_round(store, Policy(), clock, lead, solver=brain.solve, verifier=clean).outcome == "committed"


def test_a_leader_of_an_old_term_writes_nothing(store, clock, brain, lead, submit):
    submit("j1")
    clock.sleep(100)
    store.acquire("scheduler", "another", ttl_s=60, now_s=clock.now_s())
    with pytest.raises(StaleTerm):
        run_round(store, Policy(), clock, lead, solver=brain.solve, verifier=clean)
    assert store.job("j1").state is JobState.QUEUED


def test_the_loop_leads_and_gives_the_lease_back(store, clock, brain, submit, tmp_path):
    submit("j1")
    rounds = []

    def solver(snapshot, policy):
        rounds.append(snapshot.now_s)
        return brain.solve(snapshot, policy)

    run_loop(
        store,
        Policy(),
        clock,
        holder="me",
        interval_s=2,
        replay_dir=tmp_path,
        stop=lambda: len(rounds) >= 3,
        solver=solver,
        verifier=clean,
    )
    assert store.job("j1").state is JobState.PLANNED
    assert rounds[2] - rounds[1] >= 1
    assert store.lease("scheduler").holder == ""


def test_a_second_scheduler_stands_by(store, clock, brain, submit, tmp_path):
    submit("j1")
    store.acquire("scheduler", "first", ttl_s=1000, now_s=clock.now_s())
    looks = iter([False] * 5 + [True] * 10)
    run_loop(
        store,
        Policy(),
        clock,
        holder="second",
        interval_s=2,
        replay_dir=tmp_path,
        stop=lambda: next(looks),
        solver=brain.solve,
        verifier=clean,
    )
    assert store.job("j1").state is JobState.QUEUED


def test_news_end_the_wait(store, clock, submit):
    before = clock.now_s()
    submit("j1")
    seen = wait_for_news(store, clock, 0, 60.0, lambda: False)
    assert clock.now_s() == before
    wait_for_news(store, clock, seen, 2.0, lambda: False)
    assert 1 <= clock.now_s() - before <= 3
    assert "submitted" not in QUIET
    assert "gang_released" not in QUIET


def test_refused_commits_do_not_spin(store, clock, brain, submit, tmp_path, monkeypatch):
    submit("j1")
    monkeypatch.setattr(store, "commit", lambda *_, **__: CommitOutcome(committed=False, conflicts=("job j1",)))
    rounds = []

    def solver(snapshot, policy):
        rounds.append(snapshot.now_s - begun)
        return brain.solve(snapshot, policy)

    begun = clock.now_s()
    parts = {"holder": "me", "interval_s": 10, "replay_dir": tmp_path, "solver": solver, "verifier": clean}
    run_loop(store, Policy(), clock, stop=lambda: len(rounds) >= 6, **parts)
    assert rounds[:4] == [0, 0, 0, 0]
    assert rounds[4] >= 9
    assert rounds[5] >= 19
