"""Samples on their way into a shard."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from .errors import DatasetError
from .fields import DTYPES, SPAN_SUFFIX, Field, in_file_order, row_bytes

Array = np.ndarray[Any, np.dtype[Any]]
Sizes = npt.NDArray[np.int64]


class Rows:
    """Checked samples: an array per fixed field; items in one array, and where each sample's end, per variable one."""

    def __init__(self, fields: Sequence[Field], given: Mapping[str, Any]) -> None:
        if set(given) != {field.name for field in fields}:
            raise DatasetError(f"fields {sorted(given)} given, the data set has {sorted(f.name for f in fields)}")
        self.arrays: dict[str, Array] = {}
        self.ends: dict[str, Sizes] = {}
        counts = {}
        for field in fields:
            if field.variable:
                self.arrays[field.name], self.ends[field.name] = _as_items(given[field.name], field)
                counts[field.name] = len(self.ends[field.name])
            else:
                self.arrays[field.name] = as_rows(given[field.name], field)
                counts[field.name] = len(self.arrays[field.name])
        if len(set(counts.values())) != 1:
            raise DatasetError(f"every field must bring the same number of rows, not {counts}")
        self.count = next(iter(counts.values()))

    def sizes_after(self, fields: Sequence[Field]) -> Sizes:
        """Bytes that the samples up to and with each one take in a shard."""
        total = np.arange(1, self.count + 1, dtype=np.int64) * row_bytes(fields)
        for field in fields:
            if field.variable:
                total += self.ends[field.name] * field.row_bytes
        return total


class Pending:
    """The samples of the shard being collected, as copies: the caller may fill its arrays anew."""

    def __init__(self, fields: Sequence[Field]) -> None:
        self._fields = tuple(fields)
        self._parts: dict[str, list[Array]] = {field.name: [] for field in in_file_order(fields)}
        self.items = {field.name: 0 for field in fields if field.variable}
        self.rows = 0
        self.size_bytes = 0

    def add(self, rows: Rows, start: int, stop: int) -> None:
        """Takes the samples [start, stop)."""
        for field in self._fields:
            array = rows.arrays[field.name]
            if not field.variable:
                self._parts[field.name].append(array[start:stop].copy())
                continue
            bounds = np.concatenate(([0], rows.ends[field.name]))[start : stop + 1]
            self._parts[field.name].append(array[bounds[0] : bounds[-1]].copy())
            spans = np.stack([bounds[:-1], bounds[1:]], axis=1) - bounds[0] + self.items[field.name]
            self._parts[field.name + SPAN_SUFFIX].append(spans)
            self.items[field.name] += int(bounds[-1] - bounds[0])
        self.rows += stop - start
        sizes = rows.sizes_after(self._fields)
        self.size_bytes += int(sizes[stop - 1] - (sizes[start - 1] if start else 0))

    def pieces(self) -> list[memoryview]:
        """The bytes of the data of a shard file, in order."""
        arrays = (array for field in in_file_order(self._fields) for array in self._parts[field.name])
        return [memoryview(array.reshape(-1).view(np.uint8).data) for array in arrays if array.size]


def as_rows(value: Any, field: Field) -> Array:
    """The rows as numpy sees them. Raises DatasetError on another shape or dtype: nothing is cast silently."""
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        value = _bits(value) if field.dtype == "bfloat16" else value.numpy()
    array = np.asarray(value)
    if array.dtype != np.dtype(DTYPES[field.dtype][1]):
        raise DatasetError(f"field {field.name!r}: dtype {array.dtype} given, {field.dtype} declared")
    if array.shape[1:] != field.shape or array.ndim != len(field.shape) + 1:
        raise DatasetError(f"field {field.name!r}: shape {array.shape} given, (rows, {field.shape}) expected")
    return array


def _as_items(value: Any, field: Field) -> tuple[Array, Sizes]:
    """All items after one another, and where each sample's end."""
    if hasattr(value, "shape"):
        raise DatasetError(f"field {field.name!r} is of variable length: give a list with one array per sample")
    arrays = [as_rows(each, field) for each in value]
    ends = np.cumsum([len(array) for array in arrays], dtype=np.int64)
    empty = np.empty((0, *field.shape), DTYPES[field.dtype][1])
    return np.concatenate([empty, *arrays]), ends


def _bits(tensor: Any) -> Array:
    import torch

    if tensor.dtype != torch.bfloat16:
        raise DatasetError(f"a bfloat16 field was given a tensor of {tensor.dtype}")
    bits: Array = tensor.contiguous().view(torch.uint16).numpy()
    return bits
