"""Steps of cleaning that most recordings need, vectorised."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import OfflineError
from .recordings import Recording

Array = np.ndarray[Any, np.dtype[Any]]

_WINDOWS_AT_ONCE = 1024


@dataclass(frozen=True, slots=True)
class Drop:
    """Says in a cleaning function's output that samples were left out, and why (a short sentence: they are counted
    by it)."""

    reason: str
    samples: int = 1


def windows(data: Array, length: int, step: int | None = None) -> Array:
    """Windows of `length` along the last axis, one every `step` (default: `length`, no overlap), first axis windows.

    A view over the data: (windows, ..., length). Raises OfflineError for sizes below 1; data shorter than a window
    gives none.
    """
    step = length if step is None else step
    if length < 1 or step < 1:
        raise OfflineError(f"window length {length} and step {step} must be at least 1")
    if data.shape[-1] < length:
        return np.empty((0, *data.shape[:-1], length), data.dtype)
    view = np.lib.stride_tricks.sliding_window_view(data, length, axis=-1)[..., ::step, :]
    return np.moveaxis(view, -2, 0)


def zscore(data: Array, axis: int = -1) -> Array:
    """Mean 0 and deviation 1 along an axis, in float32; what does not vary becomes 0."""
    values = np.asarray(data, np.float64)
    deviation = values.std(axis=axis, keepdims=True)
    centred = values - values.mean(axis=axis, keepdims=True)
    scaled: Array = np.divide(centred, deviation, out=np.zeros_like(centred), where=deviation > 0)
    return scaled.astype(np.float32)


@dataclass(frozen=True, slots=True)
class Windowing:
    """The cleaning function for which no code is needed: windows over the last axis, as one field `data`.

    With `normalise` each channel of a recording gets mean 0 and deviation 1 (float32). Windows with a value that is
    not finite are dropped.
    """

    length: int
    step: int | None = None
    normalise: bool = False

    def __call__(self, recording: Recording) -> Iterator[Mapping[str, Array] | Drop]:
        data = np.asarray(recording.data)
        if data.ndim < 1 or data.dtype.kind not in "fiub":
            raise OfflineError(f"{recording.name}: an array of {data.dtype} with {data.ndim} axes has no windows")
        if data.shape[-1] < self.length:
            yield Drop("recording shorter than a window")
            return
        cut = windows(zscore(data) if self.normalise else data, self.length, self.step)
        for start in range(0, len(cut), _WINDOWS_AT_ONCE):
            part = np.ascontiguousarray(cut[start : start + _WINDOWS_AT_ONCE])
            if part.dtype.kind == "f":
                finite = np.isfinite(part).reshape(len(part), -1).all(axis=1)
                if not finite.all():
                    yield Drop("value not finite", int((~finite).sum()))
                    part = part[finite]
            if len(part):
                yield {"data": part.astype(part.dtype.newbyteorder("<"), copy=False)}
