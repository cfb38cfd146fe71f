"""Making one batch: which samples, gathered into a buffer, in the types asked for, through the user's transforms."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch

from .dataset import ShardDataset
from .early_rows import EarlyRows
from .errors import LoaderError
from .fields import OFFSETS_SUFFIX, Field
from .order import Ids
from .plan import Planner
from .ring import Buffer
from .samples import one_sample

Batch = dict[str, torch.Tensor]
BatchTransform = Callable[..., Mapping[str, torch.Tensor]]
SampleTransform = Callable[..., Mapping[str, torch.Tensor]]
MASK = "mask"
_BATCH, _SAMPLE = 3, 4


class Transforms:
    """What happens to a batch after it was gathered, in this order: types, each sample, the whole batch.

    A transform with a second parameter is given a numpy Generator; that of a sample follows from the seed and the
    sample's number alone, so that it is the same on any number of ranks; that of a batch from the seed, its number,
    and the rank's cut. Raises LoaderError for unknown fields or no threads.
    """

    def __init__(
        self,
        fields: Sequence[Field],
        cast: Mapping[str, torch.dtype],
        sample: SampleTransform | None,
        batch: BatchTransform | None,
        threads: int,
    ) -> None:
        unknown = set(cast) - {field.name for field in fields}
        if unknown:
            raise LoaderError(f"cast: no field {', '.join(sorted(unknown))}; there is {[f.name for f in fields]}")
        if threads < 1:
            raise LoaderError(f"transform_threads {threads} must be at least 1")
        self.fields, self.cast = tuple(fields), dict(cast)
        self._sample, self._batch = sample, batch
        self._sample_random = sample is not None and _takes_random(sample)
        self._batch_random = batch is not None and _takes_random(batch)
        self._pool = ThreadPoolExecutor(threads, "phalanx-transform") if sample is not None else None

    def apply(self, batch: Batch, buffer: Buffer, seed: int, positions: Ids, cut: tuple[int, int, int]) -> Batch:
        """The batch as it is handed out. `positions` are the sample numbers, `cut` is (g, rank, world size)."""
        for name, dtype in self.cast.items():
            if name in buffer.casts:
                buffer.casts[name].copy_(batch[name])
                batch[name] = buffer.casts[name]
            else:
                batch[name] = batch[name].to(dtype)
        if self._sample is not None:
            batch = self._each(batch, seed, positions)
        if self._batch is not None:
            random = [np.random.default_rng((seed, _BATCH, *cut))] if self._batch_random else []
            batch = dict(self._batch(batch, *random))
        return batch

    def close(self) -> None:
        """Ends the threads."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)

    def _each(self, batch: Batch, seed: int, positions: Ids) -> Batch:
        def one(row: int) -> Mapping[str, torch.Tensor]:
            assert self._sample is not None
            random = [np.random.default_rng((seed, _SAMPLE, int(positions[row])))] if self._sample_random else []
            return self._sample(one_sample(batch, self.fields, row), *random)

        assert self._pool is not None
        made = list(self._pool.map(one, range(len(positions))))
        try:
            return {name: torch.stack([sample[name] for sample in made]) for name in made[0]}
        except (RuntimeError, KeyError) as error:
            raise LoaderError(f"the transformed samples of a batch do not fit together: {error}") from error


class BatchMaker:
    """Fills a buffer with one rank's piece of the batch at g."""

    def __init__(
        self,
        dataset: ShardDataset,
        planner: Planner,
        transforms: Transforms,
        seed: int,
        mask: bool,
        early: EarlyRows | None = None,
    ) -> None:
        self._shards = early or dataset.shards
        self._dataset, self._planner, self._transforms = dataset, planner, transforms
        self._seed, self._mask = seed, mask

    def __call__(self, g: int, buffer: Buffer) -> Batch:
        piece = self._planner.piece(g)
        self._shards.gather(piece.shard_of, piece.rows, buffer.arrays, buffer.grow)
        batch = dict(buffer.tensors)
        for field in self._dataset.variable_fields:
            items = int(buffer.arrays[field.name + OFFSETS_SUFFIX][-1])
            batch[field.name] = buffer.items(field.name, items)
        if self._mask:
            batch[MASK] = torch.from_numpy(piece.real)
        return self._transforms.apply(batch, buffer, self._seed, piece.positions, (g, *self._planner.cut))


def _takes_random(function: Callable[..., Any]) -> bool:
    """Whether a transform has a second parameter without a default."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    needed = [p for p in parameters if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return len(needed) >= 2
