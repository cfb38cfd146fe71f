"""One run of one loader, as a script of its own: it is started by the Python of the loader's own environment.

Imports nothing of Phalanx but the dataplane, and that only where ours is run. Prints one JSON line.
"""

import argparse
import json
import os
import resource
import sys
import time
import types
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import numpy as np
import torch

CHANNELS, TIMES = 256, 128
SAMPLE_BYTES = CHANNELS * TIMES * 2
Batches = Iterator[Any]


def samples(raw: Path) -> tuple[Any, Any]:
    """The raw samples, mapped, and their labels."""
    return np.load(raw / "x.npy", mmap_mode="r"), np.load(raw / "y.npy")


# Building: the same samples, uncompressed, in each loader's own format.


def build_phalanx(raw: Path, out: Path) -> None:
    """Shards of 16 MiB."""
    from phalanx.dataplane import Field, ShardWriter

    x, y = samples(raw)
    fields = [Field("x", "int16", (CHANNELS, TIMES)), Field("y", "float32", (16,))]
    with ShardWriter(out, fields, name="bench", shard_bytes=16 << 20) as writer:
        for start in range(0, len(x), 512):
            writer.write({"x": x[start : start + 512], "y": y[start : start + 512]})


def build_mosaicml(raw: Path, out: Path) -> None:
    """MDS files of 64 MiB, uncompressed."""
    stand_in_for_torchvision()
    from streaming import MDSWriter

    x, y = samples(raw)
    columns = {"x": f"ndarray:int16:{CHANNELS},{TIMES}", "y": "ndarray:float32:16"}
    with MDSWriter(out=str(out), columns=columns, compression=None, size_limit=1 << 26) as writer:
        for one, label in zip(x, y, strict=True):
            writer.write({"x": np.ascontiguousarray(one), "y": label})


def build_webdataset(raw: Path, out: Path) -> None:
    """Tar files of 64 MiB, raw bytes in them."""
    import webdataset

    x, y = samples(raw)
    out.mkdir()
    with webdataset.ShardWriter(str(out / "s-%05d.tar"), maxsize=1 << 26, verbose=0) as writer:
        for number, (one, label) in enumerate(zip(x, y, strict=True)):
            writer.write({"__key__": f"{number:08d}", "x": one.tobytes(), "y": label.tobytes()})


def _litdata_sample(at: tuple[str, int]) -> dict[str, Any]:
    x, y = samples(Path(at[0]))
    return {"x": torch.from_numpy(np.array(x[at[1]])), "y": torch.from_numpy(y[at[1]])}


def build_litdata(raw: Path, out: Path) -> None:
    """Chunks of 64 MB."""
    import litdata

    count = len(samples(raw)[1])
    litdata.optimize(
        _litdata_sample, [(str(raw), number) for number in range(count)], str(out), num_workers=1, chunk_bytes="64MB"
    )


# Running: endless or one epoch of shuffled batches as dicts or tuples of tensors.


def run_phalanx(data: Path, batch: int, _workers: int) -> Batches:
    """Our loader, with its defaults."""
    from phalanx.dataplane import Loader, ShardDataset

    # The peers check no bytes as they read; ours would, once per shard.
    return Loader(ShardDataset(data, verify=False), batch)


def run_torchdata(data: Path, batch: int, _workers: int) -> Batches:
    """torchdata.nodes with a vectorised gather from one mapped file: the best that can be written by hand with it."""
    import torchdata.nodes as nodes

    x, y = samples(data)

    def gather(ids: list[int]) -> dict[str, torch.Tensor]:
        return {"x": torch.from_numpy(x[ids]), "y": torch.from_numpy(y[ids])}

    sampler = torch.utils.data.RandomSampler(range(len(y)))
    batches = nodes.Batcher(nodes.SamplerWrapper(sampler), batch_size=batch, drop_last=True)
    mapped = nodes.ParallelMapper(batches, map_fn=gather, num_workers=1, in_order=True, method="thread")
    return iter(nodes.Loader(nodes.Prefetcher(mapped, prefetch_factor=2)))


def run_dataloader(data: Path, batch: int, workers: int) -> Batches:
    """torch's DataLoader over a mapped file, sample by sample with its own collate: what most people have."""
    x, y = samples(data)

    class Mapped(torch.utils.data.Dataset[Any]):  # type: ignore[misc]
        def __len__(self) -> int:
            return len(y)

        def __getitem__(self, index: int) -> Any:
            return torch.from_numpy(np.array(x[index])), torch.from_numpy(y[index])

    return iter(torch.utils.data.DataLoader(Mapped(), batch, shuffle=True, num_workers=workers, drop_last=True))


def run_mosaicml(data: Path, batch: int, workers: int) -> Batches:
    """StreamingDataset over local files, in torch's DataLoader."""
    stand_in_for_torchvision()
    import streaming
    from streaming import StreamingDataset

    streaming.base.util.clean_stale_shared_memory()
    dataset = StreamingDataset(local=str(data), shuffle=True, batch_size=batch)
    return iter(torch.utils.data.DataLoader(dataset, batch_size=batch, num_workers=workers, drop_last=True))


def run_webdataset(data: Path, batch: int, workers: int) -> Batches:
    """Shuffled shards and a buffer of 512 samples, batched in the worker, as its documentation advises."""
    import webdataset

    def decode(sample: dict[str, Any]) -> tuple[Any, Any]:
        x = np.frombuffer(sample["x"], np.int16).reshape(CHANNELS, TIMES)
        return torch.from_numpy(x.copy()), torch.from_numpy(np.frombuffer(sample["y"], np.float32).copy())

    urls = [str(path) for path in sorted(data.glob("*.tar"))]
    dataset = webdataset.WebDataset(urls, shardshuffle=100, empty_check=False).shuffle(512).map(decode).batched(batch)
    return iter(webdataset.WebLoader(dataset, batch_size=None, num_workers=workers))


