"""Shards that are on the disk only: their rows are asked for, and they are opened before anybody needs them."""

import os
import threading
import time
from collections.abc import Collection
from pathlib import Path

import numpy as np
import pytest

from phalanx.dataplane import ShardCache, ShardDataset, row_ranges
from phalanx.dataplane import open_shards as module
from phalanx.dataplane.awaited import Awaited
from phalanx.dataplane.cold import ColdShards
from phalanx.dataplane.errors import CorruptShard
from phalanx.dataplane.row_ranges import RowRanges
from phalanx.dataplane.shard_file import in_memory
from phalanx.dataplane.takes import Takes

from .conftest import MakeDataset, rows


def test_rows_are_asked_for_once_each_until_the_shard_was_read() -> None:
    cold = ColdShards()
    assert cold.among(np.array([0, 1])).tolist() == []
    cold.add(1, 3)
    cold.add(2, 10)
    assert cold.among(np.array([0, 1, 1, 2])).tolist() == [1, 2, 3]
    assert cold.among(np.array([1, 1, 2, 2])).tolist() == [0, 1, 2, 3]  # the third row of shard 1 was its last
    assert cold.among(np.array([1, 2])).tolist() == [1]
    cold.forget(2)
    assert cold.among(np.array([1, 2])).tolist() == []


def test_a_file_just_written_is_in_memory(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(1 << 20))
    descriptor = os.open(path, os.O_RDONLY)
    try:
        assert in_memory(descriptor, 1 << 20)
    finally:
        os.close(descriptor)


