import fcntl
import multiprocessing
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import xxhash

from phalanx.dataplane import Manifest, ShardCache, ShardDataset
from phalanx.dataplane.errors import CacheError, CacheFull, CorruptShard
from phalanx.dataplane.inventory import CachedDataset, inventory
from phalanx.dataplane.source import FolderSource

from .conftest import MakeDataset

spawn = multiprocessing.get_context("spawn")
SHARD = 4096 + 8 * 84


class LoggingSource(FolderSource):
    """Writes a line for every fetch begun, and hands bytes over slowly in small pieces."""

    def __init__(self, folder: Path, log: Path, pause_s: float = 0.0) -> None:
        super().__init__(folder)
        self._log = log
        self._pause_s = pause_s

    def stream(self, file: str) -> Iterator[memoryview]:
        with self._log.open("a") as log:
            log.write(f"{file}\n")
        for piece in super().stream(file):
            for start in range(0, len(piece), 512):
                time.sleep(self._pause_s)
                yield piece[start : start + 512]

    def fetches(self) -> Counter[str]:
        return Counter(self._log.read_text().split()) if self._log.exists() else Counter()


def whole(path: Path) -> bool:
    return xxhash.xxh3_128_hexdigest(path.read_bytes()) == path.stem


def visible(cache_root: Path) -> list[Path]:
    return sorted((cache_root / "objects").glob("*.shard"))


def left_over(cache_root: Path) -> list[Path]:
    return sorted((cache_root / "objects").glob("*.part"))


def fetch_all(root: Path, budget: int, manifest: Manifest, source: FolderSource, seed: int) -> None:
    cache = ShardCache(root, budget)
    for shard in random.Random(seed).sample(manifest.shards, len(manifest.shards)):
        with cache.pin(shard, source) as path:
            assert whole(path)


@pytest.fixture
def manifest(make_dataset: MakeDataset) -> Manifest:
    return make_dataset(count=96, per_shard=8)


@pytest.fixture
def source(tmp_path: Path) -> LoggingSource:
    return LoggingSource(tmp_path / "set", tmp_path / "log")


def test_a_shard_is_fetched_once_and_then_found(tmp_path: Path, manifest: Manifest, source: LoggingSource) -> None:
    for _ in range(3):
        fetch_all(tmp_path / "cache", 10**6, manifest, source, 0)
    assert set(source.fetches().values()) == {1}
    assert len(visible(tmp_path / "cache")) == 12


def test_many_processes_fetch_each_shard_once(tmp_path: Path, manifest: Manifest, source: LoggingSource) -> None:
    arguments = [(tmp_path / "cache", 10**6, manifest, source, seed) for seed in range(4)]
    processes = [spawn.Process(target=fetch_all, args=each) for each in arguments]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * 4
    assert source.fetches() == {shard.file: 1 for shard in manifest.shards}


def test_many_processes_share_a_small_budget(tmp_path: Path, manifest: Manifest, source: LoggingSource) -> None:
    budget = 5 * SHARD
    arguments = [(tmp_path / "cache", budget, manifest, source, seed) for seed in range(4)]
    processes = [spawn.Process(target=fetch_all, args=each) for each in arguments]
    cache = ShardCache(tmp_path / "cache", budget)
    for process in processes:
        process.start()
    used = [cache.used_bytes()]
    while any(process.is_alive() for process in processes):
        used.append(cache.used_bytes())
        time.sleep(0.002)
    assert [process.exitcode for process in processes] == [0] * 4
    assert 0 < max(used) <= budget


def test_a_killed_fetch_leaves_nothing_wrong_and_nothing_locked(tmp_path: Path, manifest: Manifest) -> None:
    slow = LoggingSource(tmp_path / "set", tmp_path / "log", pause_s=0.002)
    root = tmp_path / "cache"
    for seed in range(4):
        process = spawn.Process(target=fetch_all, args=(root, 10**6, manifest, slow, seed))
        process.start()
        while not left_over(root) and process.is_alive():
            time.sleep(0.001)
        time.sleep(0.003 * seed)
        os.kill(process.pid or 0, signal.SIGKILL)
        process.join()
        assert all(whole(path) for path in visible(root))
    cache = ShardCache(root, 10**6)
    assert left_over(root) == []
    fetch_all(root, 10**6, manifest, FolderSource(tmp_path / "set"), 0)
    assert cache.used_bytes() == manifest.size_bytes


