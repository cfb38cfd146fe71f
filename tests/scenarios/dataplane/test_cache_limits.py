"""A cache that is small, shared, or not empty at the start (D3, D4, D14, D15, D18)."""

import multiprocessing
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xxhash

from phalanx.dataplane import Loader, Manifest, ShardCache, ShardDataset
from phalanx.dataplane.errors import CacheError
from phalanx.dataplane.source import FolderSource

Make = Callable[..., Any]
fork = multiprocessing.get_context("fork")
SHARD = 4096 + 8 * 84


def everything(folder: Path, cache: ShardCache) -> list[int]:
    with ShardDataset(folder, cache) as dataset:
        return dataset.gather(np.arange(len(dataset)))["id"].tolist()


def test_d3_a_limit_below_one_shard_is_an_error_at_open_with_the_numbers(make_dataset: Make, tmp_path: Path) -> None:
    make_dataset(count=96)
    with pytest.raises(CacheError, match=rf"budget of {SHARD - 1} bytes cannot hold even one shard .*{SHARD} bytes"):
        ShardDataset(tmp_path / "set", ShardCache(tmp_path / "cache", SHARD - 1))


@pytest.mark.parametrize("shards", [1, 2, 3])
def test_d3_a_limit_of_fewer_shards_than_are_prefetched_still_gets_on(
    make_dataset: Make, tmp_path: Path, shards: int
) -> None:
    make_dataset(count=96)
    cache = ShardCache(tmp_path / "cache", shards * SHARD)
    with ShardDataset(tmp_path / "set", cache) as dataset, Loader(dataset, 16, depth=4, tail="drop") as loader:
        assert sorted(sample for batch in loader for sample in batch["id"].tolist()) == list(range(96))
    assert cache.used_bytes() <= shards * SHARD


def test_d4_evicting_never_touches_the_source(make_dataset: Make, tmp_path: Path) -> None:
    make_dataset(count=96)
    source = {path: path.read_bytes() for path in (tmp_path / "set").iterdir()}
    for root in (tmp_path / "set", tmp_path / "set" / "objects", tmp_path / "cache"):
        assert everything(tmp_path / "set", ShardCache(root, 2 * SHARD)) == list(range(96))
    assert {path: path.read_bytes() for path in source} == source


def test_d14_data_sets_with_the_same_file_names_are_kept_apart(make_dataset: Make, tmp_path: Path) -> None:
    make_dataset("a", count=24)
    make_dataset("b", count=24, first=500)
    cache = ShardCache(tmp_path / "cache", 10**6)
    for _ in range(2):
        assert everything(tmp_path / "a", cache) == list(range(24))
        assert everything(tmp_path / "b", cache) == list(range(500, 524))
        # Nor do they only get on because each puts right, by its checksums, what the other has overwritten.
        assert cache.used_bytes() == 6 * SHARD


def cycle(root: Path, manifest: Manifest, folder: Path, seed: int, turns: int) -> None:
    cache, source, draw = ShardCache(root, 4 * SHARD), FolderSource(folder), random.Random(seed)
    for _ in range(turns):
        shard = draw.choice(manifest.shards)
        with cache.pin(shard, source) as path:
            assert xxhash.xxh3_128_hexdigest(path.read_bytes()) == shard.xxh3_128


@pytest.mark.slow
def test_d15_eight_processes_fetch_and_evict_a_thousand_times(make_dataset: Make, tmp_path: Path) -> None:
    manifest = make_dataset(count=96)
    processes = [
        fork.Process(target=cycle, args=(tmp_path / "cache", manifest, tmp_path / "set", seed, 125))
        for seed in range(8)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * 8
    assert ShardCache(tmp_path / "cache", 4 * SHARD).used_bytes() <= 4 * SHARD


def test_d18_what_an_older_run_left_is_used_dropped_or_left_alone(make_dataset: Make, tmp_path: Path) -> None:
    manifest = make_dataset(count=96)
    root = tmp_path / "cache"
    everything(tmp_path / "set", ShardCache(root, 10**6))
    objects = root / "objects"
    good, half, long, wrong = (objects / f"{shard.xxh3_128}.shard" for shard in manifest.shards[:4])
    times = good.stat().st_mtime_ns
    half.write_bytes(half.read_bytes()[: SHARD // 2])
    long.write_bytes(long.read_bytes() + b"x")
    wrong.write_bytes(b"x" * SHARD)
    part = objects / f"{manifest.shards[5].xxh3_128}.part"
    part.write_bytes(b"half a fetch")
    foreign = [objects / "notes.txt", root / "README", objects / f"{'0' * 32}.shard"]
    for path in foreign:
        path.write_bytes(b"not ours")
    assert everything(tmp_path / "set", ShardCache(root, 10**6)) == list(range(96))
    assert not part.exists()
    assert [path.read_bytes() for path in foreign] == [b"not ours"] * 3
    assert good.stat().st_mtime_ns - times < 2 * 10**9  # used again, not fetched again
    for shard, path in zip(manifest.shards, (good, half, long, wrong), strict=False):
        assert xxhash.xxh3_128_hexdigest(path.read_bytes()) == shard.xxh3_128
