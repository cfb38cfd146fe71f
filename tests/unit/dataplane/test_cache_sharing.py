"""Loaders that share a cache too small for all of them: nobody starves, and nobody waits in a circle."""

import multiprocessing
from pathlib import Path

import pytest

from phalanx.dataplane import Loader, Manifest, Order, ShardCache, ShardDataset

from .conftest import MakeDataset

spawn = multiprocessing.get_context("spawn")
SHARD = 4096 + 8 * 84


@pytest.fixture
def manifest(make_dataset: MakeDataset) -> Manifest:
    return make_dataset(count=96, per_shard=8)


def test_who_holds_pins_gives_way_to_who_waits_for_room(tmp_path: Path, manifest: Manifest) -> None:
    """Two loaders in a cache too small for both; the first is idle with everything pinned."""
    cache = ShardCache(tmp_path / "cache", 4 * SHARD)
    with ShardDataset(tmp_path / "set", cache, open_shards=4) as a, ShardDataset(tmp_path / "set", cache) as b:
        a.shards.keep = 4
        with Loader(a, 48, shuffle=False, depth=1) as idle, Loader(b, 24, shuffle=False, depth=1) as busy:
            next(idle)
            for start in (0, 24, 48, 72, 0):
                assert next(busy)["id"].tolist() == list(range(start, start + 24))
            assert next(idle)["id"].tolist() == list(range(48, 96))


def train_through(root: Path, budget: int, folder: Path, rank: int) -> None:
    with ShardDataset(folder, ShardCache(root, budget)) as dataset, Loader(dataset, 32, rank % 2, 2, seed=3) as loader:
        order = Order(dataset.shard_rows, seed=3)
        for step, batch in enumerate(loader.batches(12)):
            assert batch["id"].tolist() == order.rank_ids(32 * step, 32, rank % 2, 2).tolist()


@pytest.mark.parametrize("shards_in_budget", [3, 8])
def test_loaders_of_many_processes_get_on_in_a_small_cache(
    tmp_path: Path, manifest: Manifest, shards_in_budget: int
) -> None:
    arguments = [(tmp_path / "cache", shards_in_budget * SHARD, tmp_path / "set", rank) for rank in range(3)]
    processes = [spawn.Process(target=train_through, args=each) for each in arguments]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * 3
