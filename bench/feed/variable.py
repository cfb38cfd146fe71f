"""Samples of variable length, for ours and the peers: how each one's data is made, and how its batches are read.

Raw: all items after one another, where each sample ends, and labels. A batch is the items of its samples after one
another, with their lengths.
"""

from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch

_formats = import_module("formats")  # beside this module, which is run as a script's
LABELS, stand_in_for_torchvision = _formats.LABELS, _formats.stand_in_for_torchvision
Batches = Iterator[Any]
WIDTH = 256


def samples(raw: Path) -> tuple[Any, Any, Any]:
    """The items, mapped, where samples begin with the end of the last, and the labels."""
    return np.load(raw / "x.npy", mmap_mode="r"), np.load(raw / "bounds.npy"), np.load(raw / "y.npy")


def joined(pieces: Sequence[Any], labels: Any) -> dict[str, torch.Tensor]:
    """Arrays of several samples as one batch."""
    flat = [np.asarray(piece).reshape(-1) for piece in pieces]
    lengths = torch.tensor([len(piece) for piece in flat])
    return {"x": torch.from_numpy(np.concatenate(flat)), "lengths": lengths, "y": torch.as_tensor(np.asarray(labels))}


def collate(rows: Sequence[tuple[Any, Any]]) -> dict[str, torch.Tensor]:
    """Samples as (x, y) into a batch."""
    return joined([x for x, _ in rows], np.stack([np.asarray(y) for _, y in rows]))


def build_phalanx(raw: Path, out: Path) -> None:
    """Shards of 16 MiB."""
    from phalanx.dataplane import Field, ShardWriter

    x, bounds, y = samples(raw)
    fields = [Field("x", "int16", (WIDTH,), variable=True), Field("y", "float32", (LABELS,))]
    with ShardWriter(out, fields, name="variable", shard_bytes=16 << 20) as writer:
        for start in range(0, len(y), 256):
            stop = min(len(y), start + 256)
            pieces = [x[bounds[number] : bounds[number + 1]] for number in range(start, stop)]
            writer.write({"x": pieces, "y": y[start:stop]})


def build_mosaicml(raw: Path, out: Path) -> None:
    """MDS files of 64 MiB, arrays of any shape."""
    stand_in_for_torchvision()
    from streaming import MDSWriter

    columns = {"x": "ndarray:int16", "y": "ndarray:float32:16"}
    with MDSWriter(out=str(out), columns=columns, compression=None, size_limit=1 << 26) as writer:
        for x, y in _each(raw):
            writer.write({"x": x, "y": y})


def build_webdataset(raw: Path, out: Path) -> None:
    """Tar files of 64 MiB."""
    import webdataset

    out.mkdir()
    with webdataset.ShardWriter(str(out / "s-%05d.tar"), maxsize=1 << 26, verbose=0) as writer:
        for number, (x, y) in enumerate(_each(raw)):
            writer.write({"__key__": f"{number:08d}", "x": x.tobytes(), "y": y.tobytes()})


def _litdata_sample(at: tuple[str, int]) -> dict[str, Any]:
    x, bounds, y = samples(Path(at[0]))
    return {"x": torch.from_numpy(np.array(x[bounds[at[1]] : bounds[at[1] + 1]])), "y": torch.from_numpy(y[at[1]])}


def build_litdata(raw: Path, out: Path) -> None:
    """Chunks of 64 MB."""
    import litdata

    numbers = [(str(raw), number) for number in range(len(samples(raw)[2]))]
    litdata.optimize(_litdata_sample, numbers, str(out), num_workers=1, chunk_bytes="64MB")


def build_datasets(raw: Path, out: Path) -> None:
    """Arrow files, samples as lists."""
    import datasets

    def rows() -> Iterator[dict[str, Any]]:
        for x, y in _each(raw):
            yield {"x": x.reshape(-1), "y": y}

    listed = {"x": datasets.Sequence(datasets.Value("int16")), "y": datasets.Sequence(datasets.Value("float32"))}
    made = datasets.Dataset.from_generator(rows, features=datasets.Features(listed), cache_dir=str(out / "cache"))
    made.save_to_disk(str(out / "set"))


def run_phalanx(data: Path, batch: int, _workers: int) -> Batches:
    """Our loader, with its defaults."""
    from phalanx.dataplane import Loader, ShardDataset

    return Loader(ShardDataset(data, verify=False), batch)


def run_torchdata(data: Path, batch: int, _workers: int) -> Batches:
    """torchdata.nodes with a gather from one mapped file written by hand."""
    import torchdata.nodes as nodes

    gather, count = _gather(data)
    sampler = nodes.SamplerWrapper(torch.utils.data.RandomSampler(range(count)))
    batches = nodes.Batcher(sampler, batch_size=batch, drop_last=True)
    mapped = nodes.ParallelMapper(batches, map_fn=gather, num_workers=1, in_order=True, method="thread")
    return iter(nodes.Loader(nodes.Prefetcher(mapped, prefetch_factor=2)))