def test_the_budget_counts_what_is_being_fetched_and_the_oldest_goes_first(
    tmp_path: Path, manifest: Manifest, source: LoggingSource
) -> None:
    cache = ShardCache(tmp_path / "cache", 3 * SHARD)
    for age, shard in enumerate(manifest.shards[:3]):
        with cache.pin(shard, source) as path:
            pass
        os.utime(path, (1000 + age, 1000 + age))
    with cache.pin(manifest.shards[0], source):  # used again: now the newest
        pass
    with cache.pin(manifest.shards[3], source):
        assert cache.used_bytes() == 3 * SHARD
    kept = {path.stem for path in visible(tmp_path / "cache")}
    assert kept == {manifest.shards[index].xxh3_128 for index in (0, 2, 3)}


def test_what_is_being_read_is_not_removed(tmp_path: Path, manifest: Manifest, source: LoggingSource) -> None:
    cache = ShardCache(tmp_path / "cache", 2 * SHARD, wait_s=0.05)
    first, second, third = manifest.shards[:3]
    with cache.pin(first, source) as path:
        with cache.pin(second, source):
            with (
                pytest.raises(CacheFull, match=f"no room for shard {third.file}.*{2 * SHARD} of {2 * SHARD} bytes"),
                cache.pin(third, source),
            ):
                pass
            assert left_over(tmp_path / "cache") == []
        with cache.pin(third, source):
            assert whole(path)
        assert cache.used_bytes() == 2 * SHARD


def test_a_budget_below_one_shard_is_an_error_at_open(tmp_path: Path, manifest: Manifest) -> None:
    with pytest.raises(CacheError, match=rf"budget of {SHARD - 1} bytes cannot hold even one shard.*{SHARD} bytes"):
        ShardDataset(tmp_path / "set", ShardCache(tmp_path / "cache", SHARD - 1))
    with pytest.raises(CacheError, match="must be positive"):
        ShardCache(tmp_path / "cache", 0)


def test_files_that_the_cache_did_not_make_are_left_alone(tmp_path: Path, manifest: Manifest) -> None:
    root = tmp_path / "set"  # the cache in the very folder of the source
    objects = root / "objects"
    objects.mkdir()
    foreign = [root / "notes.txt", objects / "notes.txt", objects / "big.shard", objects / f"{'a' * 32}.part"]
    for path in foreign:
        path.write_bytes(b"mine" * 10_000)
    before = {path: path.read_bytes() for path in [*foreign, *root.glob("shard-*"), root / "manifest.json"]}
    with ShardDataset(root, ShardCache(root, 2 * SHARD)) as dataset:
        dataset.gather(np.arange(96))
    assert {path: path.read_bytes() for path in before} == before
    assert len(visible(root)) == 3  # two of ours, and the foreign one


def test_same_file_names_in_two_data_sets_do_not_meet(tmp_path: Path, make_dataset: MakeDataset) -> None:
    make_dataset("a", count=20)
    make_dataset("b", count=20, first=1000)
    cache = ShardCache(tmp_path / "cache", 10**6)
    with ShardDataset(tmp_path / "a", cache) as a, ShardDataset(tmp_path / "b", cache) as b:
        assert a.gather([0, 19])["id"].tolist() == [0, 19]
        assert b.gather([0, 19])["id"].tolist() == [1000, 1019]


def test_a_shard_gone_bad_in_the_cache_is_fetched_again(tmp_path: Path, manifest: Manifest) -> None:
    cache = ShardCache(tmp_path / "cache", 10**6)
    with ShardDataset(tmp_path / "set", cache) as dataset:
        dataset.gather(np.arange(96))
    bad = visible(tmp_path / "cache")[0]
    bad.write_bytes(b"x" * SHARD)
    with ShardDataset(tmp_path / "set", cache) as dataset:
        assert dataset.gather(np.arange(96))["id"].tolist() == list(range(96))
    assert whole(bad)


def test_a_short_leftover_is_replaced(tmp_path: Path, manifest: Manifest, source: LoggingSource) -> None:
    shard = manifest.shards[0]
    cache = ShardCache(tmp_path / "cache", 10**6)
    (tmp_path / "cache" / "objects" / f"{shard.xxh3_128}.shard").write_bytes(b"half")
    with cache.pin(shard, source) as path:
        assert whole(path)


@pytest.mark.parametrize("content", [b"x" * SHARD, b"x", b"x" * (SHARD + 1)])
def test_a_shard_bad_at_the_source_is_named_after_some_tries(
    tmp_path: Path, manifest: Manifest, source: LoggingSource, content: bytes
) -> None:
    shard = manifest.shards[2]
    (tmp_path / "set" / shard.file).write_bytes(content)
    cache = ShardCache(tmp_path / "cache", 10**6, attempts=2)
    with pytest.raises(CorruptShard, match=rf"{shard.file} from .*2 times in a row"), cache.pin(shard, source):
        pass
    assert source.fetches() == {shard.file: 2}
    assert visible(tmp_path / "cache") == left_over(tmp_path / "cache") == []


