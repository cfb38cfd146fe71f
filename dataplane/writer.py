"""The offline job's last step: samples into shards."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import xxhash

from .errors import DatasetError
from .fields import Field, shard_header
from .manifest import Manifest, Shard
from .pending import Pending, Rows
from .targets import open_target, shard_name

DEFAULT_SHARD_BYTES = 32 << 20


class ShardWriter:
    """Writes samples into shards and, last of all, the manifest.

    `location` is a folder, or an address of an object store (s3://, gs://, az://; needs the extra `remote`), to which
    each shard goes as it is made, by way of the disk for temporary files.

    The same rows give the same bytes, however they are cut into calls of `write`. A data set whose writer died has
    no manifest, and readers say so; a new writer starts it afresh, and in a store leaves alone the shards that are
    there with the same bytes. Use as a context manager: leaving it with an exception leaves the data set unfinished.

    `shard_bytes` is the size a shard aims at (16-64 MiB suits disks and caches; a shard holds at least one row);
    `provenance` is free JSON (raw inputs, code version, parameters). Raises DatasetError if the location holds a
    finished data set, another writer is at work in it, or the store refuses.
    """

    def __init__(
        self,
        location: str | Path,
        fields: Sequence[Field],
        *,
        name: str,
        shard_bytes: int = DEFAULT_SHARD_BYTES,
        provenance: Mapping[str, Any] | None = None,
    ) -> None:
        if not fields or len({field.name for field in fields}) != len(fields):
            raise DatasetError("a data set needs at least one field, and every field a name of its own")
        self._fields = tuple(fields)
        self._name = name
        self._provenance = dict(provenance or {})
        self._shard_bytes = shard_bytes
        self._target = open_target(location)
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
            raise DatasetError(f"{self._target}: the writer is closed")
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
            raise DatasetError(f"{self._target}: the writer is closed")
        try:
            if self._pending.rows:
                self._flush()
            if not self._shards:
                raise DatasetError(f"{self._target}: a data set needs at least one sample")
            manifest = Manifest(self._name, self._fields, tuple(self._shards), self._provenance)
            self._target.finish(manifest)
        finally:
            self._release()
        return manifest

    def abort(self) -> None:
        """Stops writing; without a manifest the data set stays unfinished."""
        self._release()

    def _release(self) -> None:
        if self._open:
            self._target.release()
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
        file, pending = shard_name(len(self._shards)), self._pending
        parts = [memoryview(shard_header(self._fields, pending.rows, pending.items)), *pending.pieces()]
        digest = xxhash.xxh3_128()
        path = self._target.path(file)
        with path.open("wb") as target:
            for part in parts:
                digest.update(part)
                target.write(part)
        size = sum(map(len, parts))
        shard = Shard(file, pending.rows, size, digest.hexdigest(), tuple(pending.items.items()))
        self._target.add(shard, path)
        self._shards.append(shard)
        self._pending = Pending(self._fields)
