"""The clocks: the system's runs, the virtual one moves only when it is told to."""

from __future__ import annotations

import time

import pytest

from phalanx.adapters.clock import SystemClock
from phalanx.adapters.fakes.clock import VirtualClock
from phalanx.model.errors import InvalidInput


def test_the_virtual_clock_adds_up_parts_of_seconds() -> None:
    clock = VirtualClock(100)
    for _ in range(15):
        clock.sleep(0.1)
    assert clock.now_s() == 101
    clock.sleep(0.5)
    assert clock.now_s() == 102


def test_the_virtual_clock_never_goes_back() -> None:
    clock = VirtualClock(100)
    clock.move_to(50)
    assert clock.now_s() == 100
    clock.move_to(200)
    assert clock.now_s() == 200
    with pytest.raises(InvalidInput, match="turn the clock back"):
        clock.sleep(-1)


def test_the_system_clock_tells_the_time() -> None:
    clock = SystemClock()
    before = int(time.time())
    clock.sleep(0.001)
    assert before <= clock.now_s() <= int(time.time())
