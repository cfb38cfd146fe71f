"""Parts and mixtures of data sets, for the loader: they share the open shards of what they are made of."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from .cache import ShardCache
from .dataset import ShardDataset
from .errors import DatasetError, LoaderError
from .fields import Field
from .look import chunks
from .manifest import Manifest
from .mixture import MixedOrder, Sequencer, SubsetOrder, describe, whole_weights
from .open_shards import OpenShards
from .order import Ids, Order

Array = np.ndarray[Any, np.dtype[Any]]


class Readable(Protocol):
    """What a loader reads: a data set, a subset of one, or a mixture of several."""

    @property
    def base(self) -> ShardDataset:
        """The data set whose ids the order speaks of."""
        ...

    def __len__(self) -> int: ...

    def order(self, seed: int, *, shards_per_block: int, lanes: int, shuffle: bool) -> Sequencer:
        """The order of its samples for ever."""
        ...

    def identity(self) -> dict[str, Any]:
        """What a loader's state must agree on, in plain JSON."""
        ...


class Subset:
    """Chosen samples of a data set.

    `ids` may come in any order; they are read as if the data set had only these, each once. Raises DatasetError if
    there is none, one is out of range, or one is given twice.
    """

    def __init__(self, dataset: ShardDataset, ids: npt.ArrayLike) -> None:
        chosen = np.sort(np.asarray(ids, np.int64))
        if not len(chosen) or chosen[0] < 0 or chosen[-1] >= len(dataset):
            raise DatasetError(f"a subset needs ids from 0 to {len(dataset) - 1}, and at least one")
        if (chosen[1:] == chosen[:-1]).any():
            raise DatasetError(f"id {chosen[:-1][chosen[1:] == chosen[:-1]][0]} is given twice")
        self._dataset = dataset
        self.ids: Ids = chosen
        starts = np.concatenate(([0], np.cumsum(dataset.shard_rows)))
        counts = np.diff(np.searchsorted(chosen, starts))
        self._shards = np.flatnonzero(counts).tolist()
        self._counts = counts[counts > 0].tolist()

    @property
    def base(self) -> ShardDataset:
        return self._dataset

    def __len__(self) -> int:
        return len(self.ids)

    def order(self, seed: int, *, shards_per_block: int, lanes: int, shuffle: bool) -> Sequencer:
        """The order of the chosen samples."""
        inner = Order(self._counts, seed, shards_per_block=shards_per_block, lanes=lanes, shuffle=shuffle)
        return SubsetOrder(inner, self.ids, self._shards)

    def identity(self) -> dict[str, Any]:
        import xxhash

        return {**self._dataset.identity(), "subset": xxhash.xxh3_128_hexdigest(self.ids.data)}


def where(dataset: ShardDataset, condition: Callable[[Mapping[str, Array]], npt.NDArray[np.bool_]]) -> Subset:
    """The samples for which `condition`, given whole batches as `gather` makes them, has true.

    Reads the data set once. Raises DatasetError if the condition does not answer for each sample, or for none.
    """
    kept, start = [], 0
    for batch in chunks(dataset):
        answer = np.asarray(condition(batch))
        size = min(len(dataset) - start, len(answer)) if answer.ndim == 1 else -1
        if answer.dtype != np.bool_ or size != len(answer) or not size:
            raise DatasetError(f"the condition must give one bool per sample, not {answer.dtype} of {answer.shape}")
        kept.append(start + np.flatnonzero(answer))
        start += size
    return Subset(dataset, np.concatenate(kept))


class Mixture:
    """Several data sets, or subsets, of the same fields, read by weights.

    Of every sum(weights) samples, each part gives as many as its weight says (weights that are no small whole numbers
    are rounded to turns out of 1,000); a part that is through begins its next epoch. The same global order for any
    number of ranks, as everywhere. Raises LoaderError for weights or fields that do not fit.
    """

    def __init__(self, parts: Sequence["ShardDataset | Subset"], weights: Sequence[float]) -> None:
        if len(parts) != len(weights):
            raise LoaderError(f"{len(parts)} data sets but {len(weights)} weights")
        self._weights = whole_weights(weights)
        self._parts = tuple(parts)
        bases = [part.base for part in parts]
        for base in bases[1:]:
            if base.fields != bases[0].fields:
                raise LoaderError(f"data sets of different fields cannot be mixed: {bases[0].fields}, {base.fields}")
        self._base = _Joined(bases)

    @property
    def base(self) -> ShardDataset:
        return self._base

    def __len__(self) -> int:
        return sum(len(part) for part in self._parts)

    def order(self, seed: int, *, shards_per_block: int, lanes: int, shuffle: bool) -> Sequencer:
        """The parts' orders, interleaved; each part is ordered by a seed of its own."""
        orders, ids, shards = [], [0], [0]
        for number, part in enumerate(self._parts):
            own = int(np.random.SeedSequence((seed, number)).generate_state(1)[0])
            orders.append(part.order(own, shards_per_block=shards_per_block, lanes=lanes, shuffle=shuffle))
            ids.append(ids[-1] + len(part.base))
            shards.append(shards[-1] + len(part.base.shard_rows))
        return MixedOrder(orders, self._weights, ids, shards, seed)

    def identity(self) -> dict[str, Any]:
        return describe(self._weights, [str(part.identity()) for part in self._parts])

    def close(self) -> None:
        """Lets go of the mapped shards."""
        self._base.close()


class _Joined(ShardDataset):
    """Data sets one after another, as one: a batch from all of them is one gather."""

    def __init__(self, parts: Sequence[ShardDataset]) -> None:
        caches: list[ShardCache | None] = [part.cache for part in parts]
        if any(cache is not caches[0] for cache in caches):
            raise LoaderError("data sets that are mixed must be given the same cache, or all none")
        self.cache = caches[0]
        shards = tuple(shard for part in parts for shard in part.manifest.shards)
        self.manifest = Manifest("+".join(part.manifest.name for part in parts), parts[0].fields, shards)
        sources = [source for part in parts for source in part.shards.sources]
        verify = any(part.shards.verify for part in parts)
        keep = min(part.shards.keep for part in parts) if self.cache else sum(part.shards.keep for part in parts)
        self.shards = OpenShards(self.manifest, sources, self.cache, verify=verify, keep=max(1, keep))
        self._starts = np.cumsum([0, *(shard.rows for shard in shards)])

    @property
    def fields(self) -> tuple[Field, ...]:
        return self.manifest.fields
