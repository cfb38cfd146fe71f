"""How many threads feed a rank, and what they learn of it."""

import time
from collections.abc import Callable
from typing import cast

import pytest
import torch

from phalanx.dataplane import Field, feeder
from phalanx.dataplane.feeder import Feeder, gather_threads
from phalanx.dataplane.read_ahead import ReadAhead, Warmed
from phalanx.dataplane.ring import Buffer, Filled, Ring, new_ring

FIELDS = (Field("n", "int64", ()),)


@pytest.mark.parametrize(
    ("cores", "ranks", "threads"),
    [(16, "1", 2), (16, "8", 2), (8, "8", 1), (2, "8", 1), (1, "1", 1), (4, "nonsense", 2), (4, "0", 2)],
)
def test_ranks_of_one_host_share_its_cores(
    monkeypatch: pytest.MonkeyPatch, cores: int, ranks: str, threads: int
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(cores)))
    monkeypatch.setenv("LOCAL_WORLD_SIZE", ranks)
    assert gather_threads(None, transformed=False) == threads
    assert gather_threads(None, transformed=True) == 1
    assert gather_threads(3, transformed=True) == 3


def numbered(rings: list[Ring]) -> Feeder:
    """Feeds the numbers of its batches."""

    def make(g: int, out: Buffer) -> dict[str, torch.Tensor]:
        out.arrays["n"][:] = g
        return dict(out.tensors)

    return Feeder(rings, make, 0, lambda g: g + 1, None, None)


def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + 30.0
    while not true():
        assert time.monotonic() < end
        time.sleep(0.001)


def test_buffers_go_back_to_all_threads_at_once_unless_the_caller_waits() -> None:
    rings = [new_ring(FIELDS, 1, size, pinned=False) for size in (3, 2)]
    fed = numbered(rings)
    try:
        seen: list[int] = []
        for _ in range(40):  # all that can be ready is: nobody waits
            until(lambda: sum(ring.ready.qsize() for ring in rings) >= 5 - len(fed._freed) - (fed._held is not None))
            item = fed.take()
            assert isinstance(item, Filled)
            seen.append(int(item.tensors["n"]))
            assert len(fed._freed) == (len(seen) + 1) % 2
        for _ in range(200):  # faster than they are filled, at times
            item = fed.take()
            assert isinstance(item, Filled)
            seen.append(int(item.tensors["n"]))
        assert seen == list(range(240))
        fed._free_held(at_once=True)
        assert fed._freed == []
    finally:
        fed.end()


def test_threads_are_kept_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[list[int]] = []
    monkeypatch.setattr("os.sched_setaffinity", lambda _thread, cores: kept.append(cores))
    for cores, threads, expected in (
        ({2, 3, 5, 7, 8}, 2, [[2, 5, 8], [3, 7]]),
        ({4, 6}, 2, [[4], [6]]),
        ({4}, 2, []),  # nothing to divide
        ({4, 6}, 1, []),
    ):
        kept.clear()
        monkeypatch.setattr("os.sched_getaffinity", lambda _, cores=cores: cores)
        numbered([new_ring(FIELDS, 1, 2, pinned=False) for _ in range(threads)]).end()
        assert kept == expected


def test_cores_that_are_taken_away_are_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(_thread: int, _cores: object) -> None:
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr("os.sched_setaffinity", gone)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    fed = numbered([new_ring(FIELDS, 1, 2, pinned=False) for _ in range(2)])
    item = fed.take()
    fed.end()
    assert isinstance(item, Filled)


def test_a_caller_that_only_waits_is_hungry(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s, told = [0.0], []

    class Told(ReadAhead):
        """Reads nothing."""

        def hurry(self, on: bool) -> None:
            told.append(on)

    monkeypatch.setattr(feeder.time, "perf_counter", lambda: now_s[0])
    rings = [new_ring((Field("n", "int64", ()),), 1, 3, pinned=False)]
    ahead = Told(cast("Warmed", None), 1, threads=0)
    fed = Feeder(rings, lambda _g, out: dict(out.tensors), 0, lambda g: g + 1, None, ahead)
    wait = rings[0].ready.get

    class Slow:
        """A queue from which every other batch comes at once, as from two threads, the others after half a second."""

        wait_s = 0.0

        def get(self) -> object:
            self.wait_s = 0.5 - self.wait_s
            now_s[0] += self.wait_s
            return wait()

        def empty(self) -> bool:
            return True

    fed._rings[0] = type(rings[0])(rings[0].free, Slow(), rings[0].stop)  # type: ignore[arg-type]
    try:
        for computed_s in (0.01, 0.01, 0.01, 0.01, 1.0, 0.01, 0.01, *[0.001] * 20):
            now_s[0] += computed_s
            fed.take()
    finally:
        fed._rings[0] = rings[0]
        fed.end()
    assert told[:6] == [False, False, False, True, False, False], "everybody waits for the first three"
    assert told[-1]
