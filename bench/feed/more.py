"""What is measured in one process, for ours alone: small samples, a mixture, memory over epochs."""

from __future__ import annotations

import gc
import time
from pathlib import Path
from typing import Any

import numpy as np


def rate(loader: Any, batches: int, size: int) -> dict[str, float]:
    """Samples per second and CPU seconds per GB over some batches, after one that was not counted."""
    next(loader)
    gc.collect()
    cpu, begun = time.process_time(), time.perf_counter()
    rows = count = 0
    for batch in loader.batches(batches):
        rows += len(batch["y"])
        count += sum(tensor.numel() * tensor.element_size() for tensor in batch.values())
    wall = time.perf_counter() - begun
    return {
        "samples_per_s": rows / wall,
        "gb_per_s": count / 1e9 / wall,
        "cpu_s_per_gb": (time.process_time() - cpu) / count * 1e9,
        "sample_bytes": float(size),
    }


def small_samples(folder: Path, count: int = 131_072) -> dict[str, float]:
    """1 KiB, against np.take into rotating buffers in the same process: `share_of_take`."""
    from ...dataplane import Field, Loader, ShardDataset, ShardWriter
    from .ours import share_of_take

    random = np.random.default_rng(0)
    with ShardWriter(folder, [Field("x", "int16", (512,)), Field("y", "int32", ())], name="small") as writer:
        for start in range(0, count, 8192):
            x = random.integers(0, 999, (8192, 512), np.int16)
            writer.write({"x": x, "y": np.arange(start, start + 8192, dtype=np.int32)})
    with ShardDataset(folder) as dataset, Loader(dataset, 256) as loader:
        found = rate(loader, count // 256 * 2, 1024)
    return {**found, "share_of_take": share_of_take(folder, 256, 200, 5)}


def mixture(data: Path, batches: int) -> dict[str, float]:
    """Two data sets, 7 to 3, against the same loader on one, interleaved: rates and CPU."""
    from ...dataplane import Loader, Mixture, ShardDataset

    with (
        ShardDataset(data) as one,
        ShardDataset(data) as other,
        Loader(Mixture([one, other], [0.7, 0.3]), 64) as mixed,
        Loader(one, 64) as alone,
    ):
        for loader in (mixed, alone):
            # A first look at a page costs as much as half a copy, and the smaller share comes round late.
            rate(loader, 4 * batches, 65_536)
        shares, costs, last = [], [], {}
        for _ in range(3):
            last = rate(mixed, 2 * batches, 65_536)
            one_alone = rate(alone, 2 * batches, 65_536)
            shares.append(last["samples_per_s"] / one_alone["samples_per_s"])
            costs.append(last["cpu_s_per_gb"] / one_alone["cpu_s_per_gb"])
    return {**last, "share_of_one": sorted(shares)[1], "cpu_against_one": sorted(costs)[1]}


def memory_over_epochs(data: Path, epochs: int = 5) -> dict[str, float]:
    """Private MiB that a loader adds, its ring of five buffers included: after an epoch, and at most over five."""
    from ...dataplane import Loader, ShardDataset
    from .worker import private_mib

    gc.collect()
    before, held = private_mib(), []
    with ShardDataset(data, verify=False) as dataset, Loader(dataset, 64) as loader:
        for _ in range(epochs):
            for _ in loader.batches(len(dataset) // 64):
                pass
            held.append(private_mib() - before)
    return {"first_epoch_mib": held[0], "most_mib": max(held)}
