import queue
import threading
from collections.abc import Iterable
from pathlib import Path

import pytest

from phalanx.dataplane import Loader, Order, ShardCache, ShardDataset
from phalanx.dataplane.errors import CacheFull
from phalanx.dataplane.read_ahead import ReadAhead

from .conftest import MakeDataset


class Recorder:
    """Stands in for the open shards: notes what is warmed, and fails for the shards told."""

    def __init__(self, failing: Iterable[int] = ()) -> None:
        self.warmed: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._failing = set(failing)

    def warm(self, index: int, stop: threading.Event, *, open_too: bool = False) -> None:
        self.warmed.put(index)
        if index in self._failing:
            raise CacheFull("no room")

    def give_way(self) -> None:
        pass


def drained(warmed: "queue.SimpleQueue[int]") -> list[int]:
    return [warmed.get_nowait() for _ in range(warmed.qsize())]


def test_shards_are_warmed_in_order_and_not_again_while_remembered() -> None:
    recorder = Recorder()
    ahead = ReadAhead(recorder, remember=3)
    ahead.go()
    for shards in ([4, 5], [5, 6], [7], [4]):  # by then 4 is forgotten
        ahead.request(shards)
    warmed = [recorder.warmed.get(timeout=10) for _ in range(5)]
    ahead.stop(10)
    assert warmed == [4, 5, 6, 7, 4]
    assert recorder.warmed.empty()


def test_a_shard_that_cannot_be_read_does_not_end_the_thread(caplog: pytest.LogCaptureFixture) -> None:
    recorder = Recorder(failing=[1])
    with caplog.at_level("DEBUG", "phalanx.dataplane"):
        ahead = ReadAhead(recorder, remember=9)
        ahead.awaited.hurry(True)
        ahead.request([1, 2])
        ahead.go()
        ahead.awaited.wait([1, 2])
        ahead.stop(10)
    assert drained(recorder.warmed) == [1, 2]
    assert ahead.awaited._in_vain == set()
    assert "read-ahead of shard 1 failed: no room" in caplog.text


def test_two_threads_read_while_it_is_hurried() -> None:
    met = threading.Barrier(2)

    class Meeting(Recorder):
        def warm(self, index: int, stop: threading.Event, *, open_too: bool = False) -> None:
            super().warm(index, stop, open_too=open_too)
            if index < 2:
                met.wait(10)

    recorder = Meeting()
    ahead = ReadAhead(recorder, remember=9)
    ahead.request([0, 1])
    for _ in range(3):
        ahead.hurry(True)  # reading begins at once
    ahead.awaited.wait([0, 1])
    assert sorted(drained(recorder.warmed)) == [0, 1]
    (helper,) = ahead._helpers
    ahead.hurry(False)
    helper.join(10)
    assert not helper.is_alive()
    ahead.hurry(True)
    assert ahead._helpers != [helper]
    ahead.stop(10)
    alone = ReadAhead(recorder, remember=9, hurried_threads=1)
    alone.hurry(True)
    assert alone._helpers == []
    alone.stop(10)
    assert not any(thread.is_alive() for thread in (*ahead._threads, *ahead._helpers))


def test_a_loader_asks_for_the_next_blocks_before_it_needs_them(make_dataset: MakeDataset, tmp_path: Path) -> None:
    make_dataset(count=512, per_shard=8)
    cache = ShardCache(tmp_path / "cache", 10**7)
    options = {"shards_per_block": 4, "lanes": 2}
    with ShardDataset(tmp_path / "set", cache) as dataset, Loader(dataset, 4, seed=0, **options) as loader:
        order = Order(dataset.shard_rows, 0, **options)
        ahead = order.block_shards(order.rank_positions(order.block_span, 4, 0, 1))
        now = order.block_shards(order.rank_positions(0, 4, 0, 1))
        next(loader)
        wanted = {dataset.manifest.shards[index].xxh3_128 for index in (*now, *ahead)}
        assert len(wanted) == 16
        done = threading.Event()
        for _ in range(1000):
            if wanted <= {path.stem for path in (tmp_path / "cache" / "objects").glob("*.shard")}:
                break
            done.wait(0.01)
        else:
            pytest.fail("the blocks ahead were never fetched")


def test_warming_stops_when_told(make_dataset: MakeDataset, tmp_path: Path) -> None:
    make_dataset()
    stop = threading.Event()
    stop.set()
    with ShardDataset(tmp_path / "set") as dataset:
        dataset.shards.warm(0, stop)
        assert dataset.gather([0])["id"].tolist() == [0]