def test_a_source_that_breaks_off_is_tried_again(tmp_path: Path, manifest: Manifest) -> None:
    class Flaky(FolderSource):
        broken = 2

        def stream(self, file: str) -> Iterator[memoryview]:
            for piece in super().stream(file):
                if self.broken:
                    self.broken -= 1
                    yield piece[:100]
                    raise OSError("connection reset")
                yield piece

    cache = ShardCache(tmp_path / "cache", 10**6)
    with cache.pin(manifest.shards[0], Flaky(tmp_path / "set")) as path:
        assert whole(path)


def test_a_shard_missing_at_the_source_is_named(tmp_path: Path, manifest: Manifest, source: LoggingSource) -> None:
    shard = manifest.shards[2]
    (tmp_path / "set" / shard.file).unlink()
    cache = ShardCache(tmp_path / "cache", 10**6)
    with pytest.raises(CacheError, match=rf"{shard.file} is missing in {tmp_path / 'set'}"), cache.pin(shard, source):
        pass
    assert left_over(tmp_path / "cache") == []


def test_files_removed_under_an_open_data_set_do_not_disturb_it(tmp_path: Path, manifest: Manifest) -> None:
    cache = ShardCache(tmp_path / "cache", 10**6)
    with ShardDataset(tmp_path / "set", cache) as dataset:
        dataset.gather(np.arange(96))
        for path in visible(tmp_path / "cache"):
            path.unlink()
        assert dataset.gather(np.arange(96))["id"].tolist() == list(range(96))
        dataset.close()
        assert dataset.gather(np.arange(96))["id"].tolist() == list(range(96))
    assert len(visible(tmp_path / "cache")) == 12


def test_an_open_data_set_pins_its_shards_until_it_is_closed(tmp_path: Path, manifest: Manifest) -> None:
    cache = ShardCache(tmp_path / "cache", 4 * SHARD, wait_s=0.05)
    source = FolderSource(tmp_path / "set")
    with ShardDataset(tmp_path / "set", cache) as dataset:
        dataset.gather(np.arange(16))  # half the budget: two shards stay open
        with cache.pin(manifest.shards[2], source), cache.pin(manifest.shards[3], source):
            with pytest.raises(CacheFull), cache.pin(manifest.shards[4], source, wait=False):
                pass
            dataset.close()
            with cache.pin(manifest.shards[4], source, wait=False):
                assert cache.used_bytes() == 4 * SHARD


def test_a_batch_larger_than_the_cache_is_gathered_shard_by_shard(tmp_path: Path, manifest: Manifest) -> None:
    ids = np.random.default_rng(0).permutation(96)
    cache = ShardCache(tmp_path / "cache", 2 * SHARD)
    with ShardDataset(tmp_path / "set", cache) as dataset:
        assert dataset.gather(ids)["id"].tolist() == ids.tolist()
        assert cache.used_bytes() <= 2 * SHARD


def test_inventory_per_data_set(tmp_path: Path, make_dataset: MakeDataset) -> None:
    assert inventory(tmp_path / "cache") == ()
    a, b = make_dataset("a", count=96), make_dataset("b", count=16, first=500)
    cache = ShardCache(tmp_path / "cache", 10**6)
    with ShardDataset(tmp_path / "a", cache) as dataset:
        dataset.gather(np.arange(24))
    with ShardDataset(tmp_path / "b", cache):
        pass
    (tmp_path / "cache" / "datasets" / "broken.json").write_text("{")
    assert inventory(tmp_path / "cache") == (
        CachedDataset("a", a.digest, 3, 12, 3 * SHARD, 12 * SHARD),
        CachedDataset("b", b.digest, 0, 2, 0, 2 * SHARD),
    )


def test_locks_are_never_removed(tmp_path: Path, manifest: Manifest, source: LoggingSource) -> None:
    cache = ShardCache(tmp_path / "cache", 2 * SHARD)
    for shard in manifest.shards:
        with cache.pin(shard, source):
            lock = tmp_path / "cache" / "locks" / f"{shard.xxh3_128}.lock"
            with lock.open() as file, pytest.raises(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert len(list((tmp_path / "cache" / "locks").iterdir())) == len(manifest.shards) + 1  # and the evict lock
