"""How the data of each loader is made: the same samples, uncompressed, in each one's own format.

Imports nothing of Phalanx but the dataplane, and that only for ours; each peer only where it is installed.
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


def samples(raw: Path) -> tuple[Any, Any]:
    """The raw samples, mapped, and their labels."""
    return np.load(raw / "x.npy", mmap_mode="r"), np.load(raw / "y.npy")


def read_ahead(store: Any, y: Any, batch: int) -> Iterator[dict[str, torch.Tensor]]:
    """Shuffled batches of a tensorstore and its labels, each asked for one batch ahead."""
    order = np.random.default_rng(0).permutation(len(y))
    ids = [np.sort(order[start : start + batch]) for start in range(0, len(y) - batch + 1, batch)]
    ahead = store[ids[0]].read()
    for number, these in enumerate(ids):
        ready, label = ahead, torch.from_numpy(y[these])
        if number + 1 < len(ids):
            ahead = store[ids[number + 1]].read()
        yield {"x": torch.from_numpy(ready.result()), "y": label}


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
    columns = {"x": f"ndarray:int16:{','.join(map(str, x.shape[1:]))}", "y": "ndarray:float32:16"}
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
