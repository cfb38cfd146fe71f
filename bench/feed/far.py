"""An empty cache before a store of objects, for ours and the peers that read from one.

PHALANX_BENCH_STORE is the store's address, below which the data lies under the name of its folder.
"""

import os
import tempfile
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch

_formats = import_module("formats")  # beside this module, which is run as a script's
stand_in_for_torchvision = _formats.stand_in_for_torchvision
Batches = Iterator[Any]
read_ahead: Callable[[Any, Any, int], Batches] = _formats.read_ahead


def _scratch() -> str:
    """An empty cache; the benchmark removes the folder that TMPDIR names."""
    return tempfile.mkdtemp(prefix="cache-")


def run_phalanx(data: Path, batch: int, _workers: int) -> Batches:
    """Our loader and cache, with their defaults."""
    from phalanx.dataplane import Loader, ObjectSource, ShardCache, ShardDataset

    source = ObjectSource(f"s3://bucket/{data.name}")
    return Loader(ShardDataset(source, ShardCache(_scratch(), 1 << 40)), batch)


def run_mosaicml(data: Path, batch: int, workers: int) -> Batches:
    """StreamingDataset with a remote."""
    stand_in_for_torchvision()
    import streaming
    from streaming import StreamingDataset

    streaming.base.util.clean_stale_shared_memory()
    dataset = StreamingDataset(remote=f"s3://bucket/{data.name}", local=_scratch(), shuffle=True, batch_size=batch)
    return iter(torch.utils.data.DataLoader(dataset, batch_size=batch, num_workers=workers, drop_last=True))


def run_litdata(data: Path, batch: int, workers: int) -> Batches:
    """StreamingDataset over chunks in the store."""
    import litdata
    from litdata.streaming import downloader

    # It leaves no way to say so, and the benchmark's store has no certificate.
    downloader._OBSTORE_CLIENT_OPTIONS["allow_http"] = True
    options = {"endpoint_url": os.environ["AWS_ENDPOINT_URL"]}
    dataset = litdata.StreamingDataset(
        f"s3://bucket/{data.name}", cache_dir=_scratch(), shuffle=True, drop_last=True, storage_options=options
    )
    return iter(litdata.StreamingDataLoader(dataset, batch_size=batch, num_workers=workers, drop_last=True))


def run_webdataset(data: Path, batch: int, workers: int) -> Batches:
    """Tar files through its own opener of web addresses, which runs curl."""
    import webdataset

    def decode(sample: dict[str, Any]) -> tuple[Any, Any]:
        x = np.frombuffer(sample["x"], np.int16)
        return torch.from_numpy(x.copy()), torch.from_numpy(np.frombuffer(sample["y"], np.float32).copy())

    store = os.environ["PHALANX_BENCH_STORE"]
    urls = [f"{store}/{data.name}/{path.name}" for path in sorted(data.glob("*.tar"))]
    each = webdataset.WebDataset(urls, shardshuffle=100, empty_check=False).shuffle(512).map(decode)
    return iter(webdataset.WebLoader(each.batched(batch), batch_size=None, num_workers=workers))


def run_tensorstore(data: Path, batch: int, _workers: int) -> Batches:
    """tensorstore's own batched reads from a web address, one batch ahead."""
    import tensorstore

    url = f"{os.environ['PHALANX_BENCH_STORE']}/{data.name}/x/"
    store = tensorstore.open({"driver": "zarr", "kvstore": {"driver": "http", "base_url": url}}).result()
    return read_ahead(store, np.load(data / "y.npy"), batch)


_HERE = globals()
PEERS = ("phalanx", "mosaicml", "litdata", "webdataset", "tensorstore")
RUN: dict[str, Callable[[Path, int, int], Batches]] = {name: _HERE[f"run_{name}"] for name in PEERS}
