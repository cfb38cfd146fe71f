"""The loaders that are compared: how batches of each are read at its best setting.

Imports nothing of Phalanx but the dataplane, and that only where ours is run; each peer only where it is installed.
"""

import os
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch

_formats = import_module("formats")  # beside this module, which is run as a script's
samples = _formats.samples
stand_in_for_torchvision = _formats.stand_in_for_torchvision
Batches = Iterator[Any]
read_ahead: Callable[[Any, Any, int], Batches] = _formats.read_ahead


# Running: endless or one epoch of shuffled batches as dicts or tuples of tensors.


def run_phalanx(data: Path, batch: int, _workers: int) -> Batches:
    """Our loader, with its defaults."""
    from phalanx.dataplane import Loader, ShardDataset

    # The peers check no bytes as they read; ours would, once per shard.
    return Loader.from_env(ShardDataset(data, verify=False), batch * int(os.environ.get("WORLD_SIZE", "1")))


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
    each = webdataset.WebDataset(urls, shardshuffle=100, empty_check=False, nodesplitter=webdataset.split_by_node)
    return iter(
        webdataset.WebLoader(each.shuffle(512).map(decode).batched(batch), batch_size=None, num_workers=workers)
    )


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
    return read_ahead(tensorstore.open(opened).result(), np.load(data / "y.npy"), batch)


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


BUILD = _formats.BUILD
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
