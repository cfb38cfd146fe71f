"""Bytes that are wrong, cut short, half written, or find no room (D5, D13, D28, kill -9 at random bytes)."""

import errno
import multiprocessing
import os
import random
import resource
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xxhash

from phalanx.dataplane import Field, Manifest, ShardCache, ShardDataset, ShardWriter, latest_checkpoint, save_checkpoint
from phalanx.dataplane.errors import CacheError, CorruptShard, DataplaneError, DatasetError, UnfinishedDataset
from phalanx.dataplane.source import FolderSource

Make = Callable[..., Any]
fork = multiprocessing.get_context("fork")
SHARD = 4096 + 8 * 84


def all_whole(root: Path) -> bool:
    return all(xxhash.xxh3_128_hexdigest(path.read_bytes()) == path.stem for path in (root / "objects").glob("*.shard"))


def test_d5_a_byte_flipped_in_the_cache_is_repaired_without_notice(make_dataset: Make, tmp_path: Path) -> None:
    manifest = make_dataset(count=96)
    cache = ShardCache(tmp_path / "cache", 10**6)
    ids = np.random.default_rng(0).permutation(96)
    with ShardDataset(tmp_path / "set", cache) as dataset:
        before = dataset.gather(ids)
    for shard in manifest.shards[::3]:
        path = tmp_path / "cache" / "objects" / f"{shard.xxh3_128}.shard"
        data = bytearray(path.read_bytes())
        data[random.Random(shard.file).randrange(SHARD)] ^= 1
        path.write_bytes(data)
    with ShardDataset(tmp_path / "set", cache) as dataset:
        after = dataset.gather(ids)
    assert all(np.array_equal(before[name], after[name]) for name in before)
    assert all_whole(tmp_path / "cache")


def test_d5_bad_at_the_source_is_an_error_after_some_tries_that_names_the_shard(
    make_dataset: Make, tmp_path: Path
) -> None:
    make_dataset(count=96)
    bad = tmp_path / "set" / "shard-000004.safetensors"
    bad.write_bytes(bad.read_bytes()[:-1] + b"\x99")
    cache = ShardCache(tmp_path / "cache", 10**6, attempts=3)
    with (
        ShardDataset(tmp_path / "set", cache) as dataset,
        pytest.raises(CorruptShard, match=r"shard-000004\.safetensors from .*its bytes have .*3 times in a row \(host"),
    ):
        dataset.gather([35])
    assert all_whole(tmp_path / "cache")


