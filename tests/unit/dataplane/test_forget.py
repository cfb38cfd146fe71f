"""Rows of a cold shard are forgotten before it is read whole: nothing is lost, whoever reads meanwhile."""

import os
import threading
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from phalanx.dataplane import Field, Loader, ShardDataset, ShardWriter, feeder, forget
from phalanx.dataplane import open_shards as module
from phalanx.dataplane.awaited import Awaited
from phalanx.dataplane.errors import CorruptShard
from phalanx.dataplane.forget import forget_rows
from phalanx.dataplane.pages import share_in_memory
from phalanx.dataplane.shard_file import in_memory
from phalanx.dataplane.takes import Takes

WAVE = Field("wave", "int16", (64, 128))  # rows of 16 KiB
NAME = Field("name", "uint8", (), variable=True)


def made(folder: Path, count: int = 512, shard_bytes: int = 2 << 20) -> list[Path]:
    """A data set whose sample i is i all over, and its files."""
    with ShardWriter(folder, [WAVE, NAME], name="set", shard_bytes=shard_bytes) as writer:
        for first in range(0, count, 64):
            ids = np.arange(first, first + 64)
            waves = np.broadcast_to(ids.reshape(-1, 1, 1).astype(np.int16), (64, 64, 128)).copy()
            writer.write({"wave": waves, "name": [np.full(i % 5000, i % 251, np.uint8) for i in ids.tolist()]})
        manifest = writer.close()
    return [folder / shard.file for shard in manifest.shards]


def forgotten(files: list[Path]) -> None:
    """Leaves the files on the disk only, if this file system can."""
    for path in files:
        with path.open("rb", buffering=0) as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            if in_memory(file.fileno(), path.stat().st_size):
                pytest.skip("this file system cannot tell what is in memory, or forgets nothing")


def right(batch: dict[str, np.ndarray], ids: np.ndarray) -> bool:
    offsets = batch["name.offsets"]
    names = [batch["name"][begin:end] for begin, end in pairwise(offsets)]
    return bool((batch["wave"] == ids.reshape(-1, 1, 1)).all()) and all(
        len(name) == i % 5000 and (name == i % 251).all() for name, i in zip(names, ids.tolist(), strict=True)
    )


def hurried(dataset: ShardDataset) -> Awaited:
    dataset.shards.awaited = awaited = Awaited()
    awaited.hurry(True)
    return awaited


@pytest.mark.parametrize("verify", [False, True])
def test_rows_are_right_before_and_after_their_shards_are_read_whole(tmp_path: Path, verify: bool) -> None:
    files = made(tmp_path / "set")
    forgotten(files)
    with ShardDataset(tmp_path / "set", verify=verify) as dataset:
        dataset.shards.prove_later = verify
        ids = np.arange(3, 512, 37)
        assert right(dataset.gather(ids), ids)
        hurried(dataset)
        for index, path in enumerate(files):
            dataset.shards.warm(index, threading.Event(), open_too=True)
            with path.open("rb", buffering=0) as file:
                assert in_memory(file.fileno(), path.stat().st_size)
        assert dataset.shards.unproved() == []
        assert right(dataset.gather(ids), ids)


def test_only_a_few_rows_are_forgotten_and_never_what_lies_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = made(tmp_path / "set")
    with ShardDataset(tmp_path / "set", verify=False) as dataset:
        dataset.gather([5])
        places = dataset.shards._ranges.places(0)
        assert len(places) == 2
        with files[0].open("rb", buffering=0) as file:
            size = files[0].stat().st_size
            for share, kept in ((0.6, True), (0.5, False), (1.0, False)):  # 1: the system does not tell
                assert len(file.read()) > 0
                file.seek(0)
                monkeypatch.setattr(forget, "share_in_memory", lambda *_, share=share: share)
                forget_rows(file.fileno(), places, Takes())
                if not kept and in_memory(file.fileno(), size):
                    pytest.skip("this file system forgets nothing")
                assert in_memory(file.fileno(), size) == kept, share
            monkeypatch.setattr(forget, "share_in_memory", lambda *_: 0.0)
            monkeypatch.setattr(forget, "_PATIENCE_S", 0.01)
            file.seek(0)
            assert len(file.read()) > 0
            takes = Takes()
            takes.begin("a gather")
            forget_rows(file.fileno(), places, takes)
            assert in_memory(file.fileno(), size), "a gather was under way"
        monkeypatch.setattr(module, "forget_rows", lambda *_: pytest.fail("this shard is in memory"))
        dataset.shards.cold.add(0, 100)
        hurried(dataset)
        dataset.shards.warm(0, threading.Event())
        assert 0 not in dataset.shards.cold
        assert right(dataset.gather(np.array([5])), np.array([5]))


