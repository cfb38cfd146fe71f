"""Batches wait for shards that are being read ahead, never for long."""

import threading
import time
from collections.abc import Callable

import pytest

from phalanx.dataplane.awaited import Awaited

LONG_S = 60.0


def hurried(longest_s: float = LONG_S, longest_between_s: float = LONG_S) -> Awaited:
    awaited = Awaited(longest_s, longest_between_s)
    awaited.hurry(True)
    for shard in range(4):
        awaited.expect(shard)
    return awaited


def waiting(awaited: Awaited, *shards: int) -> threading.Thread:
    """A thread that waits for these shards, and was seen to."""
    thread = threading.Thread(target=awaited.wait, args=(shards,), daemon=True)
    thread.start()
    thread.join(0.05)
    assert thread.is_alive()
    return thread


def test_a_batch_waits_until_all_of_its_shards_were_read() -> None:
    awaited = hurried()
    assert awaited.expects()
    thread = waiting(awaited, 0, 2, 7)
    for shard in (1, 2, 3):
        awaited.done(shard)
    thread.join(0.05)
    assert thread.is_alive()
    awaited.done(0)
    thread.join(LONG_S)
    assert not thread.is_alive()
    assert not awaited.expects()
    awaited.wait([0, 1, 2, 3, 7])  # all read, or never asked for


@pytest.mark.parametrize("end", [Awaited.end, lambda awaited: awaited.hurry(False)])
def test_nobody_waits_on_when_reading_ends_or_the_caller_computes(end: Callable[[Awaited], None]) -> None:
    awaited = hurried()
    threads = [waiting(awaited, 0), waiting(awaited, 1, 2)]
    end(awaited)
    for thread in threads:
        thread.join(LONG_S)
        assert not thread.is_alive()
    assert not awaited.expects()
    awaited.wait([3])


@pytest.mark.parametrize("bounds", [(0.02, LONG_S), (LONG_S, 0.02)])
def test_after_a_wait_in_vain_nobody_waits_until_its_shards_were_read(bounds: tuple[float, float]) -> None:
    awaited = hurried(*bounds)
    awaited.wait([0, 1])
    began = time.monotonic()
    for _ in range(1000):
        awaited.wait([0, 1, 2, 3])
    assert time.monotonic() - began < 1000 * 0.02
    awaited.done(0)
    awaited.wait([2])  # 1 is still to come
    assert awaited._in_vain == {1}
    awaited.done(1)
    assert awaited._in_vain == set()
    awaited.wait([2])
    assert awaited._in_vain == {2}


def test_who_gives_up_gives_up_for_all() -> None:
    awaited = hurried()
    thread = waiting(awaited, 0, 1)
    awaited._longest_s = 0.02
    awaited.wait([2])
    thread.join(LONG_S)
    assert not thread.is_alive()


def test_waiting_goes_on_while_shards_are_read() -> None:
    awaited = Awaited(LONG_S, 0.5)
    awaited.hurry(True)
    for shard in range(8):
        awaited.expect(shard)
    thread = waiting(awaited, 7)
    for shard in range(8):
        time.sleep(0.1)
        awaited.done(shard)
    thread.join(LONG_S)
    assert not thread.is_alive()
    assert awaited._in_vain == set()


def test_no_wake_up_is_lost() -> None:
    awaited = Awaited(LONG_S, LONG_S)
    awaited.hurry(True)

    def read() -> None:
        for shard in range(300):
            awaited.done(shard)

    for shard in range(300):
        awaited.expect(shard)
    threads = [threading.Thread(target=lambda: [awaited.wait([shard]) for shard in range(300)]) for _ in range(3)]
    threads.append(threading.Thread(target=read))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONG_S)
        assert not thread.is_alive()
    assert awaited._in_vain == set()