def test_cold_rows_are_asked_for_and_right(
    make_dataset: MakeDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_dataset(count=40, per_shard=8)
    asked: list[tuple[int, int]] = []
    will_need = RowRanges.will_need

    def noted(self: RowRanges, shard_of: np.ndarray, rows: np.ndarray) -> None:
        asked.extend(zip(shard_of.tolist(), rows.tolist(), strict=True))
        will_need(self, shard_of, rows)

    monkeypatch.setattr(RowRanges, "will_need", noted)
    monkeypatch.setattr(module, "in_memory", lambda descriptor, size: False)
    with ShardDataset(tmp_path / "set") as dataset:
        for ids in ([3, 17], [4, 30]):
            got = dataset.gather(ids)
            assert all((got[name] == values).all() for name, values in rows(np.array(ids)).items())
        assert asked == [(0, 3), (2, 1), (0, 4), (3, 6)]
        dataset.shards.warm(0, threading.Event())
        dataset.gather([5])
        assert len(asked) == 4


def together(dataset: ShardDataset, *ids: list[int]) -> list[object]:
    """What gathers of these ids give or raise that all found the shards locked when they began."""
    found: list[object] = [None] * len(ids)

    def read(place: int) -> None:
        try:
            found[place] = dataset.gather(ids[place])["id"].tolist()
        except CorruptShard as error:
            found[place] = error

    threads = [threading.Thread(target=read, args=(place,)) for place in range(len(ids))]
    with dataset.shards._lock:
        for waiting, thread in enumerate(threads, 1):
            thread.start()
            while len(dataset.shards._waiting) < waiting:
                time.sleep(0.001)
    for thread in threads:
        thread.join()
    return found


def test_who_opens_shards_opens_those_of_who_waits(
    make_dataset: MakeDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_dataset(count=40, per_shard=8)
    opened: list[tuple[int, int]] = []
    open_one = module.OpenShards._open_one

    def noted(self: module.OpenShards, index: int, *, wait: bool) -> None:
        opened.append((threading.get_ident(), index))
        open_one(self, index, wait=wait)

    monkeypatch.setattr(module.OpenShards, "_open_one", noted)
    for options, by in (({}, 1), ({"open_shards": 2}, 2), ({"verify": True}, 2)):
        opened.clear()
        with ShardDataset(tmp_path / "set", **{"verify": False, **options}) as dataset:
            assert together(dataset, [1, 9], [2, 17, 25]) == [[1, 9], [2, 17, 25]]
            assert dataset.shards._waiting == {}
        # Not beyond what may stay open, nor where whole shards would be hashed for another's batch.
        assert len({thread for thread, _ in opened}) == by, options
        assert {index for _, index in opened} == {0, 1, 2, 3}


def test_a_bad_shard_is_the_fault_of_who_needs_it(make_dataset: MakeDataset, tmp_path: Path) -> None:
    manifest = make_dataset(count=40, per_shard=8)
    bad = tmp_path / "set" / manifest.shards[1].file
    bad.write_bytes(b"?" + bad.read_bytes()[1:])
    with ShardDataset(tmp_path / "set", verify=False) as dataset:
        right, wrong = together(dataset, [1, 17], [9])
    assert right == [1, 17]
    assert isinstance(wrong, CorruptShard)
    assert manifest.shards[1].file in str(wrong)


def test_the_rows_of_a_batch_are_asked_for_before_those_of_the_next(
    make_dataset: MakeDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_dataset(count=40, per_shard=8)
    asking: list[int] = []

    def advised(*_: object) -> None:
        asking.append(threading.get_ident())
        time.sleep(0.002)

    monkeypatch.setattr(row_ranges, "advise", advised)
    monkeypatch.setattr(module, "in_memory", lambda descriptor, size: False)
    with ShardDataset(tmp_path / "set", verify=False) as dataset:
        together(dataset, [1, 9, 17, 25], [2, 10, 18, 26])
    turns = [thread for thread, before in zip(asking, [None, *asking], strict=False) if thread != before]
    assert len(asking) == 24
    assert len(turns) == 2


def test_a_shard_warmed_is_open_and_checked_before_it_is_needed(make_dataset: MakeDataset, tmp_path: Path) -> None:
    manifest = make_dataset(count=40, per_shard=8)
    bad = tmp_path / "set" / manifest.shards[1].file
    bad.write_bytes(bad.read_bytes()[:-1] + b"?")
    with ShardDataset(tmp_path / "set") as dataset:
        dataset.shards.warm(0, threading.Event(), open_too=True)
        (tmp_path / "set" / manifest.shards[0].file).unlink()
        assert dataset.gather([2])["id"].tolist() == [2]
        with pytest.raises(CorruptShard, match=manifest.shards[1].file):
            dataset.shards.warm(1, threading.Event(), open_too=True)
        with pytest.raises(CorruptShard, match=manifest.shards[1].file):
            dataset.gather([9])


def test_shards_in_use_are_read_whole_only_for_a_caller_that_only_waits(
    make_dataset: MakeDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_dataset(count=40, per_shard=8)
    asked: list[bool] = []

    def read(_path: Path, _size: int, _stop: threading.Event, *, whole: bool) -> None:
        asked.append(whole)

    monkeypatch.setattr(module, "read_into_memory", read)
    with ShardDataset(tmp_path / "set", verify=False) as dataset:
        dataset.gather([3])
        dataset.shards.warm(0, threading.Event())
        assert asked == [], "just now it was in memory"
        monkeypatch.setattr(module, "_A_MOMENT_S", 0.0)
        dataset.shards.awaited = Awaited()
        for hurried in (False, True):
            dataset.shards.awaited.hurry(hurried)
            for shard in (0, 1):
                dataset.shards.warm(shard, threading.Event())
    assert asked == [False, True, True, True]


def test_only_shards_that_are_slow_are_waited_for(make_dataset: MakeDataset, tmp_path: Path) -> None:
    make_dataset(count=40, per_shard=8)
    waited: list[list[int]] = []

    class Noting(Awaited):
        def __init__(self) -> None:
            super().__init__()
            self.expect(3)

        def wait(self, shards: Collection[int]) -> None:
            waited.append(list(shards))

    with ShardDataset(tmp_path / "set", verify=False) as dataset:
        dataset.gather([3, 9])
        dataset.shards.cold.add(1, 8)
        dataset.shards.awaited = Noting()
        dataset.gather([3, 9, 17])
        assert waited == [], "the caller computes"
        dataset.shards.awaited.hurry(True)
        dataset.gather([3, 9, 17, 25])  # in memory; on the disk; open by now; not open
        assert waited == [[1, 3]]
    cache = ShardCache(tmp_path / "cache", 10**6)
    with ShardDataset(tmp_path / "set", cache, verify=False) as dataset:
        dataset.gather([3])
        dataset.close()
        dataset.shards.awaited = Noting()
        dataset.shards.awaited.hurry(True)
        dataset.gather([3, 9])  # in the cache; still to be fetched
        assert waited[1:] == [[0]]


def test_nothing_is_unmapped_under_a_gather() -> None:
    takes, story = Takes(), []
    takes.wait_for_none()
    takes.begin("a")
    takes.end("one that was interrupted before it began")

    def unmap() -> None:
        takes.wait_for_none()
        story.append("unmapped")

    thread = threading.Thread(target=unmap)
    thread.start()
    thread.join(0.05)
    story.append("copied")
    takes.end("a")
    thread.join()
    assert story == ["copied", "unmapped"]
    takes.begin("b")
    takes.when_none(lambda: story.append("let go"), 0.01)
    assert len(story) == 2
    takes.end("b")
    takes.when_none(lambda: story.append("let go"), 0.01)
    assert story[2:] == ["let go"]


def test_many_threads_gather_while_shards_come_and_go(make_dataset: MakeDataset, tmp_path: Path) -> None:
    make_dataset(count=160, per_shard=8)
    wrong: list[int] = []
    with ShardDataset(tmp_path / "set", open_shards=3) as dataset:

        def read(seed: int) -> None:
            random = np.random.default_rng(seed)
            for _ in range(200):
                ids = random.integers(0, 160, 6)
                got = dataset.gather(ids)
                wrong.extend(ids[got["id"] != ids].tolist())

        threads = [threading.Thread(target=read, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert wrong == []