def test_the_system_tells_how_much_of_a_shard_is_in_memory(tmp_path: Path) -> None:
    files = made(tmp_path / "set")
    with ShardDataset(tmp_path / "set", verify=False) as dataset:
        dataset.gather([5])
        place = max(dataset.shards._ranges.places(0), key=lambda each: each[1])
        assert share_in_memory(*place) == 1.0
        dataset.close()
        forgotten(files)
        dataset.gather([5])
        assert share_in_memory(*place) < 0.5


def test_gathers_are_right_while_their_pages_are_let_go_of(tmp_path: Path) -> None:
    files = made(tmp_path / "set", count=256)
    wrong: list[int] = []
    over = threading.Event()
    with ShardDataset(tmp_path / "set", verify=False) as dataset:

        def read(seed: int) -> None:
            random = np.random.default_rng(seed)
            for _ in range(150):
                ids = random.integers(0, 256, 8)
                if not right(dataset.gather(ids), ids):
                    wrong.extend(ids.tolist())

        def let_go() -> None:
            while not over.is_set():
                for index, path in enumerate(files):
                    with path.open("rb", buffering=0) as file:
                        items = [(a.ctypes.data, a.nbytes) for a in dataset.shards._items.get(index, {}).values()]
                        places = [*dataset.shards._ranges.places(index), *items]
                        for address, size in places:
                            forget.let_go(address, size)
                        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                time.sleep(0.001)

        dataset.gather(range(256))
        threads = [threading.Thread(target=read, args=(seed,)) for seed in range(2)]
        other = threading.Thread(target=let_go)
        for thread in (*threads, other):
            thread.start()
        for thread in threads:
            thread.join()
        over.set()
        other.join()
    assert wrong == []


def test_a_loop_that_only_waits_has_its_shards_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forgotten(made(tmp_path / "set"))
    read: list[bool] = []
    read_into_memory = module.read_into_memory

    def noted(path: Path, size: int, stop: threading.Event, *, whole: bool) -> None:
        read.append(whole)
        read_into_memory(path, size, stop, whole=whole)

    monkeypatch.setattr(module, "read_into_memory", noted)
    monkeypatch.setattr(feeder, "_FIRST", 0)
    monkeypatch.setattr(feeder, "_TIMES", -1)
    with ShardDataset(tmp_path / "set", verify=False) as dataset, Loader(dataset, 8, seed=1) as loader:
        seen = [int(i) for batch in loader.batches(64) for i in batch["wave"][:, 0, 0]]
        assert sorted(seen) == list(range(512))
        assert True in read
    assert dataset.shards.awaited is None


@pytest.mark.parametrize("how", ["close", "error"])
def test_who_waits_goes_on_when_the_loader_closes_or_reading_ahead_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    made(tmp_path / "set")
    monkeypatch.setattr(Awaited, "__init__", _patient)
    monkeypatch.setattr(module, "in_memory", lambda _descriptor, _size: False)
    stopped = threading.Event()

    def stuck(_self: module.OpenShards, _index: int, stop: threading.Event, *, open_too: bool = False) -> None:
        if how == "error":
            raise OSError(5, "Input/output error")
        stop.wait(30)
        stopped.set()

    monkeypatch.setattr(module.OpenShards, "warm", stuck)
    began = time.monotonic()
    with ShardDataset(tmp_path / "set", verify=False) as dataset, Loader(dataset, 8, seed=1) as loader:
        next(loader)
        feeder = loader._started()
        assert feeder._ahead is not None
        feeder._ahead.hurry(True)
        if how == "error":
            assert len(list(loader.batches(60))) == 60
    assert (how == "close") == stopped.is_set()
    assert time.monotonic() - began < 30


def _patient(self: Awaited) -> None:
    _INIT(self, 60.0, 60.0)


_INIT = Awaited.__init__


def test_a_shard_that_proves_wrong_is_told_to_who_waited_for_it(tmp_path: Path) -> None:
    files = made(tmp_path / "set")
    bad = files[1]
    bad.write_bytes(bad.read_bytes()[:-1] + b"\xfe")
    forgotten(files)
    with ShardDataset(tmp_path / "set") as dataset:
        loader = Loader(dataset, 8, seed=1)
        with pytest.raises(CorruptShard, match=bad.name):
            list(loader.batches(64))
        loader.close()


def test_a_forked_child_waits_for_nobody(tmp_path: Path) -> None:
    made(tmp_path / "set")
    with ShardDataset(tmp_path / "set") as dataset:
        awaited = hurried(dataset)
        for index in range(len(dataset.manifest.shards)):
            awaited.expect(index)
        dataset.shards._pid = -1  # as a child finds it
        ids = np.arange(0, 512, 41)
        assert right(dataset.gather(ids), ids)
        assert dataset.shards.awaited is None
