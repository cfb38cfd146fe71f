"""One run of one loader, as a script of its own: it is started by the Python of the loader's own environment.

Imports nothing of Phalanx but the dataplane, and that only where ours is run. Prints one JSON line.
"""

import argparse
import gc
import json
import os
import resource
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

SAMPLE_BYTES = 256 * 128 * 2
Batches = Iterator[Any]


MODULES = {
    "phalanx": ("phalanx.dataplane.loader", "phalanx.dataplane.dataset"),
    "torchdata": ("torchdata.nodes",),
    "webdataset": ("webdataset",),
    "litdata": ("litdata",),
    "mosaicml": ("streaming",),
    "grain": ("grain",),
    "spdl": ("spdl.pipeline",),
    "tensorstore": ("tensorstore",),
    "datasets": ("datasets",),
}
"""Imported before the clock starts: a training job has them anyway."""


FORMS = {"fixed": "loaders", "variable": "variable", "mixture": "mixed", "store": "far"}
"""The modules beside this script that know each form of data."""


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


def touch(data: Path) -> None:
    """Reads the files once, so that they are in memory."""
    piece = bytearray(1 << 20)
    for path in data.rglob("*"):
        if path.is_file():
            with path.open("rb", buffering=0) as file:
                while file.readinto(piece):
                    pass


def in_order(data: Path, size: int) -> Batches:
    """The files' bytes in order, by pieces of `size`, without any loader: what a cold epoch could reach."""
    piece = memoryview(bytearray(1 << 20))
    count = 0
    for path in sorted(path for path in data.rglob("*") if path.is_file()):
        with path.open("rb", buffering=0) as file:
            while read := file.readinto(piece):
                count += read
                if count >= size:
                    count -= size
                    yield piece


def products_in(seconds: float) -> int:
    """How many of the products of a busy step take so long here, at their best."""
    a = torch.randn(512, 512)
    took = []
    for _ in range(10):
        begun = time.perf_counter()
        for _ in range(10):
            a @ a
        took.append((time.perf_counter() - begun) / 10)
    return max(1, round(seconds / min(took)))


def step_of(kind: str, seconds: float, repeats: int) -> Callable[[], None]:
    """A training step: none, sleeping as for a device, or busy on the CPU with `repeats` products of torch."""
    if kind == "none":
        return lambda: None
    if kind == "sleep":
        return lambda: time.sleep(seconds)
    a = torch.randn(512, 512)

    def busy() -> None:
        for _ in range(repeats):
            a @ a

    return busy


def batches_of(options: argparse.Namespace, loaders: Any) -> Batches:
    """The batches of a loader; of none: always the same one, or the disk's bytes in order."""
    if options.loader == "null":
        one = {"x": torch.zeros(options.batch, options.sample_bytes // 2, dtype=torch.int16)}
        return iter(lambda: one, None)
    if options.loader == "disk":
        return in_order(options.data, options.batch * options.sample_bytes)
    made: Batches = loaders.RUN[options.loader](options.data, options.batch, options.workers)
    return made


def measure(options: argparse.Namespace) -> dict[str, float]:
    """Reads batches through one loader: rates, CPU, the share of time spent waiting."""
    loaders = import_module(FORMS[options.form])  # beside this script
    seconds, repeats = options.step_ms / 1000, int(options.step_repeats)
    if options.step == "busy":
        torch.set_num_threads(2)
        repeats = repeats or products_in(seconds)
    step = step_of(options.step, seconds, repeats)
    if options.loader == "mosaicml":
        import_module("formats").stand_in_for_torchvision()
    for module in MODULES.get(options.loader, ()):
        import_module(module)
    if options.cold:
        drop_cached(options.data)
    else:
        touch(options.data)  # some machines take the page cache back from files that rest
    gc.collect()  # what the imports left would be collected in somebody's first batch
    base, memory = cpu_s(), private_mib()
    begun = time.perf_counter()
    batches = batches_of(options, loaders)
    next(batches)
    first = time.perf_counter()
    if options.meet is not None:
        meet(options.meet, options.ranks)
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
    whole = first - begun + wall
    looked = cpu_s()
    most = private_mib()
    base += cpu_s() - looked  # looking walks all pages, and is no work of the loader
    if hasattr(batches, "close"):
        batches.close()
    del batches
    read = (count + 1) * options.batch * options.sample_bytes / 1e9
    return {
        "samples_per_s": count * options.batch / wall,
        "gb_per_s": count * options.batch * options.sample_bytes / 1e9 / wall,
        "cpu_s_per_gb": (cpu_s() - base) / read,
        "wait_share": waited / wall,
        "first_batch_s": first - begun,
        "memory_mib": max(0.0, most - memory),
        "batches": count,
        "wall_s": wall,
        "step_repeats": repeats,
        # From the start on: who reads half the disk before the first batch has no faster disk.
        "whole_gb_per_s": read / whole,
    }


def meet(folder: Path, ranks: int) -> None:
    """Waits, a minute at most, until every rank has had its first batch, so that all are measured at once."""
    (folder / str(os.getpid())).touch()
    end = time.monotonic() + 60.0
    while len(list(folder.iterdir())) < ranks:
        if time.monotonic() > end:
            raise TimeoutError(f"not all of {ranks} ranks had a first batch within a minute")
        time.sleep(0.01)


def parsed(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """What to do, from the command line."""
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
    parser.add_argument("--step-repeats", type=int, default=0, help="of a busy step; 0: what fills --step-ms here")
    parser.add_argument("--sample-bytes", type=int, default=SAMPLE_BYTES)
    parser.add_argument("--cold", action="store_true")
    parser.add_argument("--form", choices=FORMS, default="fixed")
    parser.add_argument("--meet", type=Path)
    parser.add_argument("--ranks", type=int, default=1)
    return parser.parse_args(arguments)


def act(options: argparse.Namespace) -> dict[str, float]:
    """Builds or measures."""
    if options.action == "run":
        return measure(options)
    import_module(FORMS[options.form]).BUILD[options.loader](options.data, options.out)
    return {}


def main() -> None:
    """Builds or runs as the arguments say."""
    print(json.dumps(act(parsed())), flush=True)
    # Peers leave threads and workers behind that would hold the interpreter up.
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
