from collections.abc import Iterator

import pytest

from phalanx.dataplane import StepTimer
from phalanx.dataplane.step_timer import StepSummary, StepTime, summarise


class Clock:
    """A clock that the test moves by hand."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def batches(clock: Clock, waits: list[float]) -> Iterator[int]:
    for number, wait in enumerate(waits):
        clock.now += wait
        yield number


def test_waiting_and_computing_are_told_apart() -> None:
    clock = Clock()
    timer = StepTimer(clock=clock)
    seen = []
    for batch in timer.over(batches(clock, [3.0, 0.5])):
        seen.append(batch)
        clock.now += 1.5
    assert seen == [0, 1]
    steps = timer.drain()
    assert steps == [StepTime(3.0, 1.5), StepTime(0.5, 1.5)]
    assert timer.drain() == []
    assert summarise(steps) == StepSummary(2, 3.5, 3.0)
    assert summarise(steps).wait_share == pytest.approx(3.5 / 6.5)


def test_no_steps_have_no_wait_share() -> None:
    assert summarise([]) == StepSummary(0, 0.0, 0.0)
    assert summarise([]).wait_share == 0.0


def test_a_step_that_is_left_still_counts() -> None:
    clock = Clock()
    timer = StepTimer("cpu", clock)
    steps = timer.over(batches(clock, [1.0, 1.0]))
    next(steps)
    clock.now += 2.0
    steps.close()
    assert timer.drain() == [StepTime(1.0, 2.0)]


def test_an_error_of_the_loader_passes_through() -> None:
    def broken() -> Iterator[int]:
        raise OSError("no shard")
        yield 0

    with pytest.raises(OSError, match="no shard"):
        next(StepTimer().over(broken()))
