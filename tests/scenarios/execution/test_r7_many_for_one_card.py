"""R7: many jobs for one card. Each starts in its turn; what does not fit is refused at once, never left pending."""

from __future__ import annotations

from dataclasses import replace

from phalanx.adapters.fakes.executor import Script
from phalanx.adapters.reconcile import reconcile
from phalanx.model.event import GangStartFailed
from phalanx.model.job_state import JobState
from phalanx.model.placement import Placement

JOBS = 30


def test_each_starts_in_turn(world) -> None:
    names = [f"j{number}" for number in range(JOBS)]
    for name in names:
        world.submit(name, script=Script(run_s=1, launch_s=0))
    for name in names:
        world.plan(name, ("h0", 0))
        world.run(4)
        assert world.state(name) is JobState.SUCCEEDED
    assert sum(world.executor.launches.values()) == JOBS


def test_a_second_reservation_of_the_card_is_refused_and_holds_nothing(world) -> None:
    world.start("first", ("h0", 0), script=Script(run_s=None))
    world.run(3)
    world.start("second", ("h0", 1), ("h1", 0))
    (intent,) = [i for i in world.store.intents("s") if i.job.id == "second"]
    workers = tuple(replace(worker, gpus=(0,)) for worker in intent.placement.workers)
    wrong = replace(intent, placement=Placement(workers=workers))
    (instruction,) = [i for i in reconcile((wrong,), world.executor.observe()) if getattr(i, "intent", None) is wrong]
    (event,) = world.executor.apply(instruction)
    assert isinstance(event, GangStartFailed)
    assert event.cause == "card 0 of host h0 would carry 2000 of 1000 milli-GPU"
    world.run(20)
    assert world.state("second") is JobState.SUCCEEDED, "what it would have held on h1 was never held"


def test_a_start_that_fails_backs_off_and_is_told(world) -> None:
    world.start("j", ("h0", 0), script=Script(refused="no such image"))
    world.run(3)
    record = world.job("j")
    assert (record.state, record.failed_starts) == (JobState.QUEUED, 1)
    assert record.not_before_s is not None
    assert record.not_before_s > world.clock.now_s() - 3
    assert "no such image" in record.message
    kinds = [e.kind for e in world.store.events(subject="job j")]
    assert kinds.index("gang_reserved") < kinds.index("gang_start_failed") < kinds.index("gang_released")
