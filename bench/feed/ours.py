"""What is measured in one process: our loader against the limit it could reach, and the memory of its index."""

from __future__ import annotations

import statistics
import time
from pathlib import Path

import numpy as np


def share_of_take(data: Path, batch: int, batches: int, rounds: int) -> float:
    """The loader's speed as a share of np.take from the same pages into rotating buffers, interleaved; the median."""
    from ...dataplane import Loader, ShardDataset

    with ShardDataset(data, verify=False) as dataset, Loader(dataset, batch, read_ahead=False) as loader:
        order = dataset.order(0)
        every = [order.rank_ids(number * batch, batch, 0, 1) for number in range(batches)]
        ring = [dataset.empty(batch) for _ in range(5)]
        starts = np.cumsum([0, *dataset.shard_rows])

        def limit() -> float:
            ranges = dataset.shards._ranges
            begun = time.perf_counter()
            for number, ids in enumerate(every):
                shard_of = np.searchsorted(starts, ids, side="right") - 1
                ranges.take(shard_of, ids - starts[shard_of], ring[number % 5])
            return time.perf_counter() - begun

        def ours() -> float:
            begun = time.perf_counter()
            for _ in loader.batches(batches):
                pass
            return time.perf_counter() - begun

        dataset.gather(np.arange(len(dataset)))
        ours(), limit()
        return statistics.median(limit() / ours() for _ in range(rounds))


def index_memory_mib(samples: int = 100_000_000, per_shard: int = 512) -> float:
    """Memory that an order of so many samples holds while it is read from all over."""
    from ...dataplane import Order
    from .worker import private_mib

    before, most = private_mib(), 0.0
    order = Order([per_shard] * (samples // per_shard), 0)
    for g in range(0, samples, samples // 50):
        order.rank_ids(g, 256, 0, 1)
        most = max(most, private_mib())
    return most - before