def run_spdl(data: Path, batch: int, _workers: int) -> Batches:
    """spdl's pipeline with the same gather."""
    from spdl.pipeline import PipelineBuilder

    gather, count = _gather(data)
    order = np.random.default_rng(0).permutation(count)
    ids = (order[start : start + batch] for start in range(0, count - batch + 1, batch))
    pipeline = PipelineBuilder().add_source(ids).pipe(gather, concurrency=2).add_sink(3).build(num_threads=2)
    pipeline.start()
    return iter(pipeline.get_iterator(timeout=60))


def run_dataloader(data: Path, batch: int, workers: int) -> Batches:
    """torch's DataLoader over a mapped file, with a collate of its own."""
    return iter(
        torch.utils.data.DataLoader(
            _Mapped(data), batch, shuffle=True, num_workers=workers, drop_last=True, collate_fn=collate
        )
    )


def run_grain(data: Path, batch: int, _workers: int) -> Batches:
    """grain's threads over a mapped file, with a collate of its own."""
    import grain

    loaded = grain.MapDataset.source(_Mapped(data)).shuffle(seed=0).batch(batch, drop_remainder=True, batch_fn=collate)
    return iter(loaded.to_iter_dataset(grain.ReadOptions(num_threads=2, prefetch_buffer_size=4)))


def run_mosaicml(data: Path, batch: int, workers: int) -> Batches:
    """StreamingDataset over local files, in torch's DataLoader."""
    stand_in_for_torchvision()
    import streaming
    from streaming import StreamingDataset

    streaming.base.util.clean_stale_shared_memory()
    dataset = StreamingDataset(local=str(data), shuffle=True, batch_size=batch)
    return iter(
        torch.utils.data.DataLoader(
            dataset, batch_size=batch, num_workers=workers, drop_last=True, collate_fn=_collate_dicts
        )
    )


def run_webdataset(data: Path, batch: int, workers: int) -> Batches:
    """Shuffled shards and a buffer of 512 samples."""
    import webdataset

    def decode(sample: dict[str, Any]) -> tuple[Any, Any]:
        return np.frombuffer(sample["x"], np.int16), np.frombuffer(sample["y"], np.float32)

    urls = [str(path) for path in sorted(data.glob("*.tar"))]
    each = webdataset.WebDataset(urls, shardshuffle=100, empty_check=False).shuffle(512).map(decode)
    return iter(webdataset.WebLoader(each.batched(batch, collation_fn=collate), batch_size=None, num_workers=workers))


def run_litdata(data: Path, batch: int, workers: int) -> Batches:
    """StreamingDataset over local chunks, in its own DataLoader."""
    import litdata

    dataset = litdata.StreamingDataset(str(data), shuffle=True, drop_last=True)
    return iter(
        litdata.StreamingDataLoader(
            dataset, batch_size=batch, num_workers=workers, drop_last=True, collate_fn=_collate_dicts
        )
    )


def run_datasets(data: Path, batch: int, _workers: int) -> Batches:
    """Hugging Face datasets in numpy's format, whole batches by shuffled indices."""
    import datasets

    loaded = datasets.load_from_disk(str(data / "set")).with_format("numpy")
    order = np.random.default_rng(0).permutation(len(loaded))

    def batches() -> Batches:
        for start in range(0, len(order) - batch + 1, batch):
            rows = loaded[order[start : start + batch]]
            yield joined(rows["x"], rows["y"])

    return batches()


class _Mapped:
    """Sample by sample from a mapped file."""

    def __init__(self, data: Path) -> None:
        self._x, self._bounds, self._y = samples(data)

    def __len__(self) -> int:
        return len(self._y)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        return np.array(self._x[self._bounds[index] : self._bounds[index + 1]]), self._y[index]


def _gather(data: Path) -> tuple[Callable[[Any], Any], int]:
    x, bounds, y = samples(data)
    return lambda ids: joined([x[bounds[number] : bounds[number + 1]] for number in ids], y[ids]), len(y)


def _each(raw: Path) -> Iterator[tuple[Any, Any]]:
    x, bounds, y = samples(raw)
    for number in range(len(y)):
        yield np.ascontiguousarray(x[bounds[number] : bounds[number + 1]]), y[number]


def _collate_dicts(rows: Sequence[dict[str, Any]]) -> dict[str, torch.Tensor]:
    return collate([(row["x"], row["y"]) for row in rows])


_HERE = globals()
PEERS = ("phalanx", "torchdata", "dataloader", "mosaicml", "webdataset", "litdata", "grain", "spdl", "datasets")
BUILD: dict[str, Callable[[Path, Path], None]] = {
    name: _HERE[f"build_{name}"] for name in PEERS if f"build_{name}" in _HERE
}
RUN: dict[str, Callable[[Path, int, int], Batches]] = {name: _HERE[f"run_{name}"] for name in PEERS}
