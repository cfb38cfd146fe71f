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
from .fields import Field, shard_header
from .files import fsync_folder, write_atomic
from .manifest import MANIFEST_NAME, MARKER_NAME, Manifest, Shard
from .pending import Pending, Rows

DEFAULT_SHARD_BYTES = 32 << 20


class ShardWriter:
    """Writes samples into shards and, last of all, the manifest.

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
        self._shard_bytes = shard_bytes
        self._lock = _claim(self._folder)
        self._pending = Pending(fields)
        self._shards: list[Shard] = []
        self._open = True

    def write(self, rows: Mapping[str, Any]) -> None:
        """Appends samples: for every field an array or tensor of shape (rows, *field.shape) and the field's dtype;
        for a variable field a list with one array of shape (items, *field.shape) per sample.

        bfloat16 is given as a torch tensor or as its raw bits in a numpy uint16 array. Raises DatasetError, with
        nothing written, if a field is missing, unknown, or of another shape or dtype.
        """
        if not self._open:
            raise DatasetError(f"{self._folder}: the writer is closed")
        given = Rows(self._fields, rows)
        sizes = given.sizes_after(self._fields)
        start = 0
        while start < given.count:
            before = int(sizes[start - 1]) if start else 0
            room = self._shard_bytes - self._pending.size_bytes
            stop = int(np.searchsorted(sizes, before + room, side="right"))
            if stop <= start and self._pending.rows:
                self._flush()
                continue
            stop = max(stop, start + 1)  # a shard holds at least one sample, however large
            self._pending.add(given, start, stop)
            start = stop

    def close(self) -> Manifest:
        """Writes what is pending and then the manifest. Raises DatasetError if there is no sample at all."""
        if not self._open:
            raise DatasetError(f"{self._folder}: the writer is closed")
        if self._pending.rows:
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

    def _flush(self) -> None:
        file, pending = f"shard-{len(self._shards):06d}.safetensors", self._pending
        parts = [memoryview(shard_header(self._fields, pending.rows, pending.items)), *pending.pieces()]
        digest = xxhash.xxh3_128()
        temporary = self._folder / f".{file}.tmp"
        with temporary.open("wb") as target:
            for part in parts:
                digest.update(part)
                target.write(part)
            target.flush()
            os.fsync(target.fileno())
        temporary.replace(self._folder / file)
        size = sum(map(len, parts))
        self._shards.append(Shard(file, pending.rows, size, digest.hexdigest(), tuple(pending.items.items())))
        self._pending = Pending(self._fields)


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
