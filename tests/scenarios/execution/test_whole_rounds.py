"""Faults between rounds and the site, with the production round deciding: K16, K17, K20, K25, A2, P2, P13, A4, R5, R13."""

from __future__ import annotations

from collections import Counter

from phalanx.adapters.fakes.executor import FakeExecutor, Script
from phalanx.api.round import run_round
from phalanx.model.event import HostChanged
from phalanx.model.host import HostState
from phalanx.model.job_state import JobState
from phalanx.model.policy import Policy
from phalanx.solver.solve import solve

POLICY = Policy()
FOREVER = Script(run_s=None)


def live(world, seconds: int, every_s: int = 5) -> None:
    """Rounds and the adapter in turn; after each the books hold no card twice."""
    for _ in range(0, seconds, every_s):
        run_round(world.store, POLICY, world.clock, world.term)
        world.run(every_s)
        check(world)


def check(world) -> None:
    used: Counter[tuple[str, int]] = Counter()
    for record in world.store.snapshot(world.clock.now_s()).jobs:
        if record.placement is not None:
            assert record.state.holds_capacity
            used.update((worker.host, card) for worker in record.placement.workers for card in worker.gpus)
    assert max(used.values(), default=0) <= 1


def placed(world, name: str) -> tuple[str, ...]:
    record = world.job(name)
    return record.placement.hosts if record.placement else ()


def order(world, host: str, state: HostState) -> None:
    world.store.append(
        [
            HostChanged(
                id=f"test/{host}/{state}/{world.clock.now_s()}", at_s=world.clock.now_s(), host=host, state=state
            )
        ],
        now_s=world.clock.now_s(),
    )


class TestK16:
    def test_a_short_blip_moves_nothing(self, world) -> None:
        world.submit("j", 2, FOREVER)
        world.submit("next", 1, FOREVER)
        live(world, 20)
        before = (world.job("j").attempt, placed(world, "j"))
        world.executor.silence("h0")
        live(world, 60)
        assert (world.state("j"), world.job("j").attempt, placed(world, "j")) == (JobState.RUNNING, *before)
        world.executor.return_host("h0")
        live(world, 20)
        assert (world.state("j"), world.job("j").attempt, placed(world, "j")) == (JobState.RUNNING, *before)

    def test_a_host_that_is_down_for_ten_minutes_requeues_once(self, world) -> None:
        world.submit("j", 8, FOREVER)
        live(world, 20)
        assert world.state("j") is JobState.RUNNING
        world.executor.lose_host("h3")
        live(world, POLICY.failure.host_lost_after_s + 60)
        record = world.job("j")
        assert (record.state, record.restarts, record.attempt) == (JobState.QUEUED, 1, 1)
        world.executor.return_host("h3")
        live(world, 30)
        assert (world.state("j"), world.job("j").attempt) == (JobState.RUNNING, 2)


def test_k17_a_host_that_leaves_before_the_start_is_given_up_and_the_job_planned_anew(world) -> None:
    world.submit("j", 2, Script(run_s=None, launch_s=10_000))
    run_round(world.store, POLICY, world.clock, world.term)
    (first,) = placed(world, "j")
    order(world, first, HostState.CORDONED)
    live(world, POLICY.time.start_timeout_s + 60)
    record = world.job("j")
    assert record.attempt >= 2
    assert first not in placed(world, "j")
    assert placed(world, "j")


def test_k20_evicted_in_the_middle_of_a_recovery_it_is_in_one_state_and_nobody_holds_its_cards(world) -> None:
    world.submit("low", 8, FOREVER)
    live(world, 15)
    world.executor.lose_host("h0")
    world.run(1)
    world.store.cancel("low", now_s=world.clock.now_s())
    live(world, 60)
    assert world.state("low") is JobState.CANCELLED
    assert placed(world, "low") == ()
    assert world.executor.observe().gangs == ()


def test_k25_an_evicted_job_is_not_pinned_to_its_old_host(world) -> None:
    world.submit("j", 1, FOREVER)
    live(world, 15)
    (old,) = placed(world, "j")
    job = world.job("j").job
    world.executor.lose_host(old)
    live(world, POLICY.failure.host_lost_after_s + 60)
    assert world.state("j") is JobState.RUNNING
    assert placed(world, "j") != (old,)
    assert world.job("j").job == job, "the request says what is asked, never where it was"


