"""Rows of the table that are measured for ours alone: other shapes of data, ranks, mixtures, memory, a far store."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

STORE = Path(__file__).with_name("store.py")
WAIT_S, BYTES_PER_S = 0.03, 80e6
RANKS = 8


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


def variable_samples(folder: Path, count: int = 8192) -> dict[str, float]:
    """Sequences of 2 to 126 rows of 512 bytes, 32 KiB on average."""
    from ...dataplane import Field, Loader, ShardDataset, ShardWriter

    random = np.random.default_rng(0)
    fields = [Field("x", "int16", (256,), variable=True), Field("y", "int32", ())]
    with ShardWriter(folder, fields, name="variable", shard_bytes=16 << 20) as writer:
        for start in range(0, count, 256):
            x = [random.integers(0, 999, (int(rows), 256), np.int16) for rows in random.integers(2, 127, 256)]
            writer.write({"x": x, "y": np.arange(start, start + 256, dtype=np.int32)})
    with ShardDataset(folder) as dataset, Loader(dataset, 64) as loader:
        return rate(loader, count // 64 * 2, 32_768)


def mixture(data: Path, batches: int) -> dict[str, float]:
    """Two data sets, 7 to 3, against the same loader on one, interleaved: `share_of_one`."""
    from ...dataplane import Loader, Mixture, ShardDataset

    with (
        ShardDataset(data) as one,
        ShardDataset(data) as other,
        Loader(Mixture([one, other], [0.7, 0.3]), 64) as mixed,
        Loader(one, 64) as alone,
    ):
        for loader in (mixed, alone):
            rate(loader, batches, 65_536)
        shares, last = [], {}
        for _ in range(3):
            last = rate(mixed, batches, 65_536)
            shares.append(last["samples_per_s"] / rate(alone, batches, 65_536)["samples_per_s"])
    return {**last, "share_of_one": sorted(shares)[1]}


def ranks_of_one_host(data: Path, batches: int) -> dict[str, float]:
    """Eight ranks, a process each, a global batch of 512: samples per second of all, over that of one rank alone."""

    def measured(world: int) -> list[dict[str, float]]:
        command = [sys.executable, "-m", "phalanx.bench.feed.more", str(data), str(batches)]
        running = [
            subprocess.Popen(
                command,
                env={**os.environ, "RANK": str(rank), "WORLD_SIZE": str(world), "OMP_NUM_THREADS": "1"},
                stdout=subprocess.PIPE,
            )
            for rank in range(world)
        ]
        return [json.loads(process.communicate(timeout=120)[0]) for process in running]

    together, alone = measured(RANKS), measured(1)
    total = sum(each["samples_per_s"] for each in together)
    cpu = sum(each["cpu_s_per_gb"] for each in together) / RANKS
    return {"samples_per_s": total, "cpu_s_per_gb": cpu, "share_of_one": total / alone[0]["samples_per_s"]}


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


def distant_store(data: Path, scratch: Path, batches: int) -> dict[str, float]:
    """An empty cache before a store with 30 ms to the first byte and 80 MB/s for each connection."""
    from ...dataplane import Loader, ObjectSource, ShardCache, ShardDataset

    with _store(data) as url:
        gc.collect()  # as before the other measurements: what the imports left is no work of the loader
        cpu, begun = time.process_time(), time.perf_counter()
        source = ObjectSource(url)
        with ShardDataset(source, ShardCache(scratch / "cache", 1 << 40)) as dataset, Loader(dataset, 64) as loader:
            next(loader)
            first = time.perf_counter() - begun
            for _ in loader.batches(batches):
                pass
            wall, size = time.perf_counter() - begun, dataset.manifest.size_bytes
    return {
        "first_batch_s": first,
        "gb_per_s": size / 1e9 / wall,
        "cpu_s_per_gb": (time.process_time() - cpu) / size * 1e9,
    }


def measure_more(data: Path, scratch: Path, batches: int) -> dict[str, dict[str, float]]:
    """Every row of this module, for the data set of 64 KiB samples in `data`."""
    return {
        "samples of 1 KiB": small_samples(scratch / "small"),
        "variable length": variable_samples(scratch / "variable"),
        "two data sets mixed": mixture(data, batches),
        f"{RANKS} ranks on one host": ranks_of_one_host(data, max(2, batches // RANKS)),
        "memory over 5 epochs": memory_over_epochs(data),
        "store, 30 ms, 80 MB/s": distant_store(data, scratch, batches),
    }


@contextmanager
def _store(data: Path) -> Iterator[str]:
    command = [sys.executable, str(STORE), str(data), str(WAIT_S), str(BYTES_PER_S)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            settings = {
                "AWS_ENDPOINT_URL": f"http://127.0.0.1:{int(process.stdout.readline())}",
                "AWS_ACCESS_KEY_ID": "bench",
                "AWS_SECRET_ACCESS_KEY": "bench",
                "AWS_REGION": "us-east-1",
            }
            os.environ.update(settings)
            yield "s3://bucket"
        finally:
            process.kill()


def main() -> None:
    """One rank of `ranks_of_one_host`."""
    from ...dataplane import Loader, ShardDataset

    data, batches = Path(sys.argv[1]), int(sys.argv[2])
    with ShardDataset(data, verify=False) as dataset, Loader.from_env(dataset, 64 * RANKS) as loader:
        print(json.dumps(rate(loader, batches, 65_536)), flush=True)


if __name__ == "__main__":
    main()
