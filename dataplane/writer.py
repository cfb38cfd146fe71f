"""The offline job's last step: samples into shards."""

import fcntl
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import xxhash

from .errors import DatasetError
from .fields import DTYPES, Field, in_file_order, row_bytes, shard_header
from .files import fsync_folder, write_atomic
from .manifest import MANIFEST_NAME, MARKER_NAME, Manifest, Shard

Array = np.ndarray[Any, np.dtype[Any]]

DEFAULT_SHARD_BYTES = 32 << 20


class ShardWriter:
    """Writes samples of fixed-shape fields into shards and, last of all, the manifest.

    The same rows give the same bytes, however they are cut into calls of `write`. A folder whose writer died has
    no manifest, and readers say so; a new writer starts it afresh. Use as a context manager: leaving it with an
    exception leaves the data set unfinished.

    `shard_bytes` is the size a shard aims at (16-64 MiB suits disks and caches; a shard holds at least one row);
    `provenance` is free JSON (raw inputs, code version, parameters). Raises DatasetError if the folder holds a
    finished data set or another writer is at work in it.
    """

    def __init__(
        self,
        folder: str | Path,
        fields: Sequence[Field],
        *,
        name: str,
        shard_bytes: int = DEFAULT_SHARD_BYTES,
        provenance: Mapping[str, Any] | None = None,
    ) -> None:
        if not fields or len({field.name for field in fields}) != len(fields):
            raise DatasetError("a data set needs at least one field, and every field a name of its own")
        self._folder = Path(folder)
        self._fields = tuple(fields)
        self._name = name
        self._provenance = dict(provenance or {})
        self._rows_per_shard = max(1, shard_bytes // row_bytes(fields))
        self._lock = _claim(self._folder)
        self._pending = {f.name: np.empty((self._rows_per_shard, *f.shape), DTYPES[f.dtype][1]) for f in fields}
        self._filled = 0
        self._shards: list[Shard] = []
        self._open = True

    def write(self, rows: Mapping[str, Any]) -> None:
        """Appends samples: for every field an array or tensor of shape (rows, *field.shape) and the field's dtype.

        bfloat16 is given as a torch tensor or as its raw bits in a numpy uint16 array. Raises DatasetError, with
        nothing written, if a field is missing, unknown, or of another shape or dtype.
        """
        if not self._open:
            raise DatasetError(f"{self._folder}: the writer is closed")
        arrays = self._checked(rows)
        count = len(next(iter(arrays.values())))
        start = 0
        while start < count:
            step = min(count - start, self._rows_per_shard - self._filled)
            for name, array in arrays.items():
                self._pending[name][self._filled : self._filled + step] = array[start : start + step]
            self._filled += step
            start += step
            if self._filled == self._rows_per_shard:
                self._flush()

    def close(self) -> Manifest:
        """Writes what is pending and then the manifest. Raises DatasetError if there is no sample at all."""
        if not self._open:
            raise DatasetError(f"{self._folder}: the writer is closed")
        if self._filled:
            self._flush()
        if not self._shards:
            self.abort()
            raise DatasetError(f"{self._folder}: a data set needs at least one sample")
        manifest = Manifest(self._name, self._fields, tuple(self._shards), self._provenance)
        # The shards' names must be durable before anything says that they are there.
        fsync_folder(self._folder)
        write_atomic(self._folder / MANIFEST_NAME, manifest.to_bytes())
        (self._folder / MARKER_NAME).unlink()
        self._release()
        return manifest

    def abort(self) -> None:
        """Stops writing; without a manifest the data set stays unfinished."""
        self._release()

    def _release(self) -> None:
        if self._open:
            os.close(self._lock)
            self._open = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self.abort()
        elif self._open:
            self.close()

    def _checked(self, rows: Mapping[str, Any]) -> dict[str, Array]:
        if set(rows) != set(self._pending):
            raise DatasetError(f"fields {sorted(rows)} given, the data set has {sorted(self._pending)}")
        arrays = {field.name: _as_rows(rows[field.name], field) for field in self._fields}
        counts = {name: len(array) for name, array in arrays.items()}
        if len(set(counts.values())) != 1:
            raise DatasetError(f"every field must bring the same number of rows, not {counts}")
        return arrays

    def _flush(self) -> None:
        file = f"shard-{len(self._shards):06d}.safetensors"
        data = [self._pending[field.name][: self._filled] for field in in_file_order(self._fields)]
        parts = [memoryview(shard_header(self._fields, self._filled)), *(array.data.cast("B") for array in data)]
        digest = xxhash.xxh3_128()
        temporary = self._folder / f".{file}.tmp"
        with temporary.open("wb") as target:
            for part in parts:
                digest.update(part)
                target.write(part)
            target.flush()
            os.fsync(target.fileno())
        temporary.replace(self._folder / file)
        self._shards.append(Shard(file, self._filled, sum(map(len, parts)), digest.hexdigest()))
        self._filled = 0


def _claim(folder: Path) -> int:
    """Takes the folder for one writer, clears an unfinished one's shards, and returns the lock's descriptor."""
    folder.mkdir(parents=True, exist_ok=True)
    unfinished = (folder / MARKER_NAME).exists()
    descriptor = os.open(folder / MARKER_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise DatasetError(f"{folder}: another writer is at work here") from None
    # Only under the lock: a writer that finished a moment ago has put its manifest there by now.
    if (folder / MANIFEST_NAME).exists():
        (folder / MARKER_NAME).unlink(missing_ok=True)
        os.close(descriptor)
        raise DatasetError(f"{folder}: holds a finished data set; write to another folder")
    if unfinished:
        for left in [*folder.glob("shard-*.safetensors"), *folder.glob(".shard-*.safetensors.tmp")]:
            left.unlink()
    return descriptor


def _as_rows(value: Any, field: Field) -> Array:
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


def _bits(tensor: Any) -> Array:
    import torch

    if tensor.dtype != torch.bfloat16:
        raise DatasetError(f"a bfloat16 field was given a tensor of {tensor.dtype}")
    bits: Array = tensor.contiguous().view(torch.uint16).numpy()
    return bits
