"""How many threads feed a rank, and what they learn of it."""

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import pytest
import torch

from phalanx.dataplane import Field, feeder
from phalanx.dataplane.feeder import Feeder, few_cores, gather_threads
from phalanx.dataplane.read_ahead import ReadAhead, Warmed
from phalanx.dataplane.ring import Buffer, Failed, Filled

new_buffer = partial(Buffer, (Field("n", "int64", ()),), 1, {}, pinned=False)


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


@pytest.mark.parametrize(
    ("cores", "ranks", "few"), [(2, "1", True), (4, "1", False), (16, "8", True), (32, "8", False)]
)
def test_a_rank_with_few_cores(monkeypatch: pytest.MonkeyPatch, cores: int, ranks: str, few: bool) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(cores)))
    monkeypatch.setenv("LOCAL_WORLD_SIZE", ranks)
    assert few_cores() == few


def number(g: int, out: Buffer) -> dict[str, torch.Tensor]:
    out.arrays["n"][:] = g
    return dict(out.tensors)


def numbered(threads: int, buffers: int, make: Any = number, ahead: Any = None, *, by_caller: bool = False) -> Feeder:
    """Feeds the numbers of its batches."""
    sizes = {"threads": threads, "buffers": buffers}
    return Feeder(new_buffer, make, 0, lambda g: g + 1, None, ahead, **sizes, by_caller=by_caller)


def taken(fed: Feeder) -> int:
    item = fed.take()
    assert isinstance(item, Filled)
    return int(item.tensors["n"])


def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + 30.0
    while not true():
        assert time.monotonic() < end
        time.sleep(0.001)


def test_buffers_go_back_to_all_threads_at_once_unless_the_caller_waits() -> None:
    fed = numbered(2, 5)
    try:
        seen: list[int] = []
        for _ in range(40):  # all that can be ready is: nobody waits
            until(lambda: sum(job.ready.qsize() for job in fed._given) >= 5 - len(fed._freed) - (fed._held is not None))
            seen.append(taken(fed))
            assert len(fed._freed) == (len(seen) + 1) % 2
        seen += [taken(fed) for _ in range(200)]  # faster than they are filled, at times
        assert seen == list(range(240))
        fed._free_held(at_once=True)
        assert fed._freed == []
    finally:
        fed.end()


def test_who_only_waits_makes_its_batches_in_two_buffers_and_who_computes_has_them_made() -> None:
    by: list[str] = []
    buffers: set[int] = set()

    def make(g: int, out: Buffer) -> dict[str, torch.Tensor]:
        by.append(threading.current_thread().name)
        buffers.add(id(out))
        time.sleep(0.01)
        return number(g, out)

    fed = numbered(2, 5, make, by_caller=True)
    here = threading.current_thread().name
    try:
        assert [taken(fed) for _ in range(20)] == list(range(20))
        assert by.count(here) >= 16
        assert by[-1] == here
        assert len(buffers) == 2
        for g in range(20, 40):
            time.sleep(0.02)
            assert taken(fed) == g
        until(lambda: len(by) == 40 + 4 - len(fed._freed))
        assert by[-18:] == ["phalanx-loader"] * 18
        assert len(buffers) == 5
        assert [taken(fed) for _ in range(60)] == list(range(40, 100))
        assert by[-1] == here
    finally:
        fed.end()


def test_while_the_disk_is_needed_threads_have_all_buffers() -> None:
    by: list[str] = []
    cold = [True]

    def make(g: int, out: Buffer) -> dict[str, torch.Tensor]:
        by.append(threading.current_thread().name)
        time.sleep(0.005)
        return number(g, out)

    sizes: Any = {"threads": 2, "buffers": 5, "by_caller": True, "cold_start": True}
    fed = Feeder(new_buffer, make, 0, lambda g: g + 1, None, None, **sizes, disk_needed=lambda: cold[0])
    try:
        until(lambda: len(by) == 5)  # nobody has asked yet
        assert [taken(fed) for _ in range(20)] == list(range(20))
        assert set(by) == {"phalanx-loader"}
        cold[0] = False
        assert [taken(fed) for _ in range(20)] == list(range(20, 40))
        assert by[-1] == threading.current_thread().name
    finally:
        fed.end()


def test_an_error_meets_the_caller_who_makes_its_batches() -> None:
    def broken(g: int, out: Buffer) -> dict[str, torch.Tensor]:
        raise OSError(f"no batch at {g}")

    fed = numbered(2, 5, broken, by_caller=True)
    item = fed.take()
    fed.end()
    assert isinstance(item, Failed)
    assert str(item.error) == "no batch at 0"


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
        numbered(threads, 2 * threads).end()
        assert kept == expected


def test_cores_that_are_taken_away_are_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(_thread: int, _cores: object) -> None:
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr("os.sched_setaffinity", gone)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    fed = numbered(2, 4)
    item = fed.take()
    fed.end()
    assert isinstance(item, Filled)


def test_a_caller_that_only_waits_is_hungry(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s, told, wait_s = [0.0], [], [0.0]

    class Told(ReadAhead):
        """Reads nothing."""

        def hurry(self, on: bool) -> None:
            told.append(on)

    def slow(g: int, out: Buffer) -> dict[str, torch.Tensor]:
        """Every other batch comes at once, as from two threads, the others after half a second."""
        wait_s[0] = 0.5 - wait_s[0]
        now_s[0] += wait_s[0]
        return number(g, out)

    monkeypatch.setattr(feeder.time, "perf_counter", lambda: now_s[0])
    fed = numbered(1, 1, slow, Told(cast("Warmed", None), 1, threads=0))
    try:
        for computed_s in (0.01, 0.01, 0.01, 0.01, 1.0, 0.01, 0.01, *[0.001] * 20):
            until(lambda: fed._held is not None or not fed._given[0].ready.empty())
            now_s[0] += computed_s
            fed.take()
    finally:
        fed.end()
    assert told[:6] == [False, False, False, True, False, False], "everybody waits for the first three"
    assert told[-1]
