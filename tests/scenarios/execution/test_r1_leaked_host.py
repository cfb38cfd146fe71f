"""R1: after a stop a host still holds resources. It takes no work until it is clean, and its capacity stays held."""

from __future__ import annotations

from phalanx.adapters.fakes.executor import Script
from phalanx.model.host import HostState
from phalanx.model.job_state import JobState


def test_a_leaked_host_is_suspect_until_it_is_clean(world) -> None:
    world.start("j", ("h0", 0), ("h1", 0), script=Script(run_s=None))
    world.run(5)
    assert world.state("j") is JobState.RUNNING

    world.executor.leak("h1", "64 CPU are still in use")
    world.store.cancel("j", now_s=world.clock.now_s())
    world.run(10)
    assert world.state("j") is JobState.STOPPING
    assert world.host("h0").state is HostState.READY
    assert (world.host("h1").state, world.host("h1").state_cause) == (
        HostState.SUSPECT,
        "executor: not clean: 64 CPU are still in use",
    )
    changes = [e for e in world.store.events(subject="host h1") if e.kind == "host_changed"]
    assert len(changes) == 1, "it is told once, however often the release is tried"

    world.executor.heal("h1")
    world.run(10)
    assert world.state("j") is JobState.CANCELLED
    assert world.host("h1").state is HostState.READY

    world.start("next", ("h1", 0))
    world.run(20)
    assert world.state("next") is JobState.SUCCEEDED
