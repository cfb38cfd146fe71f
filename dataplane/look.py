"""Looking at a data set: is it whole, what are its values like, what do its samples look like."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

from .dataset import ShardDataset
from .errors import DataplaneError, DatasetError
from .fields import OFFSETS_SUFFIX, Field
from .manifest import Manifest
from .shard_file import check_file
from .source import FolderSource, Source, check_stream

Array = np.ndarray[Any, np.dtype[Any]]

_BYTES_AT_ONCE = 32 << 20


@dataclass(frozen=True, slots=True)
class FieldStats:
    """Values of one field over all samples: counts, and in float64 the rest (0 without values that are finite)."""

    name: str
    values: int
    not_finite: int
    smallest: float
    largest: float
    mean: float
    deviation: float


def verify(source: Source, manifest: Manifest, progress: Callable[[int], None] = lambda _: None) -> list[str]:
    """What is wrong with each shard, one sentence each, read through once; `progress(shards checked)` after each."""
    faults = []
    for number, shard in enumerate(manifest.shards, 1):
        try:
            if isinstance(source, FolderSource):
                check_file(shard, source.folder / shard.file, manifest.fields)
            else:
                check_stream(shard, source)
        except DataplaneError as error:
            faults.append(str(error))
        progress(number)
    return faults


def stats(dataset: ShardDataset) -> list[FieldStats]:
    """Each field's values, in one pass over the data set."""
    sums = {field.name: _Sums() for field in dataset.fields}
    for batch in chunks(dataset):
        for field in dataset.fields:
            sums[field.name].add(as_float(batch[field.name], field))
    return [sums[field.name].result(field.name) for field in dataset.fields]


def chunks(dataset: ShardDataset) -> Iterator[Any]:
    """All samples in their order, in gathers of about 32 MiB."""
    mean = max(1, dataset.manifest.size_bytes // len(dataset))
    step = max(1, _BYTES_AT_ONCE // mean)
    for start in range(0, len(dataset), step):
        yield dataset.gather(np.arange(start, min(start + step, len(dataset))))


def as_float(array: Array, field: Field) -> Array:
    """Values as float64; bfloat16 from its raw bits."""
    if field.dtype == "bfloat16":
        return (array.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return array.astype(np.float64)


class _Sums:
    """Count, mean and spread of values that come in pieces, by Chan's rule: no difference of large sums."""

    def __init__(self) -> None:
        self.values = self.not_finite = self.count = 0
        self.smallest, self.largest, self.mean, self.spread = math.inf, -math.inf, 0.0, 0.0

    def add(self, array: Array) -> None:
        """Counts the values in; those that are not finite only as such."""
        self.values += array.size
        finite = array[np.isfinite(array)]
        self.not_finite += array.size - finite.size
        if not finite.size:
            return
        mean = float(finite.mean())
        spread = float(((finite - mean) ** 2).sum())
        total = self.count + finite.size
        self.spread += spread + (mean - self.mean) ** 2 * self.count * finite.size / total
        self.mean += (mean - self.mean) * finite.size / total
        self.count = total
        self.smallest = min(self.smallest, float(finite.min()))
        self.largest = max(self.largest, float(finite.max()))

    def result(self, name: str) -> FieldStats:
        if not self.count:
            return FieldStats(name, self.values, self.not_finite, 0.0, 0.0, 0.0, 0.0)
        deviation = math.sqrt(self.spread / self.count)
        return FieldStats(name, self.values, self.not_finite, self.smallest, self.largest, self.mean, deviation)


def picture(dataset: ShardDataset, ids: Sequence[int], name: str, *, channels: int = 16) -> str:
    """An SVG drawing of one field of some samples: a column per sample, a line per channel (at most `channels`).

    Raises DatasetError for an unknown field, or for one whose samples have no axis to draw along.
    """
    field = next((each for each in dataset.fields if each.name == name), None)
    if field is None or not (field.shape or field.variable):
        drawable = [each.name for each in dataset.fields if each.shape or each.variable]
        raise DatasetError(f"no field {name!r} that can be drawn; there is {', '.join(drawable) or 'none'}")
    batch = dataset.gather(ids)
    panels = []
    for column, number in enumerate(ids):
        if field.variable:
            begin, end = batch[name + OFFSETS_SUFFIX][column : column + 2]
            lines = as_float(batch[name][begin:end], field).reshape(end - begin, -1).T
        else:
            lines = as_float(batch[name][column], field).reshape(-1, field.shape[-1])
        panels.append(_panel(lines[:channels], f"{name} of sample {number}", column))
    width, height = 320 * len(ids), 240
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" '
        f'font-size="11"><rect width="100%" height="100%" fill="white"/>{"".join(panels)}</svg>\n'
    )


def _panel(lines: Array, title: str, column: int) -> str:
    left, top, width, height = 320 * column + 10, 24, 300, 206
    drawn = [f'<text x="{left}" y="16">{escape(title)}</text>']
    each = height / max(1, len(lines))
    for row, values in enumerate(lines):
        finite = np.nan_to_num(values)
        low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)
        scale = (each - 2) / (high - low) if high > low else 0.0
        x = left + np.arange(len(finite)) * width / max(1, len(finite) - 1)
        y = top + (row + 1) * each - 1 - (finite - low) * scale
        points = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x.tolist(), y.tolist(), strict=True))
        drawn.append(f'<polyline points="{points}" fill="none" stroke="#2563a8" stroke-width="1"/>')
    return "".join(drawn)
