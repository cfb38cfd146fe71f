"""Two data sets read as one, 7 to 3, by ours and the peers: as each offers it, or by hand where it leaves that open.

The second data set lies beside the first, in a folder with `-other` after its name.
"""

from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch

_formats = import_module("formats")  # beside this module, which is run as a script's
samples, stand_in_for_torchvision = _formats.samples, _formats.stand_in_for_torchvision
Batches = Iterator[Any]
WEIGHTS = (0.7, 0.3)


def other(data: Path) -> Path:
    """The second data set."""
    return data.with_name(data.name + "-other")


def run_phalanx(data: Path, batch: int, _workers: int) -> Batches:
    """A mixture, with the loader's defaults."""
    from phalanx.dataplane import Loader, Mixture, ShardDataset

    both = [ShardDataset(folder, verify=False) for folder in (data, other(data))]
    return Loader(Mixture(both, WEIGHTS), batch)


def run_torchdata(data: Path, batch: int, _workers: int) -> Batches:
    """MultiNodeWeightedSampler over two samplers, with a gather from two mapped files written by hand."""
    import torchdata.nodes as nodes

    gather, count, total = _gather(data)
    numbers = {
        "a": nodes.SamplerWrapper(torch.utils.data.RandomSampler(range(count))),
        "b": nodes.SamplerWrapper(torch.utils.data.RandomSampler(range(total - count))),
    }
    second = nodes.Mapper(numbers["b"], lambda number: number + count)
    chosen = nodes.MultiNodeWeightedSampler({"a": numbers["a"], "b": second}, dict(zip("ab", WEIGHTS, strict=True)))
    batches = nodes.Batcher(chosen, batch_size=batch, drop_last=True)
    mapped = nodes.ParallelMapper(batches, map_fn=gather, num_workers=1, in_order=True, method="thread")
    return iter(nodes.Loader(nodes.Prefetcher(mapped, prefetch_factor=2)))


def run_spdl(data: Path, batch: int, _workers: int) -> Batches:
    """spdl's pipeline; who comes next is drawn by hand."""
    from spdl.pipeline import PipelineBuilder

    gather, count, total = _gather(data)

    def source() -> Iterator[Any]:
        random = np.random.default_rng(0)
        for _ in range(total // batch):
            first = random.random(batch) < WEIGHTS[0]
            yield np.where(first, random.integers(0, count, batch), random.integers(count, total, batch))

    pipeline = PipelineBuilder().add_source(source()).pipe(gather, concurrency=2).add_sink(3).build(num_threads=2)
    pipeline.start()
    return iter(pipeline.get_iterator(timeout=60))


def run_dataloader(data: Path, batch: int, workers: int) -> Batches:
    """torch's DataLoader over both, with a weighted sampler."""
    both = [_Mapped(folder) for folder in (data, other(data))]
    joined: Any = torch.utils.data.ConcatDataset(both)
    weights = [weight / len(each) for each, weight in zip(both, WEIGHTS, strict=True) for _ in range(len(each))]
    sampler = torch.utils.data.WeightedRandomSampler(weights, len(joined))
    return iter(torch.utils.data.DataLoader(joined, batch, sampler=sampler, num_workers=workers, drop_last=True))


def run_grain(data: Path, batch: int, _workers: int) -> Batches:
    """MapDataset.mix over mapped files."""
    import grain

    both = [grain.MapDataset.source(_Mapped(folder)).shuffle(seed=0).repeat() for folder in (data, other(data))]
    loaded = grain.MapDataset.mix(both, weights=list(WEIGHTS)).batch(batch, drop_remainder=True)
    return iter(loaded.to_iter_dataset(grain.ReadOptions(num_threads=2, prefetch_buffer_size=4)))


def run_mosaicml(data: Path, batch: int, workers: int) -> Batches:
    """StreamingDataset over two streams with proportions."""
    stand_in_for_torchvision()
    import streaming
    from streaming import Stream, StreamingDataset

    streaming.base.util.clean_stale_shared_memory()
    streams = [
        Stream(local=str(folder), proportion=weight)
        for folder, weight in zip((data, other(data)), WEIGHTS, strict=True)
    ]
    dataset = StreamingDataset(streams=streams, shuffle=True, batch_size=batch)
    return iter(torch.utils.data.DataLoader(dataset, batch_size=batch, num_workers=workers, drop_last=True))


def run_webdataset(data: Path, batch: int, workers: int) -> Batches:
    """RandomMix of two pipelines."""
    import webdataset

    def decode(sample: dict[str, Any]) -> tuple[Any, Any]:
        x = np.frombuffer(sample["x"], np.int16)
        return torch.from_numpy(x.copy()), torch.from_numpy(np.frombuffer(sample["y"], np.float32).copy())

    both = []
    for folder in (data, other(data)):
        urls = [str(path) for path in sorted(folder.glob("*.tar"))]
        both.append(webdataset.WebDataset(urls, shardshuffle=100, empty_check=False).shuffle(512).map(decode))
    mixed = webdataset.RandomMix(both, list(WEIGHTS), longest=True)
    return iter(webdataset.WebLoader(mixed, batch_size=batch, num_workers=workers))


def run_litdata(data: Path, batch: int, workers: int) -> Batches:
    """CombinedStreamingDataset."""
    import litdata

    both = [litdata.StreamingDataset(str(folder), shuffle=True, drop_last=True) for folder in (data, other(data))]
    mixed = litdata.CombinedStreamingDataset(both, weights=list(WEIGHTS), iterate_over_all=False)
    return iter(litdata.StreamingDataLoader(mixed, batch_size=batch, num_workers=workers, drop_last=True))


def run_datasets(data: Path, batch: int, _workers: int) -> Batches:
    """interleave_datasets, read in numpy's format in whole batches."""
    import datasets

    both = [datasets.load_from_disk(str(folder / "set")).shuffle(seed=0) for folder in (data, other(data))]
    mixed = datasets.interleave_datasets(both, probabilities=list(WEIGHTS), seed=0).with_format("numpy")

    def batches() -> Batches:
        for start in range(0, len(mixed) - batch + 1, batch):
            rows = mixed[start : start + batch]
            yield {name: torch.from_numpy(np.asarray(values)) for name, values in rows.items()}

    return batches()


class _Mapped:
    """Sample by sample from a mapped file."""

    def __init__(self, data: Path) -> None:
        self._x, self._y = samples(data)

    def __len__(self) -> int:
        return len(self._y)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        return np.array(self._x[index]), self._y[index]


def _gather(data: Path) -> tuple[Callable[[Any], Any], int, int]:
    """A gather over the numbers of both, one after another; how many the first has, and how many there are."""
    x, y = samples(data)
    x_other, y_other = samples(other(data))
    count = len(y)

    def gather(ids: Any) -> dict[str, torch.Tensor]:
        numbers = np.asarray(ids)
        first = numbers < count
        rows, labels = np.empty((len(numbers), *x.shape[1:]), x.dtype), np.empty((len(numbers), y.shape[1]), y.dtype)
        rows[first], rows[~first] = x[numbers[first]], x_other[numbers[~first] - count]
        labels[first], labels[~first] = y[numbers[first]], y_other[numbers[~first] - count]
        return {"x": torch.from_numpy(rows), "y": torch.from_numpy(labels)}

    return gather, count, count + len(y_other)


_HERE = globals()
PEERS = ("phalanx", "torchdata", "dataloader", "mosaicml", "webdataset", "litdata", "grain", "spdl", "datasets")
RUN: dict[str, Callable[[Path, int, int], Batches]] = {name: _HERE[f"run_{name}"] for name in PEERS}