def test_d13_a_source_cut_in_the_middle_thirty_times_leaves_nothing(make_dataset: Make, tmp_path: Path) -> None:
    manifest = make_dataset(count=96)

    class Cut(FolderSource):
        def stream(self, file: str) -> Iterator[memoryview]:
            for piece in super().stream(file):
                yield piece[: len(piece) // 2]
                raise ConnectionResetError("cut")

    cache = ShardCache(tmp_path / "cache", 10**6, attempts=1)
    for turn in range(30):
        shard = manifest.shards[turn % 12]
        with (
            pytest.raises(CacheError, match=rf"{shard.file} from .*broke off after {SHARD // 2} bytes"),
            cache.pin(shard, Cut(tmp_path / "set")),
        ):
            pass
    assert list((tmp_path / "cache" / "objects").iterdir()) == []
    assert cache.used_bytes() == 0


class Slowly(FolderSource):
    """Hands a shard over in small pieces, so that there is time to be killed at any byte."""

    def stream(self, file: str) -> Iterator[memoryview]:
        for piece in super().stream(file):
            for start in range(0, len(piece), 64):
                time.sleep(0.0002)
                yield piece[start : start + 64]


def fetch(root: Path, manifest: Manifest, folder: Path, seed: int) -> None:
    cache = ShardCache(root, 5 * SHARD)  # small: evictions are killed, too
    for shard in random.Random(seed).sample(manifest.shards, len(manifest.shards)):
        with cache.pin(shard, Slowly(folder)):
            pass


@pytest.mark.parametrize("kills", [25, pytest.param(100, marks=pytest.mark.slow)])
def test_d28_fetches_and_evictions_killed_at_random_bytes(make_dataset: Make, tmp_path: Path, kills: int) -> None:
    manifest = make_dataset(count=96)
    root = tmp_path / "cache"
    for seed in range(kills):
        process = fork.Process(target=fetch, args=(root, manifest, tmp_path / "set", seed))
        process.start()
        time.sleep(random.Random(seed).uniform(0.0, 0.12))
        os.kill(process.pid or 0, signal.SIGKILL)
        process.join()
        assert all_whole(root)
    cache = ShardCache(root, 5 * SHARD)
    assert list((root / "objects").glob("*.part")) == []
    with ShardDataset(tmp_path / "set", cache) as dataset:
        assert dataset.gather(np.arange(96))["id"].tolist() == list(range(96))
    assert cache.used_bytes() <= 5 * SHARD


def test_d28_a_reader_beside_a_slow_writer_sees_nothing_or_all(make_dataset: Make, tmp_path: Path) -> None:
    manifest = make_dataset(count=96)
    writer = fork.Process(target=fetch, args=(tmp_path / "cache", manifest, tmp_path / "set", 1))
    writer.start()
    cache = ShardCache(tmp_path / "cache", 20 * SHARD)
    while writer.is_alive():
        for shard in random.sample(manifest.shards, 12):
            with cache.pin(shard, FolderSource(tmp_path / "set")) as path:
                assert xxhash.xxh3_128_hexdigest(path.read_bytes()) == shard.xxh3_128
    assert writer.exitcode == 0


def write(folder: Path, pause_s: float = 0.0) -> Manifest:
    with ShardWriter(folder, [Field("x", "int64", (20,))], name="n", shard_bytes=1600) as writer:
        for number in range(40):
            writer.write({"x": np.full((7, 20), number)})
            time.sleep(pause_s)
        return writer.close()


def test_a_writer_killed_at_random_moments_leaves_no_data_set_and_the_next_one_makes_the_same(tmp_path: Path) -> None:
    expected = write(tmp_path / "whole").digest
    for seed in range(12):
        process = fork.Process(target=write, args=(tmp_path / "set", 0.001))
        process.start()
        time.sleep(0.004 * seed)
        os.kill(process.pid or 0, signal.SIGKILL)
        process.join()
        with pytest.raises((UnfinishedDataset, DatasetError)):
            ShardDataset(tmp_path / "set")
    assert write(tmp_path / "set").digest == expected
    with ShardDataset(tmp_path / "set") as dataset:
        assert dataset.gather(np.arange(len(dataset)))["x"][:, 0].tolist() == np.repeat(np.arange(40), 7).tolist()


def limited(action: Callable[[], object], limit: int, answer: Any) -> None:
    """In a process whose files may not grow past a limit: as near to a full disk as any user gets."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    try:
        action()
        answer.put("done")
    except DataplaneError as error:
        answer.put(str(error))


def told(action: Callable[[], object], limit: int) -> str:
    answer = fork.SimpleQueue()
    process = fork.Process(target=limited, args=(action, limit, answer))
    process.start()
    result: str = answer.get()
    process.join()
    return result


def test_a_full_disk_is_named_and_nothing_half_is_left(make_dataset: Make, tmp_path: Path) -> None:
    make_dataset(count=96)

    def read() -> None:
        with ShardDataset(tmp_path / "set", ShardCache(tmp_path / "cache", 10**6)) as dataset:
            dataset.gather([0])

    message = told(read, SHARD - 1)
    assert f"cache {tmp_path / 'cache'}: cannot reserve {SHARD} bytes on disk" in message
    assert list((tmp_path / "cache" / "objects").iterdir()) == []
    assert told(read, 10**6) == "done"


def test_a_disk_that_fills_while_a_shard_is_written(
    make_dataset: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_dataset(count=96)

    def full(_descriptor: int, _data: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    cache = ShardCache(tmp_path / "cache", 10**6)
    with ShardDataset(tmp_path / "set", cache) as dataset:
        with monkeypatch.context() as patch:
            patch.setattr("phalanx.dataplane.source.os.write", full)
            with pytest.raises(
                CacheError, match=r"shard-000000\.safetensors cannot be written to the cache: .*No space"
            ):
                dataset.gather([0])
        assert list((tmp_path / "cache" / "objects").iterdir()) == []
        assert dataset.gather([0])["id"].tolist() == [0]


def test_a_checkpoint_that_finds_no_room_leaves_the_one_before(tmp_path: Path) -> None:
    import torch

    kept = save_checkpoint(tmp_path, {"w": torch.zeros(10)}, 1)
    message = told(lambda: save_checkpoint(tmp_path, {"w": torch.zeros(10_000)}, 2), 8192)
    assert "cannot save a checkpoint of step 2" in message
    assert latest_checkpoint(tmp_path) == kept
    assert [path.name for path in tmp_path.iterdir()] == [kept.name]
