"""The loaders that are compared: how each one's data is made, and how its batches are read at its best setting.

Imports nothing of Phalanx but the dataplane, and that only where ours is run; each peer only where it is installed.
"""

import sys
import types
from collections.abc import Callable, Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import numpy as np
import torch

LABELS = 16
Batches = Iterator[Any]


def samples(raw: Path) -> tuple[Any, Any]:
    """The raw samples, mapped, and their labels."""
    return np.load(raw / "x.npy", mmap_mode="r"), np.load(raw / "y.npy")


# Building: the same samples, uncompressed, in each loader's own format.


def build_phalanx(raw: Path, out: Path) -> None:
    """Shards of 16 MiB."""
    from phalanx.dataplane import Field, ShardWriter

    x, y = samples(raw)
    fields = [Field("x", "int16", x.shape[1:]), Field("y", "float32", (LABELS,))]
    with ShardWriter(out, fields, name="bench", shard_bytes=16 << 20) as writer:
        for start in range(0, len(x), 512):
            writer.write({"x": x[start : start + 512], "y": y[start : start + 512]})


def build_mosaicml(raw: Path, out: Path) -> None:
    """MDS files of 64 MiB, uncompressed."""
    stand_in_for_torchvision()
    from streaming import MDSWriter

    x, y = samples(raw)
    columns = {"x": f"ndarray:int16:{x.shape[1]},{x.shape[2]}", "y": "ndarray:float32:16"}
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


def build_tensorstore(raw: Path, out: Path) -> None:
    """Zarr, a chunk per sample, raw bytes; labels in a file beside it, as they are read whole."""
    import tensorstore

    x, y = samples(raw)
    wanted = {
        "driver": "zarr",
        "kvstore": {"driver": "file", "path": str(out / "x")},
        "metadata": {"shape": list(x.shape), "chunks": [1, *x.shape[1:]], "dtype": "<i2", "compressor": None},
        "create": True,
    }
    store = tensorstore.open(wanted).result()
    for start in range(0, len(x), 512):
        store[start : start + 512].write(np.array(x[start : start + 512])).result()
    np.save(out / "y.npy", y)


def build_datasets(raw: Path, out: Path) -> None:
    """Arrow files, samples as flat lists."""
    import datasets

    x, y = samples(raw)

    def rows() -> Iterator[dict[str, Any]]:
        for one, label in zip(x, y, strict=True):
            yield {"x": one.reshape(-1), "y": label}

    features = datasets.Features(
        {
            "x": datasets.Sequence(datasets.Value("int16"), length=x[0].size),
            "y": datasets.Sequence(datasets.Value("float32"), length=LABELS),
        }
    )
    datasets.Dataset.from_generator(rows, features=features, cache_dir=str(out / "cache")).save_to_disk(
        str(out / "set")
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
        x = np.frombuffer(sample["x"], np.int16)
        return torch.from_numpy(x.copy()), torch.from_numpy(np.frombuffer(sample["y"], np.float32).copy())

    urls = [str(path) for path in sorted(data.glob("*.tar"))]
    dataset = webdataset.WebDataset(urls, shardshuffle=100, empty_check=False).shuffle(512).map(decode).batched(batch)
    return iter(webdataset.WebLoader(dataset, batch_size=None, num_workers=workers))


def run_litdata(data: Path, batch: int, workers: int) -> Batches:
    """StreamingDataset over local chunks, in its own DataLoader."""
    import litdata

    dataset = litdata.StreamingDataset(str(data), shuffle=True, drop_last=True)
    return iter(litdata.StreamingDataLoader(dataset, batch_size=batch, num_workers=workers, drop_last=True))


def run_grain(data: Path, batch: int, _workers: int) -> Batches:
    """grain's threads over a mapped file, batched by itself."""
    import grain

    x, y = samples(data)

    class Mapped:
        def __len__(self) -> int:
            return len(y)

        def __getitem__(self, index: int) -> Any:
            return {"x": x[index], "y": y[index]}

    loaded = grain.MapDataset.source(Mapped()).shuffle(seed=0).batch(batch, drop_remainder=True)
    return iter(loaded.to_iter_dataset(grain.ReadOptions(num_threads=2, prefetch_buffer_size=4)))


def run_spdl(data: Path, batch: int, _workers: int) -> Batches:
    """spdl's pipeline with a vectorised gather from one mapped file."""
    from spdl.pipeline import PipelineBuilder

    x, y = samples(data)

    def source() -> Iterator[Any]:
        order = np.random.default_rng(0).permutation(len(y))
        yield from (order[start : start + batch] for start in range(0, len(y) - batch + 1, batch))

    def gather(ids: Any) -> Any:
        return {"x": torch.from_numpy(x[ids]), "y": torch.from_numpy(y[ids])}

    pipeline = PipelineBuilder().add_source(source()).pipe(gather, concurrency=2).add_sink(3).build(num_threads=2)
    pipeline.start()
    return iter(pipeline.get_iterator(timeout=60))


def run_tensorstore(data: Path, batch: int, _workers: int) -> Batches:
    """tensorstore's own batched reads, one batch ahead."""
    import tensorstore

    opened = {"driver": "zarr", "kvstore": {"driver": "file", "path": str(data / "x")}}
    store, y = tensorstore.open(opened).result(), np.load(data / "y.npy")

    def batches() -> Batches:
        order = np.random.default_rng(0).permutation(len(y))
        ids = [np.sort(order[start : start + batch]) for start in range(0, len(y) - batch + 1, batch)]
        ahead = store[ids[0]].read()
        for number, these in enumerate(ids):
            ready, label = ahead, torch.from_numpy(y[these])
            if number + 1 < len(ids):
                ahead = store[ids[number + 1]].read()
            yield {"x": torch.from_numpy(ready.result()), "y": label}

    return batches()


def run_datasets(data: Path, batch: int, _workers: int) -> Batches:
    """Hugging Face datasets in numpy's format, whole batches by shuffled indices."""
    import datasets

    loaded = datasets.load_from_disk(str(data / "set")).with_format("numpy")
    order = np.random.default_rng(0).permutation(len(loaded))

    def batches() -> Batches:
        for start in range(0, len(order) - batch + 1, batch):
            rows = loaded[order[start : start + batch]]
            yield {name: torch.from_numpy(values) for name, values in rows.items()}

    return batches()


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
    "tensorstore": build_tensorstore,
    "datasets": build_datasets,
}
RUN: dict[str, Callable[[Path, int, int], Batches]] = {
    "phalanx": run_phalanx,
    "torchdata": run_torchdata,
    "dataloader": run_dataloader,
    "mosaicml": run_mosaicml,
    "webdataset": run_webdataset,
    "litdata": run_litdata,
    "grain": run_grain,
    "spdl": run_spdl,
    "tensorstore": run_tensorstore,
    "datasets": run_datasets,
}
