"""A finished data set: samples by id, one at a time or a whole batch at once."""

import resource
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from .cache import ShardCache
from .errors import CacheError, DatasetError
from .fields import DTYPES, OFFSETS_SUFFIX, Field
from .open_shards import OpenShards
from .order import DEFAULT_LANES, DEFAULT_SHARDS_PER_BLOCK, Order
from .remote import open_dataset_source
from .shard_file import Grow
from .source import FolderSource, Source

if TYPE_CHECKING:
    from .samples import Samples

Array = np.ndarray[Any, np.dtype[Any]]

# The kernel allows a process 65,530 mappings by default, and a mapped field splits its range into three.
_MAPPED_FIELDS = 16_384


class ShardDataset:
    """The samples of a data set, by id 0 <= id < len, in the order in which they were written.

    `location` is a folder, a manifest, an address (file://, and with the extra `remote` s3://, gs://, az://, http://
    and https://), or a source of your own. With a `cache`, shards are read from the host's copy and
    fetched when absent; `open_shards` bounds the shards kept mapped between batches, and with a cache pinned in it
    (default: what fits in half the cache's budget). With `verify`, each shard's checksum is compared when this
    process first opens it.

    Raises UnfinishedDataset or DatasetError for the folder, CacheError if the budget cannot hold one shard; reading
    raises CorruptShard, naming the shard, and CacheFull.
    """

    def __init__(
        self,
        location: str | Path | Source,
        cache: ShardCache | None = None,
        *,
        verify: bool = True,
        open_shards: int | None = None,
    ) -> None:
        source, self.manifest = open_dataset_source(location)
        if cache is None and not isinstance(source, FolderSource):
            raise CacheError(
                f"{source}: an object store is read through a cache: give ShardCache(folder, budget_bytes)"
            )
        self.cache = cache
        if cache is not None:
            cache.register(self.manifest)
        largest = max(shard.size_bytes for shard in self.manifest.shards)
        keep = _MAPPED_FIELDS // len(self.manifest.fields)
        if cache is not None:
            keep = min(keep, cache.budget_bytes // 2 // largest, _descriptors())
        keep = max(1, min(keep, open_shards or keep))
        sources = [source] * len(self.manifest.shards)
        self.shards = OpenShards(self.manifest, sources, cache, verify=verify, keep=keep)
        self._starts = np.cumsum([0, *(shard.rows for shard in self.manifest.shards)])

    @property
    def fields(self) -> tuple[Field, ...]:
        return self.manifest.fields

    @property
    def variable_fields(self) -> tuple[Field, ...]:
        return self.shards.variable

    @property
    def shard_starts(self) -> npt.NDArray[np.int64]:
        """The first id of each shard, with the end."""
        return self._starts

    @property
    def shard_rows(self) -> list[int]:
        return [shard.rows for shard in self.manifest.shards]

    @property
    def base(self) -> "ShardDataset":
        """Itself: what the ids of its order speak of."""
        return self

    def order(
        self,
        seed: int,
        *,
        shards_per_block: int = DEFAULT_SHARDS_PER_BLOCK,
        lanes: int = DEFAULT_LANES,
        shuffle: bool = True,
    ) -> Order:
        """The order of its samples for ever."""
        return Order(self.shard_rows, seed, shards_per_block=shards_per_block, lanes=lanes, shuffle=shuffle)

    def identity(self) -> dict[str, Any]:
        """What a loader's state must agree on, in plain JSON."""
        return {"dataset": self.manifest.digest}

    def __len__(self) -> int:
        return int(self._starts[-1])

    def __getitem__(self, index: int) -> dict[str, Any]:
        """One sample: a torch tensor of shape field.shape per field, (items, *field.shape) for a variable one.

        The tensors are the caller's own. Raises IndexError.
        """
        if not -len(self) <= index < len(self):
            raise IndexError(f"sample {index} of a data set of {len(self)}")
        return self.__getitems__([index % len(self)])[0]

    def __getitems__(self, indices: Sequence[int]) -> "Samples":
        """Many samples at once, from one gather: what torch's DataLoader asks for. Raises IndexError."""
        from .samples import Samples

        return Samples(self.gather(indices), self.fields)

    def empty(self, rows: int) -> dict[str, Array]:
        """Fresh arrays for `rows` samples, (rows, *field.shape) each; bfloat16 as its raw bits in uint16.

        A variable field has NAME.offsets, (rows + 1) of int64, instead.
        """
        return empty_arrays(self.fields, rows)

    def gather(
        self, ids: npt.ArrayLike, out: Mapping[str, Array] | None = None, grow: Grow | None = None
    ) -> Mapping[str, Array]:
        """Copies the samples of `ids` (any order, repeats allowed), row by row, into `out` and returns it.

        `out` holds for every field a C-contiguous array as `empty(len(ids))` makes it, which is the default. The
        items of a variable field lie after one another in the array under its name, those of sample i from
        NAME.offsets[i] to NAME.offsets[i + 1]; `grow(name, items)` gives an array with room for at least so many
        (default: a fresh one). Raises IndexError for an id out of range and DatasetError if `out` does not fit.
        """
        wanted = np.asarray(ids, np.int64)
        if wanted.size and not 0 <= wanted.min() <= wanted.max() < len(self):
            raise IndexError(f"ids from {wanted.min()} to {wanted.max()} of a data set of {len(self)} samples")
        out = self.empty(len(wanted)) if out is None else self._fitting(out, len(wanted))
        shard_of = np.searchsorted(self._starts, wanted, side="right") - 1
        items: dict[str, Array] = {}

        def room(name: str, count: int) -> Array:
            array = (grow or self._fresh)(name, count)
            items[name] = array[:count]
            return array

        self.shards.gather(shard_of, wanted - self._starts[shard_of], out, room)
        return {**out, **items} if items else out

    def _fresh(self, name: str, count: int) -> Array:
        field = next(field for field in self.fields if field.name == name)
        return np.empty((count, *field.shape), DTYPES[field.dtype][1])

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
        for name, expected in empty_arrays(self.fields, 0).items():
            array, dtype = out.get(name), expected.dtype
            shape = (rows + int(name.endswith(OFFSETS_SUFFIX)), *expected.shape[1:])
            if array is None or array.shape != shape or array.dtype != dtype or not array.flags.c_contiguous:
                raise DatasetError(f"out[{name!r}] must be a C-contiguous {dtype} array of shape {shape}")
        return out


def empty_arrays(fields: Iterable[Field], rows: int) -> dict[str, Array]:
    """Fresh arrays for the fixed part of `rows` samples: the fixed fields, and NAME.offsets of the variable ones."""
    arrays: dict[str, Array] = {}
    for field in fields:
        if field.variable:
            arrays[field.name + OFFSETS_SUFFIX] = np.empty(rows + 1, np.int64)
        else:
            arrays[field.name] = np.empty((rows, *field.shape), DTYPES[field.dtype][1])
    return arrays


def _descriptors() -> int:
    """How many pins, each an open lock file, this process can afford."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4
