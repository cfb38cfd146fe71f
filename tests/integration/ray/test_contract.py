"""What any executor must do, asked of the fake and of the real one."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from phalanx.adapters.clock import SystemClock
from phalanx.adapters.fakes.executor import FakeExecutor, Script
from phalanx.adapters.ray.executor import connect
from phalanx.adapters.reconcile import reconcile
from phalanx.model.event import GangReleased, GangReserved, GangStartFailed
from phalanx.model.ids import HostId, JobId, SiteId
from phalanx.model.intent import GangPhase, LaunchGang, ReleaseGang, ReserveGang, StopGang

HEEDS = "import sys, time, signal; signal.signal(15, lambda *_: sys.exit(0)); print('up', flush=True); time.sleep(600)"
LIMIT_S = 40


@pytest.fixture(params=["fake", pytest.param("ray", marks=pytest.mark.ray)])
def executor(request: pytest.FixtureRequest, hosts: Any) -> Iterator[Any]:
    if request.param == "fake":
        made = FakeExecutor(SystemClock(), hosts, lambda _intent: Script(launch_s=0, stop_s=0))
        yield made
        made.close()
        return
    cluster, folder = request.getfixturevalue("cluster"), request.getfixturevalue("tmp_path")
    made = connect(cluster.address, SiteId("lab"), "contract", data=folder, clock=SystemClock())
    made.lead(1)
    yield made
    until(lambda: _swept(made))
    made.close()


def _swept(executor: Any) -> bool:
    seen = executor.observe()
    for instruction in reconcile((), seen):
        executor.apply(instruction)
    return not seen.gangs


def until(done: Callable[[], object]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def gang(executor: Any, intent: Any) -> Any:
    return next((g for g in executor.observe().gangs if (g.job, g.attempt) == (intent.job.id, intent.attempt)), None)


def phase(executor: Any, intent: Any) -> GangPhase | None:
    seen = gang(executor, intent)
    return seen.phase if seen else None


def launch(executor: Any, intent: Any) -> None:
    executor.apply(ReserveGang(intent=intent))
    executor.apply(LaunchGang(intent=intent))
    until(lambda: phase(executor, intent) is GangPhase.RUNNING)


def release(executor: Any, intent: Any) -> tuple[Any, ...]:
    events: list[Any] = []
    until(lambda: events.extend(executor.apply(ReleaseGang(job=intent.job.id, attempt=intent.attempt))) or events)
    return tuple(events)


def test_a_whole_life(executor: Any, make_intent: Any) -> None:
    intent = make_intent([(0, (0,)), (1, (1,))], HEEDS)
    job = intent.job.id
    assert phase(executor, intent) is None
    (event,) = executor.apply(ReserveGang(intent=intent))
    assert (type(event), event.id) == (GangReserved, f"{job}/1/reserved")
    assert phase(executor, intent) is GangPhase.RESERVED
    assert executor.apply(LaunchGang(intent=intent)) == ()
    until(lambda: phase(executor, intent) is GangPhase.RUNNING)
    # A rank that is warned before its handler stands is ended by the signal.
    until(lambda: all(len(executor.logs(job, 1, rank)) == 1 for rank in (0, 1)))

    assert executor.apply(StopGang(job=job, attempt=1, grace_s=20)) == ()
    until(lambda: phase(executor, intent) is GangPhase.EXITED)
    seen = gang(executor, intent)
    assert [(e.rank, e.code) for e in seen.exits] == [(0, 0), (1, 0)]
    assert seen.stopping
    (event,) = release(executor, intent)
    assert (type(event), event.id) == (GangReleased, f"{job}/1/released")
    assert phase(executor, intent) is None


def test_every_instruction_may_be_repeated(executor: Any, make_intent: Any) -> None:
    intent = make_intent([(0, (0,))], HEEDS)
    first, second = (executor.apply(ReserveGang(intent=intent)) for _ in range(2))
    assert [e.id for e in first] == [e.id for e in second]
    for _ in range(3):
        assert executor.apply(LaunchGang(intent=intent)) == ()
    until(lambda: phase(executor, intent) is GangPhase.RUNNING)
    assert executor.apply(LaunchGang(intent=intent)) == ()
    until(lambda: len(executor.logs(intent.job.id, 1, 0)) == 1)
    for _ in range(2):
        executor.apply(StopGang(job=intent.job.id, attempt=1, grace_s=20))
    until(lambda: phase(executor, intent) is GangPhase.EXITED)
    assert [e.id for e in release(executor, intent)] == [e.id for e in release(executor, intent)]


def test_what_does_not_fit_is_refused_and_holds_nothing(executor: Any, make_intent: Any) -> None:
    big = make_intent([(0, (0, 1, 2, 3))], HEEDS)
    executor.apply(ReserveGang(intent=big))
    late = make_intent([(1, (0,)), (0, (0,))], HEEDS)
    (event,) = executor.apply(ReserveGang(intent=late))
    assert (type(event), event.host) == (GangStartFailed, "h0")
    assert phase(executor, late) is None
    wide = make_intent([(1, (0, 1, 2, 3))], HEEDS)
    (event,) = executor.apply(ReserveGang(intent=wide))
    assert type(event) is GangReserved


def test_an_unknown_host_is_refused(executor: Any, make_intent: Any) -> None:
    intent = make_intent([(0, (0,))], HEEDS)
    workers = tuple(replace(worker, host=HostId("nowhere")) for worker in intent.placement.workers)
    intent = replace(intent, placement=replace(intent.placement, workers=workers))
    (event,) = executor.apply(ReserveGang(intent=intent))
    assert (type(event), event.host) == (GangStartFailed, "nowhere")


def test_a_launch_without_a_reservation_fails(executor: Any, make_intent: Any) -> None:
    (event,) = executor.apply(LaunchGang(intent=make_intent([(0, (0,))], HEEDS)))
    assert (type(event), event.cause) == (GangStartFailed, "nothing is reserved for it")


def test_a_release_ends_what_still_runs_first(executor: Any, make_intent: Any) -> None:
    intent = make_intent([(0, (0,))], HEEDS)
    launch(executor, intent)
    assert [type(e) for e in release(executor, intent)] == [GangReleased]
    assert phase(executor, intent) is None


def test_orphans_and_unknown_attempts_are_released_without_a_word(executor: Any) -> None:
    assert executor.apply(StopGang(job=JobId("none"), attempt=1, grace_s=0)) == ()
    assert executor.apply(ReleaseGang(job=JobId("none"), attempt=1, orphan=True)) == ()
