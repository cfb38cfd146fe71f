"""The adapter dies before and after every call it makes; its successor finishes, and nothing runs twice."""

from __future__ import annotations

import pytest

from phalanx.adapters.fakes.executor import Script
from phalanx.model.job_state import JobState

CALLS = {"observe", "apply", "append", "intents", "acquire"}


class Killed(BaseException):
    """The process is gone."""


class KillAt:
    """Passes calls on; the process dies at point `n`, counted before and after every call of CALLS (0: never)."""

    def __init__(self, inner: object, points: list[int]) -> None:
        self._inner = inner
        self._points = points

    def __getattr__(self, name: str) -> object:
        method = getattr(self._inner, name)
        if name == "release" and self._points[0] == 0:
            return lambda _lease: None  # the dead give nothing back
        if name not in CALLS:
            return method

        def wrapped(*arguments: object, **named: object) -> object:
            self._point()
            result = method(*arguments, **named)
            self._point()
            return result

        return wrapped

    def _point(self) -> None:
        self._points[0] -= 1
        if self._points[0] <= 0:
            self._points[0] = 0
            raise Killed


@pytest.mark.parametrize(
    ("script", "end"),
    [
        (Script(run_s=2), JobState.SUCCEEDED),
        (Script(run_s=2, codes=(0, 1)), JobState.FAILED),
        (Script(run_s=None, ignores_warning=True), JobState.CANCELLED),
    ],
)
def test_at_every_point(new_world, script: Script, end: JobState) -> None:
    point, killed = 0, True
    while killed:
        point += 1
        world = new_world()
        world.start("j", ("h0", 0), ("h1", 0), script=script, grace_s=2)
        points = [point]
        try:
            world.run(3, executor=KillAt(world.executor, points), store=KillAt(world.store, points), holder="first")
            if end is JobState.CANCELLED:
                world.store.cancel("j", now_s=world.clock.now_s())
            world.run(8, executor=KillAt(world.executor, points), store=KillAt(world.store, points), holder="first")
            killed = False
        except Killed:
            pass
        if end is JobState.CANCELLED:
            world.store.cancel("j", now_s=world.clock.now_s())
        world.run(40, holder="second")
        started = {key for key, count in world.executor.launches.items() if count}
        cancelled_early = end is JobState.CANCELLED and not started
        assert world.state("j") is end, f"killed at point {point}"
        assert cancelled_early or started == {("j", 1, 0), ("j", 1, 1)}
        assert set(world.executor.launches.values()) <= {1}
        assert world.executor.observe().gangs == ()
        assert world.store.intents("s") == ()
    assert point > 40


def test_without_the_lease_nothing_is_done(world) -> None:
    other = world.store.acquire("adapter:s", "other", ttl_s=30, now_s=world.clock.now_s())
    world.start("j", ("h0", 0))
    world.run(20, holder="late")
    assert world.state("j") is JobState.PLANNED
    assert world.executor.launches == {}
    assert other is not None
    world.run(40, holder="late")
    assert world.state("j") is JobState.SUCCEEDED


def test_a_lease_lost_in_the_middle_of_a_round_stops_it_there(world) -> None:
    class Thief:
        """Lets the lease pass to another while the first instruction is carried out."""

        def __init__(self) -> None:
            self.applied = 0

        def __getattr__(self, name: str) -> object:
            return getattr(world.executor, name)

        def apply(self, instruction: object) -> object:
            self.applied += 1
            world.clock.sleep(60)
            assert world.store.acquire("adapter:s", "thief", ttl_s=600, now_s=world.clock.now_s())
            return world.executor.apply(instruction)

    for number in range(4):
        world.start(f"j{number}", (f"h{number}", 0))
    thief = Thief()
    world.run(120, executor=thief)
    assert thief.applied == 1
