"""Samples of one gather, as torch's DataLoader takes them: one by one, or the whole batch without another copy."""

from collections.abc import Mapping, Sequence
from typing import Any, overload

import numpy as np
import torch

from .errors import DatasetError
from .fields import OFFSETS_SUFFIX, Field
from .tensors import as_tensor

Array = np.ndarray[Any, np.dtype[Any]]


class Samples(Sequence[dict[str, torch.Tensor]]):
    """A sequence of samples; `batch` holds them together, as the loader hands batches out."""

    def __init__(self, gathered: Mapping[str, Array], fields: Sequence[Field]) -> None:
        self.batch = as_tensors(gathered, fields)
        self._fields = fields

    def __len__(self) -> int:
        return batch_rows(self.batch, self._fields)

    @overload
    def __getitem__(self, index: int) -> dict[str, torch.Tensor]: ...

    @overload
    def __getitem__(self, index: slice) -> list[dict[str, torch.Tensor]]: ...

    def __getitem__(self, index: int | slice) -> dict[str, torch.Tensor] | list[dict[str, torch.Tensor]]:
        if isinstance(index, slice):
            return [self[each] for each in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(f"sample {index} of {len(self)}")
        return one_sample(self.batch, self._fields, index % len(self))


def as_tensors(gathered: Mapping[str, Array], fields: Sequence[Field]) -> dict[str, torch.Tensor]:
    """Tensors over the memory of gathered arrays: one per field, and NAME.offsets of each variable one."""
    tensors = {}
    for field in fields:
        tensors[field.name] = as_tensor(gathered[field.name], field)
        if field.variable:
            tensors[field.name + OFFSETS_SUFFIX] = torch.from_numpy(gathered[field.name + OFFSETS_SUFFIX])
    return tensors


def batch_rows(batch: Mapping[str, torch.Tensor], fields: Sequence[Field]) -> int:
    """The number of samples in a batch."""
    first = fields[0]
    return len(batch[first.name + OFFSETS_SUFFIX]) - 1 if first.variable else len(batch[first.name])


def one_sample(batch: Mapping[str, torch.Tensor], fields: Sequence[Field], row: int) -> dict[str, torch.Tensor]:
    """One sample of a batch, over its memory."""
    sample = {}
    for field in fields:
        if field.variable:
            begin, end = batch[field.name + OFFSETS_SUFFIX][row : row + 2].tolist()
            sample[field.name] = batch[field.name][begin:end]
        else:
            sample[field.name] = batch[field.name][row]
    return sample


def collate(samples: Sequence[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    """The `collate_fn` for a DataLoader over a `ShardDataset`: its batch as it was gathered, without another copy.

    Raises DatasetError for samples that come from elsewhere.
    """
    if not isinstance(samples, Samples):
        raise DatasetError("collate takes what ShardDataset.__getitems__ gave; use torch's own collate for the rest")
    return samples.batch


def padded(
    batch: Mapping[str, torch.Tensor], name: str, *, length: int | None = None, fill: float = 0
) -> tuple[torch.Tensor, torch.Tensor]:
    """A variable field of a batch as one tensor (samples, length, *shape), and where it is real (samples, length).

    `length` is by default that of the longest sample; longer samples are cut. The rest is filled with `fill`.
    """
    flat, offsets = batch[name], batch[name + OFFSETS_SUFFIX]
    lengths = offsets[1:] - offsets[:-1]
    size = int(lengths.max()) if length is None and len(lengths) else length or 0
    real = torch.arange(size, device=flat.device)[None, :] < lengths[:, None]
    result = flat.new_full((len(lengths), size, *flat.shape[1:]), fill)
    places = offsets[:-1, None] + torch.arange(size, device=flat.device)[None, :]
    result[real] = flat[places[real]]
    return result, real