def test_a2_a_job_whose_start_is_always_refused_does_not_starve_its_like(world) -> None:
    for name in ("h1", "h2", "h3"):
        order(world, name, HostState.CORDONED)
    world.submit("filler", 1, FOREVER)
    live(world, 10)
    world.submit("broken", 1, Script(refused="the image does not exist"))
    world.submit("fine", 1, FOREVER)
    run_round(world.store, POLICY, world.clock, world.term)
    assert (world.state("broken"), world.state("fine")) == (JobState.PLANNED, JobState.QUEUED)
    rounds = 0
    while world.state("fine") is not JobState.RUNNING:
        world.run(5)
        run_round(world.store, POLICY, world.clock, world.term)
        rounds += 1
        assert rounds <= 3
    assert (world.state("broken"), world.job("broken").failed_starts) == (JobState.QUEUED, 1)
    assert "the image does not exist" in world.job("broken").message


def test_p2_what_ends_well_while_the_site_is_cut_off_is_not_run_again(world) -> None:
    world.submit("j", 2, Script(run_s=20))
    live(world, 10)
    assert world.state("j") is JobState.RUNNING
    hosts = placed(world, "j")
    for host in hosts:
        world.executor.silence(host)
    live(world, 60)
    assert world.state("j") is JobState.RUNNING
    for host in hosts:
        world.executor.return_host(host)
    live(world, 15)
    assert (world.state("j"), world.job("j").attempt) == (JobState.SUCCEEDED, 1)


def test_p13_a_host_on_which_jobs_fail_fast_is_evacuated_and_the_others_finish(world) -> None:
    bad = Script(run_s=2, codes=(1,))
    for name in ("h1", "h2", "h3"):
        order(world, name, HostState.CORDONED)
    for number in range(POLICY.failure.evacuate_after_jobs):
        world.submit(f"f{number}", 1, bad)
        live(world, 20)
        assert world.state(f"f{number}") is JobState.FAILED
    assert world.host("h0").state is HostState.EVACUATING
    for name in ("h1", "h2", "h3"):
        order(world, name, HostState.READY)
    world.submit("well", 2, Script(run_s=5))
    live(world, 30)
    assert world.state("well") is JobState.SUCCEEDED


def test_a4_after_a_long_life_the_decision_is_that_of_the_same_state_read_afresh(world) -> None:
    for number in range(12):
        world.submit(f"j{number}", 1 + number % 4, Script(run_s=5 + 3 * number))
        live(world, 10)
    world.submit("last", 3, FOREVER)
    snapshot = world.store.snapshot(world.clock.now_s())
    again = world.store.snapshot(world.clock.now_s())
    assert solve(snapshot, POLICY) == solve(again, POLICY)
    live(world, 60)
    assert world.state("last") is JobState.RUNNING


def restarted(world) -> FakeExecutor:
    """The site with a head that knows nothing of what ran."""
    return FakeExecutor(world.clock, world.hosts, lambda intent: world.scripts[intent.job.id])


def test_r5_a_host_dies_the_head_restarts_and_the_job_runs_again_in_a_few_rounds(world) -> None:
    world.submit("j", 8, FOREVER)
    live(world, 20)
    assert world.state("j") is JobState.RUNNING
    submitted_s = world.job("j").submitted_s
    world.executor.lose_host("h3")
    live(world, 30)
    assert world.host("h3").state is HostState.DOWN

    world.executor = restarted(world)
    world.executor.lose_host("h3")
    live(world, 30)
    assert world.executor.observe().gangs == (), "nothing is started in parts"

    world.executor.return_host("h3")
    live(world, 30)
    record = world.job("j")
    assert (record.state, record.attempt, record.submitted_s) == (JobState.RUNNING, 2, submitted_s)
    assert len(placed(world, "j")) == 4
    assert set(world.executor.launches.values()) == {1}


def test_r13_what_the_head_forgot_is_issued_again_from_the_books_once(world) -> None:
    world.submit("j", 2, FOREVER)
    live(world, 20)
    before = placed(world, "j")
    world.executor = restarted(world)
    live(world, 30)
    assert (world.state("j"), world.job("j").attempt, placed(world, "j")) == (JobState.RUNNING, 1, before)
    assert [gang.job for gang in world.executor.observe().gangs] == ["j"]
    assert set(world.executor.launches.values()) == {1}