def run_litdata(data: Path, batch: int, workers: int) -> Batches:
    """StreamingDataset over local chunks, in its own DataLoader."""
    import litdata

    dataset = litdata.StreamingDataset(str(data), shuffle=True, drop_last=True)
    return iter(litdata.StreamingDataLoader(dataset, batch_size=batch, num_workers=workers, drop_last=True))


def stand_in_for_torchvision() -> None:
    """mosaicml-streaming imports torchvision, whose wheel does not fit the CPU build of torch; nothing here uses it."""

    class Anything(types.ModuleType):
        def __getattr__(self, name: str) -> Any:
            if name.startswith("__"):
                raise AttributeError(name)
            return type(name, (), {})

    for name in ("torchvision", "torchvision.datasets", "torchvision.transforms", "torchvision.transforms.functional"):
        made = Anything(name)
        made.__path__ = []
        made.__spec__ = ModuleSpec(name, None)
        sys.modules.setdefault(name, made)


BUILD: dict[str, Callable[[Path, Path], None]] = {
    "phalanx": build_phalanx,
    "mosaicml": build_mosaicml,
    "webdataset": build_webdataset,
    "litdata": build_litdata,
}
RUN: dict[str, Callable[[Path, int, int], Batches]] = {
    "phalanx": run_phalanx,
    "torchdata": run_torchdata,
    "dataloader": run_dataloader,
    "mosaicml": run_mosaicml,
    "webdataset": run_webdataset,
    "litdata": run_litdata,
}


MODULES = {
    "phalanx": ("phalanx.dataplane.loader", "phalanx.dataplane.dataset"),
    "torchdata": ("torchdata.nodes",),
    "webdataset": ("webdataset",),
    "litdata": ("litdata",),
    "mosaicml": ("streaming",),
}
"""Imported before the clock starts: a training job has them anyway."""


def cpu_s() -> float:
    """CPU seconds of this process and of its children that have ended."""
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(used.ru_utime + used.ru_stime for used in both)


def private_mib() -> float:
    """Memory of this process that is no file's: what it costs beside the page cache."""
    for line in Path("/proc/self/smaps_rollup").read_text().splitlines():
        if line.startswith("Anonymous:"):
            return int(line.split()[1]) / 1024
    return 0.0


def drop_cached(data: Path) -> None:
    """Asks the system to forget the files' pages, so that the disk is read."""
    for path in data.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


def step_of(kind: str, seconds: float) -> Callable[[], None]:
    """A training step: none, sleeping as for a device, or busy on the CPU with torch."""
    if kind == "none":
        return lambda: None
    if kind == "sleep":
        return lambda: time.sleep(seconds)
    torch.set_num_threads(2)
    a = torch.randn(512, 512)
    begun = time.perf_counter()
    for _ in range(20):
        a @ a
    repeats = max(1, round(seconds / ((time.perf_counter() - begun) / 20)))

    def busy() -> None:
        for _ in range(repeats):
            a @ a

    return busy


def measure(options: argparse.Namespace) -> dict[str, float]:
    """Reads batches through one loader: rates, CPU, the share of time spent waiting."""
    if options.cold:
        drop_cached(options.data)
    step = step_of(options.step, options.step_ms / 1000)
    if options.loader == "mosaicml":
        stand_in_for_torchvision()
    for module in MODULES.get(options.loader, ()):
        import_module(module)
    base, memory = cpu_s(), private_mib()
    begun = time.perf_counter()
    if options.loader == "null":
        one = {"x": torch.zeros(options.batch, CHANNELS, TIMES, dtype=torch.int16)}
        batches: Batches = iter(lambda: one, None)
    else:
        batches = RUN[options.loader](options.data, options.batch, options.workers)
    next(batches)
    first = time.perf_counter()
    waited, count = 0.0, 0
    loop = time.perf_counter()
    while count < options.batches:
        asked = time.perf_counter()
        if next(batches, None) is None:
            break
        waited += time.perf_counter() - asked
        step()
        count += 1
    wall = time.perf_counter() - loop
    looked = cpu_s()
    most = private_mib()
    base += cpu_s() - looked  # looking walks all pages, and is no work of the loader
    if hasattr(batches, "close"):
        batches.close()
    del batches
    read = (count + 1) * options.batch * SAMPLE_BYTES / 1e9
    return {
        "samples_per_s": count * options.batch / wall,
        "gb_per_s": count * options.batch * SAMPLE_BYTES / 1e9 / wall,
        "cpu_s_per_gb": (cpu_s() - base) / read,
        "wait_share": waited / wall,
        "first_batch_s": first - begun,
        "memory_mib": max(0.0, most - memory),
        "batches": count,
    }


def main() -> None:
    """Builds or runs as the arguments say."""
    parser = argparse.ArgumentParser()
    parser.add_argument("action", choices=["build", "run"])
    parser.add_argument("loader")
    parser.add_argument("data", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--batches", type=int, default=100)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--step", choices=["none", "sleep", "busy"], default="none")
    parser.add_argument("--step-ms", type=float, default=10.0)
    parser.add_argument("--cold", action="store_true")
    options = parser.parse_args()
    if options.action == "build":
        BUILD[options.loader](options.data, options.out)
        print(json.dumps({}), flush=True)
    else:
        print(json.dumps(measure(options)), flush=True)
    # Peers leave threads and workers behind that would hold the interpreter up.
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
