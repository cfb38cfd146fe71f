"""A finished data set: samples by id, one at a time or a whole batch at once."""

import resource
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from .cache import ShardCache
from .errors import DatasetError
from .fields import DTYPES, Field
from .manifest import manifest_path, read_manifest
from .open_shards import OpenShards

Array = np.ndarray[Any, np.dtype[Any]]

# The kernel allows a process 65,530 mappings by default, and a mapped field splits its range into three.
_MAPPED_FIELDS = 16_384


class ShardDataset:
    """The samples of a data set, by id 0 <= id < len, in the order in which they were written.

    `location` is a folder, a manifest or a file:// address. With a `cache`, shards are read from the host's copy and
    fetched when absent; `open_shards` bounds the shards kept mapped between batches, and with a cache pinned in it
    (default: what fits in half the cache's budget). With `verify`, each shard's checksum is compared when this
    process first opens it.

    Raises UnfinishedDataset or DatasetError for the folder, CacheError if the budget cannot hold one shard; reading
    raises CorruptShard, naming the shard, and CacheFull.
    """

    def __init__(
        self,
        location: str | Path,
        cache: ShardCache | None = None,
        *,
        verify: bool = True,
        open_shards: int | None = None,
    ) -> None:
        self.manifest = read_manifest(location)
        self.cache = cache
        if cache is not None:
            cache.register(self.manifest)
        largest = max(shard.size_bytes for shard in self.manifest.shards)
        keep = _MAPPED_FIELDS // len(self.manifest.fields)
        if cache is not None:
            keep = min(keep, cache.budget_bytes // 2 // largest, _descriptors())
        keep = max(1, min(keep, open_shards or keep))
        self.shards = OpenShards(self.manifest, manifest_path(location).parent, cache, verify=verify, keep=keep)
        self._starts = np.cumsum([0, *(shard.rows for shard in self.manifest.shards)])

    @property
    def fields(self) -> tuple[Field, ...]:
        return self.manifest.fields

    @property
    def shard_rows(self) -> list[int]:
        return [shard.rows for shard in self.manifest.shards]

    def __len__(self) -> int:
        return int(self._starts[-1])

    def __getitem__(self, index: int) -> dict[str, Any]:
        """One sample: a torch tensor of shape field.shape per field, the caller's own. Raises IndexError."""
        from .tensors import as_tensor

        if not -len(self) <= index < len(self):
            raise IndexError(f"sample {index} of a data set of {len(self)}")
        batch = self.gather([index % len(self)])
        return {field.name: as_tensor(batch[field.name], field)[0] for field in self.fields}

    def empty(self, rows: int) -> dict[str, Array]:
        """Fresh arrays for `rows` samples, (rows, *field.shape) each; bfloat16 as its raw bits in uint16."""
        return {field.name: np.empty((rows, *field.shape), DTYPES[field.dtype][1]) for field in self.fields}

    def gather(self, ids: npt.ArrayLike, out: Mapping[str, Array] | None = None) -> Mapping[str, Array]:
        """Copies the samples of `ids` (any order, repeats allowed), row by row, into `out` and returns it.

        `out` holds for every field a C-contiguous array as `empty(len(ids))` makes it, which is the default.
        Raises IndexError for an id out of range and DatasetError if `out` does not fit.
        """
        wanted = np.asarray(ids, np.int64)
        if wanted.size and not 0 <= wanted.min() <= wanted.max() < len(self):
            raise IndexError(f"ids from {wanted.min()} to {wanted.max()} of a data set of {len(self)} samples")
        out = self.empty(len(wanted)) if out is None else self._fitting(out, len(wanted))
        shard_of = np.searchsorted(self._starts, wanted, side="right") - 1
        self.shards.gather(shard_of, wanted - self._starts[shard_of], out)
        return out

    def close(self) -> None:
        """Lets go of the mapped shards; the data set opens them again when next used."""
        self.shards.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _fitting(self, out: Mapping[str, Array], rows: int) -> Mapping[str, Array]:
        for field in self.fields:
            array = out.get(field.name)
            shape, dtype = (rows, *field.shape), np.dtype(DTYPES[field.dtype][1])
            if array is None or array.shape != shape or array.dtype != dtype or not array.flags.c_contiguous:
                raise DatasetError(f"out[{field.name!r}] must be a C-contiguous {dtype} array of shape {shape}")
        return out


def _descriptors() -> int:
    """How many pins, each an open lock file, this process can afford."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4
